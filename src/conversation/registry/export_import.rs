//! Exports and imports of conversations, on blocking threads.

use std::sync::Arc;

use bridge_protocol::daemon::Work;
use bridge_protocol::export::{ExportAnswer, ExportFormat};
use bridge_protocol::method::Import;
use bridge_protocol::raw::RawJson;
use bridge_protocol::{ConversationId, UpstreamId};
use serde::Deserialize;

use super::super::answer::{Answer, CallKey};
use super::super::error::ConversationError;
use super::super::exporting::{self, ExportRequest};
use super::super::importing::{self, PreparedImport};
use super::super::read_queues::ReadClass;
use super::super::running_work::{Progress, WorkGuard};
use super::super::services::{Services, now};
use super::Registry;
use crate::store::ConversationRecord;
use crate::transcript::meter::with_meter;

impl Registry {
    /// The progress of long-running calls.
    #[must_use]
    pub fn running_work(&self) -> Vec<Work> {
        self.services.running_work.report()
    }

    /// Adds a call to the list of long-running calls.
    pub(super) fn track_work(&self, method: &'static str, conversation: Option<ConversationId>) -> WorkGuard {
        self.services
            .running_work
            .track(method, conversation, self.stop.clone())
    }

    /// Exports a conversation in its present state.
    ///
    /// # Errors
    /// When there is no such conversation, the path cannot be used, or its transcripts cannot be read.
    pub async fn export(
        self: &Arc<Self>,
        id: ConversationId,
        format: ExportFormat,
        path: Option<String>,
        secrets: bool,
        request: Option<CallKey>,
    ) -> Result<ExportAnswer, ConversationError> {
        let is_answer = format == ExportFormat::Json && path.is_none();
        // An answer that contains the export is not stored: it would fill the store, and the call writes no file.
        let request = request.filter(|_| !is_answer);
        self.run_idempotent_work(Some(id), request, |registry| async move {
            registry.export_now(id, format, path, secrets, is_answer).await
        })
        .await
    }

    async fn export_now(
        &self,
        id: ConversationId,
        format: ExportFormat,
        path: Option<String>,
        secrets: bool,
        is_answer: bool,
    ) -> Result<ExportAnswer, ConversationError> {
        let guard = self.track_work("conversation/export", Some(id));
        // An export that fits into an answer is read like a history, so it does not wait for exports of gigabytes.
        let queue = match is_answer {
            true => self.queue_of(Some(id), ReadClass::Quick),
            false => self.services.read_queues.export_import_queue(),
        };
        let turn = queue.acquire(guard.progress()).await?;
        self.refuse_while_moving(id)?;
        let (mut record, mut view) = (self.record(id)?, self.view(id)?);
        let usage = self.usage(id).await;
        // Queued prompts are sent by this daemon only, so the export leaves them out.
        record.waiting.clear();
        view.queue.clear();
        view.cut_short = record.cut.is_some();
        let usage = usage.or_else(|| record.usage.clone());
        let cwd = record.cwd.clone();
        let progress = guard.progress();
        let work = self.services.blocking(move |services| {
            // Held until the work ends, which may be a while after its caller disconnected.
            let _turn = turn;
            let export = ExportRequest {
                lineage: services.lineage_of(&record)?,
                record,
                view,
                usage,
                secrets,
            };
            let meter = Arc::clone(&progress);
            // The meter counts all reads on this thread, and ends them when no caller waits.
            with_meter(meter, || {
                exporting::export(services, export, format, path.as_deref(), &progress)
            })
        });
        let export = async { work.await? };
        let result = match is_answer {
            true => queue.unless_stalled(&guard.progress(), export).await,
            false => export.await,
        };
        drop(guard);
        self.busy_if_moved(id, &cwd, result)
    }

    /// Makes a conversation of a bundle. The files are put in place before the conversation is committed, and it is
    /// committed before it is announced.
    ///
    /// # Errors
    /// When the bundle cannot be used, or its ids are in use here. Then no files are left behind.
    pub async fn import(
        self: &Arc<Self>,
        import: Import,
        request: Option<CallKey>,
    ) -> Result<Answer, ConversationError> {
        let (registry, key) = (Arc::clone(self), request.clone());
        let work = || async move {
            let begun = registry.track_work("conversation/import", None);
            let (progress, own) = (begun.progress(), Arc::clone(&registry));
            // A task of its own: if the caller disconnects, files in place are still either committed or removed.
            let run = registry
                .tasks
                .spawn(async move { own.import_now(import, key, progress).await });
            let result = run.await;
            drop(begun);
            result?
        };
        self.run_idempotent(None, request, work).await
    }

    async fn import_now(
        self: Arc<Self>,
        import: Import,
        request: Option<CallKey>,
        progress: Arc<Progress>,
    ) -> Result<Answer, ConversationError> {
        if self.stop.is_cancelled() {
            return Err(ConversationError::ShuttingDown);
        }
        let _permit = self
            .services
            .read_queues
            .export_import_queue()
            .acquire(Arc::clone(&progress))
            .await?;
        let work = self
            .services
            .blocking(move |services| importing::import(services, &import, &progress));
        let imported = work.await??;
        // One at a time from here on: an adoption of one of the transcripts may be running.
        let _turn = self.lock_for_new_conversation().await?;
        let work = self.services.blocking(move |services| {
            importing::check_still_free(services, &imported)?;
            // Turns that came with the bundle are old, and are not reported as saved.
            if let Some((id, bytes)) = head_size(services, &imported.record) {
                services.old_bytes.note_length(&id, bytes);
            }
            Ok::<_, ConversationError>(imported)
        });
        let PreparedImport {
            placed_files: mut placed,
            mut change,
            answer: told,
            ..
        } = work.await??;
        let answer = Answer::from_value(&told)?;
        let request = request.map(|request| request.to_answered_record(&answer, now()));
        change.requests.extend(request);
        let committed = self.services.store.commit(change).await;
        if committed.is_ok() {
            placed.commit();
            self.services.announce_new(told.conversation);
        }
        // If the commit failed, the drop deletes the files one by one, which blocks.
        if let Err(error) = tokio::task::spawn_blocking(move || drop(placed)).await {
            tracing::warn!(%error, "could not delete the unpacked files of an import");
        }
        committed?;
        Ok(answer)
    }

    /// The usage that the agent of a live conversation last reported.
    async fn usage(&self, id: ConversationId) -> Option<RawJson> {
        #[derive(Deserialize)]
        struct Envelope {
            event: Snapshot,
        }
        #[derive(Deserialize)]
        struct Snapshot {
            session: Option<Session>,
        }
        #[derive(Deserialize)]
        struct Session {
            usage: Option<RawJson>,
        }
        let snapshot = self.live_snapshot(id, false).await?;
        let envelope: Envelope = serde_json::from_str(&snapshot.text).ok()?;
        envelope.event.session?.usage
    }
}

/// The session of a conversation's head, and the size of its transcript in bytes.
fn head_size(services: &Services, record: &ConversationRecord) -> Option<(UpstreamId, u64)> {
    let head = record.chain.head()?;
    let transcripts = services.transcripts(&head.agent)?;
    let path = transcripts.find(&record.cwd, &head.upstream_id).ok()?;
    Some((head.upstream_id.clone(), path.metadata().ok()?.len()))
}
