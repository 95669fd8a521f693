//! `conversation/…`.

use std::sync::Arc;

use bridge_protocol::conversation::{
    CancelAnswer, ChainAnswer, ConversationAnswer, ConversationPage, ConversationState, Empty, ForkAnswer,
    LineagePage, OnBusy, OnLimit, RespondAnswer, ResumeAnswer, Settings, TranscriptsOnDelete,
};
use bridge_protocol::link::Fidelity;
use bridge_protocol::raw::{PromptContent, RawJson};
use bridge_protocol::rpc::{ConversationRpcServer, RpcResult};
use bridge_protocol::turn::TurnResult;
use bridge_protocol::{AgentName, ConversationId, ConversationRef, Cursor, InterruptId, TurnId};
use jsonrpsee::core::{SubscriptionResult, async_trait};
use jsonrpsee::{Extensions, PendingSubscriptionSink};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::errors::wire;
use super::subscriber::{Shared, SocketSubscriber};
use super::{Handlers, request};
use crate::conversation::answer::{Answer, Request};
use crate::conversation::climbing::store_error;
use crate::conversation::effect::Call;
use crate::conversation::error::ConversationError;
use crate::conversation::folder::usable_folder;
use crate::conversation::registry::{Filter, NewConversation};
use crate::server::{ConnectionInfo, NotificationHead};

/// Conversations on one page unless asked otherwise, and at most.
const LIST_LIMITS: (u32, u32) = (50, 500);

/// Entries of the lineage on one page unless asked otherwise, and at most.
const LINEAGE_LIMITS: (u32, u32) = (100, 1_000);

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
        let request = request(
            "new",
            request_id,
            &(&agent, &cwd, &title, &namespace, &open, &settings),
        );
        let settings = settings.unwrap_or_default();
        let new = NewConversation {
            agent,
            cwd,
            title,
            namespace,
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
        if open != Some(true) {
            return Ok(made);
        }
        let id = made.conversation.id;
        let resumed: ResumeAnswer = self
            .called(
                id,
                Call::Resume {
                    min_fidelity: Fidelity::Text,
                },
                None,
            )
            .await?;
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
        query: Option<String>,
        cursor: Option<Cursor>,
        limit: Option<u32>,
    ) -> RpcResult<ConversationPage> {
        let limit = page_limit(limit, LIST_LIMITS).map_err(|error| wire(&error))?;
        let filter = Filter {
            namespace,
            agent,
            cwd,
            state,
            query,
        };
        let page = self.daemon.registry.list(&filter, cursor.as_ref(), limit);
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
        let request = request("update", request_id, &(&title, &settings, &expected_revision));
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
        if on_limit == Some(OnLimit::Wait) {
            let error = ConversationError::Unsupported(
                "onLimit: wait is not offered by this version; send the prompt again when the limit has reset"
                    .to_owned(),
            );
            return Err(wire(&error));
        }
        let request = request(
            "prompt",
            request_id,
            &(&prompt, &on_busy, &on_limit, &min_fidelity),
        );
        let call = Call::Prompt {
            turn_id: TurnId::mint(),
            prompt,
            on_busy: on_busy.unwrap_or_default(),
            min_fidelity: min_fidelity.unwrap_or(Fidelity::Text),
        };
        self.call(&conversation_id, call, request).await
    }

    async fn cancel(
        &self,
        conversation_id: ConversationRef,
        turn_id: Option<TurnId>,
        queued: Option<bool>,
    ) -> RpcResult<CancelAnswer> {
        self.call(
            &conversation_id,
            Call::Cancel {
                turn_id,
                queued: queued == Some(true),
            },
            None,
        )
        .await
    }

    async fn resume(
        &self,
        conversation_id: ConversationRef,
        min_fidelity: Option<Fidelity>,
    ) -> RpcResult<ResumeAnswer> {
        let min_fidelity = min_fidelity.unwrap_or(Fidelity::Text);
        self.call(&conversation_id, Call::Resume { min_fidelity }, None)
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
        if at.is_some() {
            let error = ConversationError::Unsupported(
                "this version forks at the head only; leave \"at\" out".to_owned(),
            );
            return Err(wire(&error));
        }
        let request = request("fork", request_id, &(&in_place, &cwd, &title, &min_fidelity));
        let cwd = cwd
            .map(|cwd| usable_folder(&cwd))
            .transpose()
            .map_err(|error| wire(&error))?;
        let call = Call::Fork {
            in_place: in_place == Some(true),
            cwd,
            title,
            min_fidelity: min_fidelity.unwrap_or(Fidelity::Text),
        };
        self.call(&conversation_id, call, request).await
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
        let after = match cursor {
            None => 0,
            Some(cursor) => cursor.as_str().parse().map_err(|_| {
                let text = "the cursor is not one that conversation/lineage gave";
                wire(&ConversationError::InvalidParams(text.to_owned()))
            })?,
        };
        // One more than the page, to know whether there is another.
        let entries = self
            .daemon
            .registry
            .services()
            .store
            .lineage(id, after, limit + 1);
        let mut entries = entries.map_err(|error| wire(&store_error(&error)))?;
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        let next_cursor = entries
            .last()
            .filter(|_| has_more)
            .map(|entry| Cursor::new(entry.seq.to_string()));
        Ok(LineagePage { entries, next_cursor })
    }

    async fn respond(
        &self,
        conversation_id: ConversationRef,
        interrupt_id: InterruptId,
        outcome: RawJson,
    ) -> RpcResult<RespondAnswer> {
        let call = Call::Respond {
            interrupt_id,
            outcome,
            turn_id: TurnId::mint(),
        };
        self.call(&conversation_id, call, None).await
    }

    async fn close(&self, conversation_id: ConversationRef) -> RpcResult<Empty> {
        self.call(&conversation_id, Call::Close, None).await
    }

    async fn reset(
        &self,
        conversation_id: ConversationRef,
        request_id: Option<String>,
    ) -> RpcResult<ConversationAnswer> {
        let request = request("reset", request_id, &());
        self.call(&conversation_id, Call::Reset, request).await
    }

    async fn delete(
        &self,
        conversation_id: ConversationRef,
        transcripts: Option<TranscriptsOnDelete>,
        request_id: Option<String>,
    ) -> RpcResult<Empty> {
        let request = request("delete", request_id, &transcripts);
        let call = Call::Delete {
            transcripts: transcripts.unwrap_or_default(),
        };
        self.call(&conversation_id, call, request).await
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
                self.daemon
                    .registry
                    .subscribe_all(subscriber, after.as_ref())
                    .await;
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
    fn resolve(&self, name: &ConversationRef) -> RpcResult<ConversationId> {
        self.daemon.registry.resolve(name).map_err(|error| wire(&error))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        name: &ConversationRef,
        call: Call,
        request: Option<Request>,
    ) -> RpcResult<T> {
        let id = match self.resolve(name) {
            Ok(id) => id,
            Err(error) => return self.kept_of_deleted(name, request.as_ref()).ok_or(error),
        };
        self.called(id, call, request).await
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

    /// The answer of a deletion that was asked for before with the same key.
    fn kept_of_deleted<T: DeserializeOwned>(
        &self,
        name: &ConversationRef,
        request: Option<&Request>,
    ) -> Option<T> {
        let request = request?;
        let id: ConversationId = name.as_str().parse().ok()?;
        let kept = self
            .daemon
            .registry
            .services()
            .store
            .request(Some(id), &request.id)
            .ok()??;
        let result = kept.result.filter(|_| kept.fingerprint == request.fingerprint)?;
        result.read().ok()
    }
}

/// The answer in the shape that its method has.
fn read<T: DeserializeOwned>(answer: &Answer) -> RpcResult<T> {
    let typed = answer.to_json().and_then(|json| json.read());
    typed.map_err(|error| {
        tracing::error!(%error, "an answer does not have the shape of its method");
        wire(&ConversationError::Lost)
    })
}

/// Whether a prompt says nothing: no blocks, or nothing but texts of no length.
fn is_empty(prompt: &PromptContent) -> bool {
    #[derive(Deserialize)]
    struct Text<'a> {
        r#type: &'a str,
        text: String,
    }
    prompt.as_blocks().iter().all(|block| {
        block
            .read::<Text<'_>>()
            .is_ok_and(|block| block.r#type == "text" && block.text.is_empty())
    })
}

fn page_limit(limit: Option<u32>, (usual, most): (u32, u32)) -> Result<usize, ConversationError> {
    let limit = limit.unwrap_or(usual);
    if limit == 0 || limit > most {
        return Err(ConversationError::InvalidParams(format!(
            "limit must be between 1 and {most}, not {limit}"
        )));
    }
    Ok(limit as usize)
}
