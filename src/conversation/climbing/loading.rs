//! What an agent loads, counted beside the opening of its session.

use std::path::Path;
use std::sync::Arc;

use bridge_protocol::id::UpstreamId;
use tokio::task::JoinHandle;

use super::{Climber, store_error};
use crate::conversation::disk;
use crate::conversation::error::ConversationError;
use crate::conversation::growth::Loaded;
use crate::conversation::history::History;
use crate::conversation::services::{Services, chain_text};
use crate::store::ConversationRecord;
use crate::transcript::TranscriptError;
use crate::transcript::opened::Opened;
use crate::transcript::shelf::Format;

/// What is loaded, and how many prompts stand in its transcript.
pub(super) type Counted = (Loaded, Option<u64>);

impl Climber {
    /// Counts what a transcript holds, and the prompts in it where those can be told apart, for as long as nobody has
    /// sent one. None for an agent whose transcripts cannot be read by this version.
    pub(super) fn load(&self, id: &UpstreamId) -> JoinHandle<Result<Option<Counted>, ConversationError>> {
        let services = Arc::clone(&self.services);
        let listed = self.entry.listed_transcripts();
        let listed = listed.map(|(root, format)| (root.to_path_buf(), format));
        let (record, id) = (self.record.clone(), id.clone());
        tokio::task::spawn_blocking(move || {
            let counted = listed.map(|(root, format)| count(&services, &record, &root, format, &id));
            counted.transpose()
        })
    }

    /// The same of a session that is open, once it is counted: what was begun beside the opening, or now. The log says
    /// why there is none.
    pub(super) async fn loaded(
        &self,
        loading: Option<JoinHandle<Result<Option<Counted>, ConversationError>>>,
        id: &UpstreamId,
    ) -> Option<Counted> {
        let loading = loading.unwrap_or_else(|| self.load(id));
        let counted = loading.await.unwrap_or(Err(ConversationError::Lost));
        let told = counted.inspect_err(|error| {
            tracing::warn!(
                conversation = %self.record.id, upstream_id = %id, error = chain_text(error),
                "the agent has loaded a transcript that cannot be read here; how much it holds is not told"
            );
        });
        told.ok().flatten()
    }
}

fn count(
    services: &Services,
    record: &ConversationRecord,
    root: &Path,
    format: Format,
    id: &UpstreamId,
) -> Result<Counted, ConversationError> {
    let damaged = |error: TranscriptError| ConversationError::TranscriptDamaged(chain_text(&error));
    let library = &services.library;
    let (own, prompts) = match format {
        Format::Claude => {
            let path = disk::find(library, root, &record.cwd, id).map_err(damaged)?;
            let own = Opened::claude(library, &path, None).map_err(damaged)?;
            (own, Some(library.index(&path).map_err(damaged)?.prompts()))
        }
        Format::Codex => (
            Opened::codex(library, root, id.as_str(), None).map_err(damaged)?,
            None,
        ),
    };
    // Of an ancestor, or a copy, the link is not there yet; it holds what is loaded by itself.
    let turns = match record.chain.head() {
        Some(head) if head.upstream_id == *id => {
            let lineage = services.store.lineage_all(record.id);
            let lineage = lineage.map_err(|error| store_error(&error))?;
            History::of_conversation(services, record, &lineage)?.turns()
        }
        _ => own.turns(),
    };
    let loaded = Loaded {
        step: turns as u64,
        messages: own.loaded_messages() as u64,
    };
    Ok((loaded, prompts))
}
