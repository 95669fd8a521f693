//! What an agent loads, counted beside the opening of its session.

use std::sync::Arc;

use bridge_protocol::id::UpstreamId;
use tokio::task::JoinHandle;

use super::Climber;
use crate::conversation::disk;
use crate::conversation::growth::Loaded;
use crate::conversation::history::History;
use crate::transcript::opened::Opened;
use crate::transcript::shelf::Format;

/// What is loaded, and how many prompts stand in its transcript.
pub(super) type Counted = (Loaded, Option<u64>);

impl Climber {
    /// Counts what a transcript holds, and the prompts in it where those can be told apart, for as long as nobody has
    /// sent one.
    pub(super) fn load(&self, id: &UpstreamId) -> JoinHandle<Option<Counted>> {
        let services = Arc::clone(&self.services);
        let listed = self.entry.listed_transcripts();
        let listed = listed.map(|(root, format)| (root.to_path_buf(), format));
        let (record, id) = (self.record.clone(), id.clone());
        tokio::task::spawn_blocking(move || {
            let (root, format) = listed?;
            let library = &services.library;
            let (own, prompts) = match format {
                Format::Claude => {
                    let path = disk::find(&root, &record.cwd, &id).ok()?;
                    let own = Opened::claude(library, &path, None).ok()?;
                    (own, Some(library.index(&path).ok()?.prompts()))
                }
                Format::Codex => (Opened::codex(library, &root, id.as_str(), None).ok()?, None),
            };
            // Of an ancestor, or a copy, the link is not there yet; it holds what is loaded by itself.
            let is_head = record.chain.head().is_some_and(|head| head.upstream_id == id);
            let history = || {
                let lineage = services.store.lineage_all(record.id).ok()?;
                let history = History::of_conversation(&services, &record, &lineage).ok()?;
                Some(history.turns())
            };
            let step = is_head.then(history).flatten().unwrap_or(own.turns());
            let loaded = Loaded {
                step: step as u64,
                messages: own.messages() as u64,
            };
            Some((loaded, prompts))
        })
    }

    /// The same once it is counted: what was begun beside the opening, or now.
    pub(super) async fn loaded(
        &self,
        loading: Option<JoinHandle<Option<Counted>>>,
        id: &UpstreamId,
    ) -> Option<Counted> {
        let loading = loading.unwrap_or_else(|| self.load(id));
        loading.await.ok().flatten()
    }
}
