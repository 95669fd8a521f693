//! `conversation/…`: about conversations.

#[cfg(feature = "server")]
use jsonrpsee::core::SubscriptionResult;
#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::proc_macros::rpc;

#[cfg(any(feature = "client", feature = "server"))]
#[cfg(feature = "server")]
use super::RpcResult;
use crate::conversation::{
    AdoptAnswer, CancelAnswer, ChainAnswer, ContinueAnswer, ContinueAt, ConversationAnswer, ConversationPage,
    ConversationState, DeleteAnswer, EditAnswer, Empty, ForkAnswer, LineagePage, MoveAnswer, OnBusy, OnLimit,
    RespondAnswer, ResumeAnswer, Settings, TranscriptsOnDelete, UndoAnswer,
};
#[cfg(any(feature = "client", feature = "schema"))]
use crate::event::EventEnvelope;
use crate::export::{ExportAnswer, ExportFormat, ImportAnswer};
use crate::history::{CheckpointPage, HistoryPage};
use crate::id::{AgentName, CheckpointId, ConversationRef, Cursor, InterruptId, TurnId, UpstreamId};
use crate::link::Fidelity;
#[cfg(feature = "schema")]
use crate::openrpc::Methods;
use crate::raw::{PromptContent, RawJson};
use crate::turn::TurnResult;

methods! {
    describe:
    /// Methods about conversations.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "conversation", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "conversation", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "conversation", namespace_separator = "/")
    )]
    pub trait ConversationRpc {
        /// Makes a conversation. The upstream session is opened at the first prompt or resume.
        ///
        /// - `agent`: The agent that it talks to. Default: the configured one.
        /// - `cwd`: The folder in which it runs: absolute, and there.
        /// - `title`: What people call it. Default: nobody has named it yet.
        /// - `namespace`: The app that it belongs to, by the app's own word. Default: none.
        /// - `open`: Whether the upstream session is opened at once, and not at the first prompt or resume. Where that
        ///   fails the conversation is there all the same, as `conversationId` in the error's data, and can be prompted.
        ///   Default: false.
        /// - `settings`: How its sessions are set up. Default: as the agent does by itself.
        ///
        /// # Errors
        /// `notFound`, `busy`, `invalidCwd`, `agentUnavailable`, `agentError`, `authRequired`, `limited`,
        /// `notResumable`.
        #[method(name = "new", param_kind = map)]
        async fn create(
            &self,
            agent: Option<AgentName>,
            cwd: String,
            title: Option<String>,
            namespace: Option<String>,
            open: Option<bool>,
            settings: Option<Settings>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ConversationAnswer>;

        /// Conversations, newest first.
        ///
        /// - `namespace`: Only those of this app. Default: of all.
        /// - `agent`: Only those of this agent. Default: of all.
        /// - `cwd`: Only those that run in this absolute folder, by whatever path leads there. Default: in any.
        /// - `state`: Only those in this state. Default: in any.
        /// - `cutShort`: Only those with a turn that was cut short or a prompt that is held (true), or only the others
        ///   (false). Default: both.
        /// - `query`: Only those whose title or folder contains this, in any case. Default: all.
        /// - `cursor`: The `nextCursor` of the page before. Default: the first page.
        /// - `limit`: How many at most, up to 500. Default: 50.
        ///
        /// # Errors
        /// `invalidCwd`, `storeFailed`.
        #[method(name = "list", param_kind = map)]
        async fn list(
            &self,
            namespace: Option<String>,
            agent: Option<AgentName>,
            cwd: Option<String>,
            state: Option<ConversationState>,
            #[argument(rename = "cutShort")] cut_short: Option<bool>,
            query: Option<String>,
            cursor: Option<Cursor>,
            limit: Option<u32>,
        ) -> RpcResult<ConversationPage>;

        /// One conversation.
        #[method(name = "get", param_kind = map)]
        async fn get(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
        ) -> RpcResult<ConversationAnswer>;

        /// Changes title or settings; settings take hold of an open session at once.
        ///
        /// - `title`: What people call it from now on. Default: as before.
        /// - `settings`: The members that change; the others stay. Default: none does.
        /// - `expectedRevision`: The `revision` that the caller has seen: another one is refused as `revisionMismatch`.
        ///   Default: any will do.
        ///
        /// # Errors
        /// `busy`, `agentUnavailable`, `agentError`, `authRequired`, `limited`, `revisionMismatch`.
        #[method(name = "update", param_kind = map)]
        async fn update(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            title: Option<String>,
            settings: Option<Settings>,
            #[argument(rename = "expectedRevision")] expected_revision: Option<u64>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ConversationAnswer>;

        /// Sends a prompt and answers when its turn has ended.
        ///
        /// - `prompt`: A text, or ACP's content blocks.
        /// - `onBusy`: What to do while another turn runs. Default: `fail`.
        /// - `onLimit`: What to do when it meets a usage limit. Default: `fail`.
        /// - `minFidelity`: The least of what stood before that the session must have; with less the prompt is refused
        ///   as `notResumable`. Default: `text`.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`, `agentUnavailable`, `agentError`, `authRequired`, `limited`, `notResumable`.
        #[method(name = "prompt", param_kind = map)]
        async fn prompt(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            prompt: PromptContent,
            #[argument(rename = "onBusy")] on_busy: Option<OnBusy>,
            #[argument(rename = "onLimit")] on_limit: Option<OnLimit>,
            #[argument(rename = "minFidelity")] min_fidelity: Option<Fidelity>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<TurnResult>;

        /// Has the conversation go on by itself with what a limit, a crash or a stop cut short. Where the agent's
        /// transcript does not hold the prompt that was cut short, that goes out again; where it does, `text` does, or
        /// a short word of ours. Without such a prompt `text` is what goes out.
        ///
        /// - `at`: `reset`, when the limit that it has run into ends, or a time. Needed unless `cancel` is true.
        /// - `text`: What goes out where the transcript holds the prompt that was cut short, or where there is none.
        ///   Default: a short word of the daemon's.
        /// - `cancel`: Whether nothing is to go out by itself any more. Default: false.
        ///
        /// # Errors
        /// `busy`.
        #[method(name = "continue", param_kind = map)]
        async fn continue_at(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            at: Option<ContinueAt>,
            text: Option<PromptContent>,
            cancel: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ContinueAnswer>;

        /// Cancels a turn, and answers when it has ended.
        ///
        /// - `turnId`: The turn, running or waiting in line. Default: the one that runs.
        /// - `queued`: Whether those that wait in line are cancelled too. Default: false.
        #[method(name = "cancel", param_kind = map)]
        async fn cancel(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "turnId")] turn_id: Option<TurnId>,
            queued: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<CancelAnswer>;

        /// Opens the session without a prompt.
        ///
        /// - `minFidelity`: The least of what stood before that the session must have; with less it is refused as
        ///   `notResumable`. Default: `text`.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`, `agentUnavailable`, `agentError`, `authRequired`, `limited`, `notResumable`.
        #[method(name = "resume", param_kind = map)]
        async fn resume(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "minFidelity")] min_fidelity: Option<Fidelity>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ResumeAnswer>;

        /// Branches off: a new conversation, or a new head of this one.
        ///
        /// - `inPlace`: Whether the branch becomes the head of this conversation, and not a new conversation. Default:
        ///   false.
        /// - `at`: The id of a checkpoint or of a message: the last that the branch has. Default: the head.
        /// - `cwd`: The folder in which the branch runs: absolute, and there. Default: that of this conversation.
        /// - `title`: What people call the branch. Default: as this conversation.
        /// - `minFidelity`: The least of what stood there that the branch must have. Default: `text`.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`, `checkpointNotFound`, `agentUnavailable`, `agentError`, `authRequired`, `limited`,
        /// `notResumable`, `unsupported`, `transcriptDamaged`.
        #[method(name = "fork", param_kind = map)]
        async fn fork(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "inPlace")] in_place: Option<bool>,
            at: Option<String>,
            cwd: Option<String>,
            title: Option<String>,
            #[argument(rename = "minFidelity")] min_fidelity: Option<Fidelity>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ForkAnswer>;

        /// Replaces the prompt of a turn, finished or not: what stands before that turn goes on with the new prompt.
        /// Answered when the new turn has ended.
        ///
        /// - `at`: The id of the checkpoint of the turn whose prompt is replaced, or of that prompt's message.
        /// - `prompt`: What stands there instead: a text, or ACP's content blocks.
        /// - `minFidelity`: The least of what stood before the prompt that the new turn must run on. Default: `text`.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`, `checkpointNotFound`, `agentUnavailable`, `agentError`, `authRequired`, `limited`,
        /// `notResumable`, `unsupported`, `transcriptDamaged`.
        #[method(name = "edit", param_kind = map)]
        async fn edit(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            at: String,
            prompt: PromptContent,
            #[argument(rename = "minFidelity")] min_fidelity: Option<Fidelity>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<EditAnswer>;

        /// Takes back the last edit, branch in place or move, then the one before it.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`, `agentUnavailable`, `agentError`, `authRequired`, `limited`, `notResumable`,
        /// `unsupported`.
        #[method(name = "undo", param_kind = map)]
        async fn undo(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<UndoAnswer>;

        /// Has the conversation run in another folder: its transcripts go to where the agent looks for them there, with
        /// the files beside them, and name the new folder; nothing that differs is replaced. Refused as busy while a
        /// turn runs or somebody else writes.
        ///
        /// - `cwd`: The folder in which it runs from now on: absolute, and there.
        /// - `dryRun`: Whether nothing is changed and only the plan is told. Default: false.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`, `agentUnavailable`, `agentError`, `unsupported`, `transcriptDamaged`.
        #[method(name = "move", param_kind = map)]
        async fn move_to(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            cwd: String,
            #[argument(rename = "dryRun")] dry_run: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<MoveAnswer>;

        /// The upstream sessions that can be resumed, oldest first; the last is the head.
        #[method(name = "chain", param_kind = map)]
        async fn chain(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
        ) -> RpcResult<ChainAnswer>;

        /// Everything that ever happened to the chain, oldest first.
        ///
        /// - `cursor`: The `nextCursor` of the page before. Default: the first page.
        /// - `limit`: How many at most, up to 1,000. Default: 100.
        #[method(name = "lineage", param_kind = map)]
        async fn lineage(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            cursor: Option<Cursor>,
            limit: Option<u32>,
        ) -> RpcResult<LineagePage>;

        /// The places after the turns of the current history, newest first.
        ///
        /// - `before`: Only those before this one: the last of the page before. Default: the newest.
        /// - `limit`: How many at most, up to 500. Default: 50.
        ///
        /// # Errors
        /// `checkpointNotFound`, `unsupported`, `transcriptDamaged`.
        #[method(name = "checkpoints", param_kind = map)]
        async fn checkpoints(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            before: Option<CheckpointId>,
            limit: Option<u32>,
        ) -> RpcResult<CheckpointPage>;

        /// The messages of the current history, over all sessions that hold it, oldest first: from the beginning, from
        /// `cursor`, or the `last` so many. With `last` and `limit` the page is the beginning of those: `nextCursor`
        /// leads on to the end.
        ///
        /// - `cursor`: The `nextCursor` or `previousCursor` of a page. Not with `last`. Default: the beginning.
        /// - `limit`: How many messages at most, up to 1,000. Default: 100.
        /// - `last`: Only the last so many, up to 1,000; with `limit` any number. Default: all.
        ///
        /// # Errors
        /// `unsupported`, `transcriptDamaged`.
        #[method(name = "history", param_kind = map)]
        async fn history(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            cursor: Option<Cursor>,
            limit: Option<u32>,
            last: Option<u32>,
        ) -> RpcResult<HistoryPage>;

        /// Answers a question of the agent. The first answer wins.
        ///
        /// - `interruptId`: The question: the `id` of an `interrupt`.
        /// - `outcome`: ACP's outcome.
        /// - `by`: Who answers, as others are told: a name of 64 characters at most, without control characters, and none of `agent`, `cancel`, `edit`, `fork`, `policy`, `reset`, `undo`. Default: `client`.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`, `agentUnavailable`, `agentError`, `authRequired`, `limited`, `notResumable`,
        /// `interruptResolved`.
        #[method(name = "respond", param_kind = map)]
        async fn respond(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "interruptId")] interrupt_id: InterruptId,
            outcome: RawJson,
            by: Option<String>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<RespondAnswer>;

        /// Closes the session; the next prompt brings it back.
        ///
        /// # Errors
        /// `busy`.
        #[method(name = "close", param_kind = map)]
        async fn close(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<Empty>;

        /// A new chat under the same id: the chain is empty until the next prompt, the lineage stays.
        ///
        /// # Errors
        /// `busy`.
        #[method(name = "reset", param_kind = map)]
        async fn reset(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ConversationAnswer>;

        /// Deletes the conversation for good; its id is never used again. Transcripts of sessions that came along when
        /// another was adopted stay in any case. Which are still there, and why, is in the answer.
        ///
        /// - `transcripts`: What becomes of the agents' transcripts. Default: `keep`.
        ///
        /// # Errors
        /// `busy`.
        #[method(name = "delete", param_kind = map)]
        async fn delete(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            transcripts: Option<TranscriptsOnDelete>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<DeleteAnswer>;

        /// Makes a conversation of a transcript that was made elsewhere; the next prompt resumes it. One that a
        /// conversation holds gives that conversation, also where it holds it as the past of another. The sessions that
        /// it came from, as far as the files say, join the chain, unless another conversation has them.
        ///
        /// - `upstreamId`: The agent's own id of the session.
        /// - `agent`: Whose it is. Needed where several agents have a transcript of this id.
        /// - `cwd`: The folder in which the conversation runs: absolute, and there. Default: the transcript's own.
        /// - `title`: What people call it. Default: the one that the transcript is listed with.
        ///
        /// # Errors
        /// `notFound`, `ambiguous`, `invalidCwd`, `unsupported`, `transcriptDamaged`.
        #[method(name = "adopt", param_kind = map)]
        async fn adopt(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: UpstreamId,
            agent: Option<AgentName>,
            cwd: Option<String>,
            title: Option<String>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<AdoptAnswer>;

        /// Writes the conversation into one file, which only its owner may read: as JSON what was said, for other
        /// programs, which without a `path` is the answer itself, as far as an answer can hold it; as a bundle what
        /// `conversation/import` reads, the agents' transcripts and all that is known of them, as of the call.
        ///
        /// - `format`: What is written. Default: `json`.
        /// - `path`: The file: absolute, and not there yet. Default: none with `json`, which is then the answer, and
        ///   one in the folder `exports` of the daemon's data with `bundle`.
        /// - `secrets`: Whether values of MCP servers' `env` and `headers` go along. Default: false, and `missingValues`
        ///   names them.
        ///
        /// # Errors
        /// `conflict`, `unsupported`, `transcriptDamaged`.
        #[method(name = "export", param_kind = map)]
        async fn export(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            format: Option<ExportFormat>,
            path: Option<String>,
            secrets: Option<bool>,
        ) -> RpcResult<ExportAnswer>;

        /// Makes the conversation of a bundle go on here: its transcripts are put where the agents of this machine look
        /// for them, and the next prompt resumes it. Nothing is put in place before all of the file is checked. Of its
        /// settings only the model is taken over, for somebody else may have made the file: `leftOut` names the others.
        ///
        /// The bundle says in which folders the conversation and its sessions ran. Give `cwd` or `sameFolders`.
        ///
        /// - `path`: The bundle: an absolute path.
        /// - `cwd`: The folder in which the conversation runs: absolute, and there. Each session runs in it, or below it where
        ///   the same folder below is there. Default: none, and `sameFolders` has to be true.
        /// - `sameFolders`: Whether the folders that the bundle names are used as they are; they must be there. Only for a
        ///   bundle of your own. Default: false.
        /// - `newIds`: Whether the conversation and its sessions get new ids. Default: false, and ids that are held
        ///   here are a conflict.
        /// - `trustSettings`: Whether all of its settings are taken over, and not the model alone. Default: false.
        ///
        /// # Errors
        /// `invalidCwd`, `agentUnavailable`, `unsupported`, `transcriptDamaged`.
        #[method(name = "import", param_kind = map)]
        async fn import(
            &self,
            path: String,
            cwd: Option<String>,
            #[argument(rename = "sameFolders")] same_folders: Option<bool>,
            #[argument(rename = "newIds")] new_ids: Option<bool>,
            #[argument(rename = "trustSettings")] trust_settings: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ImportAnswer>;

        /// Events of one conversation, or of all. With a cursor that is still held: exactly what was missed, then live.
        /// Otherwise a snapshot first (without `conversationId`: one of each conversation that is not idle).
        ///
        /// - `conversationId`: The conversation, by its id, a prefix of it of 6 characters or more, or exactly an
        ///   upstream id that it ever held. Default: all.
        /// - `after`: The cursor of the last event that was seen. Default: begin with a snapshot.
        #[subscription(
            name = "subscribe" => "event",
            unsubscribe = "unsubscribe",
            item = EventEnvelope,
            param_kind = map,
            with_extensions
        )]
        async fn events(
            &self,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
            after: Option<Cursor>,
        ) -> SubscriptionResult;
    }
}
