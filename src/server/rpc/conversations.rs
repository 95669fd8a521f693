//! `conversation/…`.

use std::sync::Arc;

use bridge_protocol::conversation::{
    AdoptAnswer, CancelAnswer, ChainAnswer, ContinueAnswer, ContinueAt, ConversationAnswer, ConversationPage,
    ConversationState, DeleteAnswer, EditAnswer, Empty, ForkAnswer, LineagePage, MoveAnswer, OnBusy, OnLimit,
    RespondAnswer, ResumeAnswer, Settings, TranscriptsOnDelete, UndoAnswer,
};
use bridge_protocol::export::{ExportAnswer, ExportFormat, ImportAnswer};
use bridge_protocol::history::{CheckpointPage, HistoryPage};
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::rpc::{ConversationRpcServer, RpcResult};
use bridge_protocol::turn::TurnResult;
use bridge_protocol::{
    AgentName, BridgeError, CheckpointId, ConversationId, ConversationRef, Cursor, InterruptId, TurnId,
    UpstreamId,
};
use jsonrpsee::core::{SubscriptionResult, async_trait};
use jsonrpsee::{Extensions, PendingSubscriptionSink};
use serde::de::DeserializeOwned;

use super::errors::wire;
use super::parameters::{
    LINEAGE_LIMITS, LIST_LIMITS, answerer, history_part, is_empty, page_limit, place, unknown_word, wanted,
};
use super::subscriber::{Shared, SocketSubscriber};
use super::{Handlers, request};
use crate::conversation::answer::{Answer, Request};
use crate::conversation::climbing::store_error;
use crate::conversation::effect::Call;
use crate::conversation::error::ConversationError;
use crate::conversation::folder::{usable_folder, wanted_folder};
use crate::conversation::importing::Import;
use crate::conversation::registry::{Adoption, Filter, NewConversation};
use crate::server::{ConnectionInfo, NotificationHead};
use crate::transcript::checkpoint::PlaceRef;

#[async_trait]
impl ConversationRpcServer for Handlers {
    async fn create(
        &self,
        agent: Option<AgentName>,
        cwd: String,
        title: Option<String>,
        namespace: Option<String>,
        open: Option<bool>,
        settings: Option<Settings>,
        request_id: Option<String>,
    ) -> RpcResult<ConversationAnswer> {
        let default_agent = || self.daemon.registry.services().catalog.default_agent().clone();
        let agent = Some(agent.unwrap_or_else(default_agent));
        let (open, settings) = (open == Some(true), settings.unwrap_or_default());
        let (title, namespace) = (title.unwrap_or_default(), namespace.unwrap_or_default());
        let said = (&agent, &cwd, &title, &namespace, open, &settings);
        let request = request("new", request_id, &said)?;
        let new = NewConversation {
            agent,
            cwd,
            title: Some(title),
            namespace: Some(namespace),
            settings,
            request,
        };
        let answer = self
            .daemon
            .registry
            .create(new)
            .await
            .map_err(|error| wire(&error))?;
        let made: ConversationAnswer = read(&answer)?;
        if !open {
            return Ok(made);
        }
        let id = made.conversation.id;
        let resume = Call::Resume {
            min_fidelity: Fidelity::Text,
        };
        let resumed: RpcResult<ResumeAnswer> = self.called(id, resume, None).await;
        // It was made, and nothing else tells its id to who asked for it.
        let told = |error| BridgeError::from(error).with("conversationId", id.to_string());
        let resumed = resumed.map_err(told)?;
        Ok(ConversationAnswer {
            conversation: resumed.conversation,
        })
    }

    async fn list(
        &self,
        namespace: Option<String>,
        agent: Option<AgentName>,
        cwd: Option<String>,
        state: Option<ConversationState>,
        cut_short: Option<bool>,
        query: Option<String>,
        cursor: Option<Cursor>,
        limit: Option<u32>,
    ) -> RpcResult<ConversationPage> {
        let limit = page_limit(limit, LIST_LIMITS).map_err(|error| wire(&error))?;
        if state == Some(ConversationState::Unknown) {
            return Err(unknown_word(
                "state",
                "idle, prompting, awaiting, cancelling, limited, interrupted, moving, failed",
            ));
        }
        let cwd = cwd
            .map(|cwd| wanted_folder("cwd", &cwd))
            .transpose()
            .map_err(|error| wire(&error))?;
        let filter = Filter {
            namespace,
            agent,
            cwd,
            state,
            cut_short,
            query,
        };
        let page = self.daemon.registry.list(&filter, cursor.as_ref(), limit).await;
        let (conversations, next_cursor) = page.map_err(|error| wire(&error))?;
        Ok(ConversationPage {
            conversations,
            next_cursor,
        })
    }

    async fn get(&self, conversation_id: ConversationRef) -> RpcResult<ConversationAnswer> {
        let id = self.resolve(&conversation_id)?;
        let conversation = self.daemon.registry.view(id).map_err(|error| wire(&error))?;
        Ok(ConversationAnswer { conversation })
    }

    async fn update(
        &self,
        conversation_id: ConversationRef,
        title: Option<String>,
        settings: Option<Settings>,
        expected_revision: Option<u64>,
        request_id: Option<String>,
    ) -> RpcResult<ConversationAnswer> {
        let said = (&title, settings.clone().unwrap_or_default(), &expected_revision);
        let request = request("update", request_id, &said)?;
        self.call(
            &conversation_id,
            Call::Update {
                title,
                settings,
                expected_revision,
            },
            request,
        )
        .await
    }

    async fn prompt(
        &self,
        conversation_id: ConversationRef,
        prompt: PromptContent,
        on_busy: Option<OnBusy>,
        on_limit: Option<OnLimit>,
        min_fidelity: Option<Fidelity>,
        request_id: Option<String>,
    ) -> RpcResult<TurnResult> {
        if is_empty(&prompt) {
            let error = ConversationError::InvalidParams("the prompt has no content".to_owned());
            return Err(wire(&error));
        }
        let (on_busy, on_limit) = (on_busy.unwrap_or_default(), on_limit.unwrap_or_default());
        let min_fidelity = wanted(min_fidelity)?;
        let said = (&prompt, on_busy, on_limit, min_fidelity);
        let request = request("prompt", request_id, &said)?;
        let call = Call::Prompt {
            turn_id: TurnId::mint(),
            prompt,
            on_busy,
            on_limit,
            min_fidelity,
        };
        self.call(&conversation_id, call, request).await
    }

    async fn continue_at(
        &self,
        conversation_id: ConversationRef,
        at: Option<ContinueAt>,
        text: Option<PromptContent>,
        cancel: Option<bool>,
        request_id: Option<String>,
    ) -> RpcResult<ContinueAnswer> {
        let cancel = cancel == Some(true);
        if text.as_ref().is_some_and(is_empty) {
            let error = ConversationError::InvalidParams("the text has no content; leave it out".to_owned());
            return Err(wire(&error));
        }
        let request = request("continue", request_id, &(at, &text, cancel))?;
        self.call(&conversation_id, Call::Continue { at, text, cancel }, request)
            .await
    }

    async fn cancel(
        &self,
        conversation_id: ConversationRef,
        turn_id: Option<TurnId>,
        queued: Option<bool>,
        request_id: Option<String>,
    ) -> RpcResult<CancelAnswer> {
        let queued = queued == Some(true);
        let request = request("cancel", request_id, &(&turn_id, queued))?;
        self.call_once(&conversation_id, Call::Cancel { turn_id, queued }, request)
            .await
    }

    async fn resume(
        &self,
        conversation_id: ConversationRef,
        min_fidelity: Option<Fidelity>,
        request_id: Option<String>,
    ) -> RpcResult<ResumeAnswer> {
        let min_fidelity = wanted(min_fidelity)?;
        let request = request("resume", request_id, &min_fidelity)?;
        self.call_once(&conversation_id, Call::Resume { min_fidelity }, request)
            .await
    }

    async fn fork(
        &self,
        conversation_id: ConversationRef,
        in_place: Option<bool>,
        at: Option<String>,
        cwd: Option<String>,
        title: Option<String>,
        min_fidelity: Option<Fidelity>,
        request_id: Option<String>,
    ) -> RpcResult<ForkAnswer> {
        let at = at.map(|at| place(&at)).transpose()?;
        let cwd = cwd
            .map(|cwd| usable_folder("cwd", &cwd))
            .transpose()
            .map_err(|error| wire(&error))?;
        let in_place = in_place == Some(true);
        let min_fidelity = wanted(min_fidelity)?;
        // Folder and title are the source's where none is given, and those may change: what is absent stays so.
        let asked = (
            in_place,
            at.as_ref().map(PlaceRef::to_string),
            &cwd,
            &title,
            min_fidelity,
        );
        let request = request("fork", request_id, &asked)?;
        let call = Call::Fork {
            in_place,
            at,
            cwd,
            title,
            min_fidelity,
        };
        self.call(&conversation_id, call, request).await
    }

    async fn edit(
        &self,
        conversation_id: ConversationRef,
        at: String,
        prompt: PromptContent,
        min_fidelity: Option<Fidelity>,
        request_id: Option<String>,
    ) -> RpcResult<EditAnswer> {
        let at = place(&at)?;
        if is_empty(&prompt) {
            let error = ConversationError::InvalidParams("the prompt has no content".to_owned());
            return Err(wire(&error));
        }
        let min_fidelity = wanted(min_fidelity)?;
        let said = (at.to_string(), &prompt, min_fidelity);
        let request = request("edit", request_id, &said)?;
        let call = Call::Edit {
            turn_id: TurnId::mint(),
            at,
            prompt,
            min_fidelity,
        };
        self.call(&conversation_id, call, request).await
    }

    async fn undo(
        &self,
        conversation_id: ConversationRef,
        request_id: Option<String>,
    ) -> RpcResult<UndoAnswer> {
        let id = self.resolve(&conversation_id)?;
        let request = request("undo", request_id, &())?;
        let answer = self.daemon.registry.undo(id, request).await;
        read(&answer.map_err(|error| wire(&error))?)
    }

    async fn move_to(
        &self,
        conversation_id: ConversationRef,
        cwd: String,
        dry_run: Option<bool>,
        request_id: Option<String>,
    ) -> RpcResult<MoveAnswer> {
        let cwd = usable_folder("cwd", &cwd).map_err(|error| wire(&error))?;
        let registry = &self.daemon.registry;
        let id = self.resolve(&conversation_id)?;
        if dry_run == Some(true) {
            let planned = registry.plan_move(id, cwd).await;
            return planned.map_err(|error| wire(&error));
        }
        let request = request("move", request_id, &cwd)?;
        let answer = registry.move_to(id, cwd, request).await;
        read(&answer.map_err(|error| wire(&error))?)
    }

    async fn chain(&self, conversation_id: ConversationRef) -> RpcResult<ChainAnswer> {
        let id = self.resolve(&conversation_id)?;
        let record = self.daemon.registry.services().store.conversation(id);
        let record = record.map_err(|error| wire(&store_error(&error)))?;
        let links = record
            .map(|record| record.chain.links().to_vec())
            .unwrap_or_default();
        Ok(ChainAnswer { links })
    }

    async fn lineage(
        &self,
        conversation_id: ConversationRef,
        cursor: Option<Cursor>,
        limit: Option<u32>,
    ) -> RpcResult<LineagePage> {
        let id = self.resolve(&conversation_id)?;
        let limit = page_limit(limit, LINEAGE_LIMITS).map_err(|error| wire(&error))?;
        let page = self.daemon.registry.lineage(id, cursor.as_ref(), limit);
        let (entries, next_cursor) = page.map_err(|error| wire(&error))?;
        Ok(LineagePage { entries, next_cursor })
    }

    async fn checkpoints(
        &self,
        conversation_id: ConversationRef,
        before: Option<CheckpointId>,
        limit: Option<u32>,
    ) -> RpcResult<CheckpointPage> {
        let id = self.resolve(&conversation_id)?;
        let limit = page_limit(limit, LIST_LIMITS).map_err(|error| wire(&error))?;
        let page = self.daemon.registry.checkpoints(id, before, limit).await;
        page.map_err(|error| wire(&error))
    }

    async fn history(
        &self,
        conversation_id: ConversationRef,
        cursor: Option<Cursor>,
        limit: Option<u32>,
        last: Option<u32>,
    ) -> RpcResult<HistoryPage> {
        let id = self.resolve(&conversation_id)?;
        let (part, limit) = history_part(cursor, limit, last).map_err(|error| wire(&error))?;
        let page = self.daemon.registry.history(id, part, limit).await;
        page.map_err(|error| wire(&error))
    }

    async fn respond(
        &self,
        conversation_id: ConversationRef,
        interrupt_id: InterruptId,
        outcome: RawJson,
        by: Option<String>,
        request_id: Option<String>,
    ) -> RpcResult<RespondAnswer> {
        let request = request("respond", request_id, &(&interrupt_id, &outcome))?;
        let call = Call::Respond {
            interrupt_id,
            outcome,
            by: answerer(by).map_err(|error| wire(&error))?,
            turn_id: TurnId::mint(),
        };
        self.call(&conversation_id, call, request).await
    }

    async fn close(&self, conversation_id: ConversationRef, request_id: Option<String>) -> RpcResult<Empty> {
        let request = request("close", request_id, &())?;
        self.call_once(&conversation_id, Call::Close, request).await
    }

    async fn reset(
        &self,
        conversation_id: ConversationRef,
        request_id: Option<String>,
    ) -> RpcResult<ConversationAnswer> {
        let request = request("reset", request_id, &())?;
        self.call(&conversation_id, Call::Reset, request).await
    }

    async fn delete(
        &self,
        conversation_id: ConversationRef,
        transcripts: Option<TranscriptsOnDelete>,
        request_id: Option<String>,
    ) -> RpcResult<DeleteAnswer> {
        let transcripts = transcripts.unwrap_or_default();
        let request = request("delete", request_id, &transcripts)?;
        let call = Call::Delete { transcripts };
        self.call(&conversation_id, call, request).await
    }

    async fn adopt(
        &self,
        upstream_id: UpstreamId,
        agent: Option<AgentName>,
        cwd: Option<String>,
        title: Option<String>,
        request_id: Option<String>,
    ) -> RpcResult<AdoptAnswer> {
        let request = request("adopt", request_id, &(&upstream_id, &agent, &cwd, &title))?;
        let adoption = Adoption {
            upstream_id,
            agent,
            cwd,
            title,
        };
        let answer = self.daemon.registry.adopt(adoption, request).await;
        read(&answer.map_err(|error| wire(&error))?)
    }

    async fn export(
        &self,
        conversation_id: ConversationRef,
        format: Option<ExportFormat>,
        path: Option<String>,
        secrets: Option<bool>,
    ) -> RpcResult<ExportAnswer> {
        let id = self.resolve(&conversation_id)?;
        let registry = &self.daemon.registry;
        let (format, secrets) = (format.unwrap_or_default(), secrets.unwrap_or(false));
        let answer = registry.export(id, format, path, secrets).await;
        answer.map_err(|error| wire(&error))
    }

    async fn import(
        &self,
        path: String,
        cwd: Option<String>,
        same_folders: Option<bool>,
        new_ids: Option<bool>,
        trust_settings: Option<bool>,
        request_id: Option<String>,
    ) -> RpcResult<ImportAnswer> {
        let same_folders = same_folders == Some(true);
        let new_ids = new_ids == Some(true);
        let trust_settings = trust_settings == Some(true);
        let said = (&path, &cwd, new_ids, trust_settings);
        let request = match same_folders {
            true => request("import", request_id, &(said, "sameFolders")),
            // As before there was such a parameter: a call may be repeated across an update.
            false => request("import", request_id, &said),
        }?;
        let import = Import {
            path,
            cwd,
            same_folders,
            new_ids,
            trust_settings,
        };
        let answer = self.daemon.registry.import(import, request).await;
        read(&answer.map_err(|error| wire(&error))?)
    }

    async fn events(
        &self,
        pending: PendingSubscriptionSink,
        extensions: &Extensions,
        conversation_id: Option<ConversationRef>,
        after: Option<Cursor>,
    ) -> SubscriptionResult {
        let id = match conversation_id
            .as_ref()
            .map(|name| self.resolve(name))
            .transpose()
        {
            Ok(id) => id,
            Err(error) => {
                pending.reject(error).await;
                return Ok(());
            }
        };
        let Some(connection) = extensions.get::<ConnectionInfo>() else {
            return Err("a subscription needs a connection that can be written to".into());
        };
        let head = NotificationHead::new("conversation/event", &pending.subscription_id());
        let sink = pending.accept().await?;
        let shared = Arc::new(Shared::default());
        let subscriber = Box::new(SocketSubscriber::new(
            connection.outbox.clone(),
            head,
            Arc::clone(&shared),
        ));
        match id {
            Some(id) => self.daemon.registry.subscribe(id, subscriber, after)?,
            None => {
                let registry = &self.daemon.registry;
                tokio::select! {
                    () = registry.subscribe_all(subscriber, after.as_ref()) => {}
                    () = sink.closed() => {}
                }
            }
        }
        tokio::select! {
            () = sink.closed() => {}
            () = shared.ended.notified() => {}
        }
        shared.leave();
        Ok(())
    }
}

impl Handlers {
    pub(super) fn resolve(&self, name: &ConversationRef) -> RpcResult<ConversationId> {
        self.daemon.registry.resolve(name).map_err(|error| wire(&error))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        name: &ConversationRef,
        call: Call,
        request: Option<Request>,
    ) -> RpcResult<T> {
        match self.named(name, request.as_ref())? {
            Named::Conversation(id) => self.called(id, call, request).await,
            Named::Kept(answer) => read(&answer),
        }
    }

    /// As [`Handlers::call`], for a call that the conversation itself does not keep the answer of.
    async fn call_once<T: DeserializeOwned>(
        &self,
        name: &ConversationRef,
        call: Call,
        request: Option<Request>,
    ) -> RpcResult<T> {
        let id = match self.named(name, request.as_ref())? {
            Named::Conversation(id) => id,
            Named::Kept(answer) => return read(&answer),
        };
        let registry = &self.daemon.registry;
        let start = || {
            let answer = registry.call(id, call, None);
            async move { answer?.await.unwrap_or(Err(ConversationError::Lost)) }
        };
        let answer = registry.once(Some(id), request, start).await;
        read(&answer.map_err(|error| wire(&error))?)
    }

    async fn called<T: DeserializeOwned>(
        &self,
        id: ConversationId,
        call: Call,
        request: Option<Request>,
    ) -> RpcResult<T> {
        let answer = self
            .daemon
            .registry
            .call(id, call, request)
            .map_err(|error| wire(&error))?;
        let answer = answer
            .await
            .unwrap_or(Err(ConversationError::Lost))
            .map_err(|error| wire(&error))?;
        read(&answer)
    }

    /// The conversation that a call is about or, where it is deleted, what the same call was answered while it was there:
    /// its deletion, mostly.
    fn named(&self, name: &ConversationRef, request: Option<&Request>) -> RpcResult<Named> {
        let registry = &self.daemon.registry;
        let error = match registry.resolve(name) {
            Ok(id) => return Ok(Named::Conversation(id)),
            Err(error) => error,
        };
        if let ConversationError::Deleted { id, .. } = &error
            && let Some(kept) = registry.kept(Some(*id), request).map_err(|error| wire(&error))?
        {
            return Ok(Named::Kept(kept));
        }
        Err(wire(&error))
    }
}

/// What a call that names a conversation meets.
enum Named {
    /// The conversation.
    Conversation(ConversationId),
    /// The answer that the same call was given before the conversation was deleted.
    Kept(Answer),
}

/// The answer in the shape that its method has.
pub(super) fn read<T: DeserializeOwned>(answer: &Answer) -> RpcResult<T> {
    let typed = answer.to_json().and_then(|json| json.read());
    typed.map_err(|error| {
        tracing::error!(%error, "an answer does not have the shape of its method");
        wire(&ConversationError::Lost)
    })
}
