//! What an agent loads, counted beside the opening of its session.

use std::path::Path;
use std::sync::Arc;

use bridge_protocol::id::UpstreamId;
use tokio::task::JoinHandle;

use super::Climber;
use crate::conversation::disk;
use crate::conversation::growth::Loaded;
use crate::conversation::history::History;

impl Climber {
    /// Counts what a transcript holds, and the prompts in it, for as long as nobody has sent one.
    pub(super) fn load(&self, id: &UpstreamId) -> JoinHandle<Option<(Loaded, u64)>> {
        let services = Arc::clone(&self.services);
        let root = self.entry.readable_transcripts().map(Path::to_path_buf);
        let (record, id) = (self.record.clone(), id.clone());
        tokio::task::spawn_blocking(move || {
            let path = disk::find(&root?, &record.cwd, &id).ok()?;
            let own = services.library.open(&path, None).ok()?;
            let prompts = services.library.index(&path).ok()?.prompts();
            // Of an ancestor, or a copy, the link is not there yet; it holds what is loaded by itself.
            let is_head = record.chain.head().is_some_and(|head| head.upstream_id == id);
            let history = || {
                let lineage = services.store.lineage_all(record.id).ok()?;
                let history = History::of_conversation(&services, &record, &lineage).ok()?;
                Some(history.turns())
            };
            let step = is_head.then(history).flatten().unwrap_or(own.book.turns());
            let loaded = Loaded {
                step: step as u64,
                messages: own.book.messages() as u64,
            };
            Some((loaded, prompts))
        })
    }

    /// The same once it is counted: what was begun beside the opening, or now.
    pub(super) async fn loaded(
        &self,
        loading: Option<JoinHandle<Option<(Loaded, u64)>>>,
        id: &UpstreamId,
    ) -> Option<(Loaded, u64)> {
        let loading = loading.unwrap_or_else(|| self.load(id));
        loading.await.ok().flatten()
    }
}
