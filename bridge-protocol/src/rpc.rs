//! The methods of the daemon as jsonrpsee traits. Parameters are objects, by name.
//!
//! With the feature `server` a trait `…Server` is made of each, with `client` a trait `…Client` for every jsonrpsee
//! client. Parameters that are `Option` may be left out; what that means is said at each method.
//! What changes something takes a `requestId`: the same id with the same content joins the running call or gets its
//! result again, for 7 days.
//! Errors carry the codes and `data` of [`crate::error`]: see [`crate::BridgeError`], which converts both ways.
//! With the feature `schema` the OpenRPC document is made of the same lines: see [`crate::openrpc`].

#![cfg_attr(
    any(feature = "client", feature = "server"),
    expect(
        clippy::too_many_arguments,
        reason = "a JSON-RPC method has its parameters by name; here they have places"
    )
)]

#[macro_use]
mod methods;

#[cfg(feature = "server")]
use jsonrpsee::core::SubscriptionResult;
#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::proc_macros::rpc;
#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::types::ErrorObjectOwned;

use crate::agent::AgentList;
use crate::check::CheckAnswer;
use crate::conversation::{
    AdoptAnswer, CancelAnswer, ChainAnswer, ContinueAnswer, ContinueAt, ConversationAnswer, ConversationPage,
    ConversationState, EditAnswer, Empty, ForkAnswer, LineagePage, MoveAnswer, OnBusy, OnLimit,
    RespondAnswer, ResumeAnswer, Settings, TranscriptsOnDelete, UndoAnswer,
};
use crate::daemon::{DaemonStatus, WorkAnswer};
use crate::diagnosis::Diagnosis;
#[cfg(any(feature = "client", feature = "schema"))]
use crate::event::EventEnvelope;
use crate::export::{ExportAnswer, ExportFormat, ImportAnswer};
use crate::history::{CheckpointAnswer, CheckpointPage, HistoryPage};
use crate::id::{AgentName, CheckpointId, ConversationRef, Cursor, InterruptId, TurnId, UpstreamId};
use crate::keep::{KeepAnswer, RestoreAnswer};
use crate::link::Fidelity;
#[cfg(feature = "schema")]
use crate::openrpc::Methods;
use crate::openrpc::OpenRpcDocument;
use crate::raw::{PromptContent, RawJson};
use crate::transcript::{TranscriptPage, TreeMoveAnswer, TreeMoveList};
use crate::turn::TurnResult;

#[cfg(feature = "schema")]
pub(crate) use methods::describe;
#[cfg(feature = "server")]
pub use methods::module;

/// What a method answers.
#[cfg(any(feature = "client", feature = "server"))]
pub type RpcResult<T> = Result<T, ErrorObjectOwned>;

methods! {
    describe_daemon:
    /// Methods about the daemon itself.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "daemon", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "daemon", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "daemon", namespace_separator = "/")
    )]
    pub trait DaemonRpc {
        /// How the daemon is.
        #[method(name = "status", param_kind = map)]
        async fn status(&self) -> RpcResult<DaemonStatus>;

        /// How far calls have come that take long because of the files that they read or write, those that began first first.
        #[method(name = "work", param_kind = map)]
        async fn work(&self) -> RpcResult<WorkAnswer>;

        /// Looks at what the daemon stands on: store, disks, agents, their transcripts and how long these are kept, processes that
        /// were left behind. Nothing is changed; agents that do not run are started for it and asked who they are, unless `agents`
        /// (default true) is false. `path` is the caller's own `PATH`: agents that are only found there are told.
        #[method(name = "diagnose", param_kind = map)]
        async fn diagnose(&self, agents: Option<bool>, path: Option<String>) -> RpcResult<Diagnosis>;

        /// Stops the daemon. Running turns get `graceMs` milliseconds to end (default: the configured cancel grace).
        #[method(name = "shutdown", param_kind = map)]
        async fn shutdown(&self, #[argument(rename = "graceMs")] grace_ms: Option<u64>) -> RpcResult<Empty>;
    }
}

methods! {
    describe_agent:
    /// Methods about the agents.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "agent", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "agent", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "agent", namespace_separator = "/")
    )]
    pub trait AgentRpc {
        /// The agents that are configured, and `loopback`.
        #[method(name = "list", param_kind = map)]
        async fn list_agents(&self) -> RpcResult<AgentList>;

        /// Signs in to an agent by one of its own methods.
        #[method(name = "authenticate", param_kind = map)]
        async fn authenticate(
            &self,
            agent: AgentName,
            #[argument(rename = "methodId")] method_id: String,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<Empty>;

        /// Signs out of an agent. With `reset` (default false) the chains of its conversations are cleared too.
        #[method(name = "logout", param_kind = map)]
        async fn logout(
            &self,
            agent: AgentName,
            reset: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<Empty>;
    }
}

methods! {
    describe_conversation:
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
        /// Makes a conversation. `agent` defaults to the configured one. The upstream session is opened at the first prompt or
        /// resume, or at once with `open` (default false).
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

        /// Conversations, newest first. `limit` is 50 unless given, 500 at most; `query` is looked for in title and folder.
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

        /// Changes title or settings; settings take hold of an open session at once. With `expectedRevision` only when nobody
        /// changed it since.
        #[method(name = "update", param_kind = map)]
        async fn update(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            title: Option<String>,
            settings: Option<Settings>,
            #[argument(rename = "expectedRevision")] expected_revision: Option<u64>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ConversationAnswer>;

        /// Sends a prompt and answers when its turn has ended. `onBusy` defaults to fail, `onLimit` to fail, `minFidelity` to
        /// text.
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

        /// Has the conversation go on by itself with what a limit, a crash or a stop cut short: `at` the reset of its limit, or at
        /// a time. Where the agent's transcript does not hold the prompt that was cut short, that goes out again; where it does,
        /// `text` does, or a short word of ours. Without such a prompt `text` is what goes out. With `cancel` (default false)
        /// nothing goes out any more, and `at` says nothing.
        #[method(name = "continue", param_kind = map)]
        async fn continue_at(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            at: Option<ContinueAt>,
            text: Option<PromptContent>,
            cancel: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ContinueAnswer>;

        /// Cancels the running turn, or the one named, and answers when it has ended. With `queued` (default false) also those
        /// that wait in line.
        #[method(name = "cancel", param_kind = map)]
        async fn cancel(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "turnId")] turn_id: Option<TurnId>,
            queued: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<CancelAnswer>;

        /// Opens the session without a prompt. `minFidelity` defaults to text.
        #[method(name = "resume", param_kind = map)]
        async fn resume(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "minFidelity")] min_fidelity: Option<Fidelity>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ResumeAnswer>;

        /// Branches off: a new conversation, or with `inPlace` (default false) a new head of this one. `at` defaults to the head.
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

        /// Replaces the prompt of the turn at a place, finished or not: what stands before that turn goes on with the new prompt.
        /// Answered when the new turn has ended. `minFidelity` defaults to text.
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
        #[method(name = "undo", param_kind = map)]
        async fn undo(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<UndoAnswer>;

        /// Has the conversation run in another folder: its transcripts go to where the agent looks for them there, with the files
        /// beside them, and name the new folder; nothing that differs is replaced. Refused as busy while a turn runs or somebody
        /// else writes. With `dryRun` (default false) nothing is changed and the plan is told.
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

        /// Everything that ever happened to the chain, oldest first. `limit` is 100 unless given, 1,000 at most.
        #[method(name = "lineage", param_kind = map)]
        async fn lineage(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            cursor: Option<Cursor>,
            limit: Option<u32>,
        ) -> RpcResult<LineagePage>;

        /// The places after the turns of the current history, newest first; those before `before` when that is given. `limit`
        /// is 50 unless given, 500 at most.
        #[method(name = "checkpoints", param_kind = map)]
        async fn checkpoints(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            before: Option<CheckpointId>,
            limit: Option<u32>,
        ) -> RpcResult<CheckpointPage>;

        /// The messages of the current history, over all sessions that hold it, oldest first: from the beginning, from
        /// `cursor`, or the `last` so many. `limit` is 100 unless given, 1,000 at most, as `last` is. With both, `last` may be any
        /// number, and the page is the beginning of those: `nextCursor` leads on to the end.
        #[method(name = "history", param_kind = map)]
        async fn history(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            cursor: Option<Cursor>,
            limit: Option<u32>,
            last: Option<u32>,
        ) -> RpcResult<HistoryPage>;

        /// Answers a question of the agent with ACP's outcome. The first answer wins.
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
        #[method(name = "close", param_kind = map)]
        async fn close(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<Empty>;

        /// A new chat under the same id: the chain is empty until the next prompt, the lineage stays.
        #[method(name = "reset", param_kind = map)]
        async fn reset(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ConversationAnswer>;

        /// Deletes the conversation for good; its id is never used again. `transcripts` defaults to keep. Those of sessions that came
        /// along when another was adopted stay in any case.
        #[method(name = "delete", param_kind = map)]
        async fn delete(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            transcripts: Option<TranscriptsOnDelete>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<Empty>;

        /// Makes a conversation of a transcript that was made elsewhere; the next prompt resumes it. One that a conversation holds
        /// gives that conversation, also where it holds it as the past of another. The sessions that it came from, as far as the
        /// files say, join the chain, unless another conversation has them. `agent` is needed where several have a transcript of this
        /// id; `cwd` is the transcript's own unless given, `title` the one that it is listed with.
        #[method(name = "adopt", param_kind = map)]
        async fn adopt(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: UpstreamId,
            agent: Option<AgentName>,
            cwd: Option<String>,
            title: Option<String>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<AdoptAnswer>;

        /// Writes the conversation into one file. `format` is `json` unless given: what was said, for other programs; without
        /// `path` that is the answer itself, as far as an answer can hold it. A `bundle` is what `conversation/import` reads: the
        /// agents' transcripts and all that is known of them, as of the call; without `path` it goes into the folder `exports`
        /// of the daemon's data. `path` is absolute and names a file that is not there yet. Only its owner may read the file.
        #[method(name = "export", param_kind = map)]
        async fn export(
            &self,
            #[argument(rename = "conversationId")] conversation_id: ConversationRef,
            format: Option<ExportFormat>,
            path: Option<String>,
        ) -> RpcResult<ExportAnswer>;

        /// Makes the conversation of a bundle go on here: its transcripts are put where the agents of this machine look for
        /// them, in `cwd` (the folder that it had, unless given), and the next prompt resumes it. Nothing is put in place
        /// before all of the file is checked. Ids that are held here are a conflict unless `newIds` (default false) gives the
        /// conversation and its sessions new ones. Of its settings only the model is taken over, for somebody else may have
        /// made the file: `leftOut` names the others. With `trustSettings` (default false) all are.
        #[method(name = "import", param_kind = map)]
        async fn import(
            &self,
            path: String,
            cwd: Option<String>,
            #[argument(rename = "newIds")] new_ids: Option<bool>,
            #[argument(rename = "trustSettings")] trust_settings: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<ImportAnswer>;

        /// Events of one conversation, or of all. With `after` a cursor that is still held: exactly what was missed, then
        /// live. Otherwise a snapshot first (without `conversationId`: one of each conversation that is not idle).
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

methods! {
    describe_transcript:
    /// Methods about the agents' transcripts.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "transcript", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "transcript", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "transcript", namespace_separator = "/")
    )]
    pub trait TranscriptRpc {
        /// The transcripts that the agents keep on this machine, whoever made them, newest first; of Claude Code, Codex and
        /// `loopback`, or of one `agent`. `cwd` is the folder that the agent worked in, by whatever path leads there now; `query`
        /// is looked for in title, folder, path and id. `limit` is 50 unless given, 500 at most. A first page shows the files as they are now, the
        /// pages behind its cursor what was seen then.
        #[method(name = "list", param_kind = map)]
        async fn list_transcripts(
            &self,
            agent: Option<AgentName>,
            cwd: Option<String>,
            query: Option<String>,
            cursor: Option<Cursor>,
            limit: Option<u32>,
        ) -> RpcResult<TranscriptPage>;

        /// What is wrong with a transcript, and what that does to a resume. Either `upstreamId` names the transcript, with `agent`
        /// where several have one, or `conversationId` alone the conversation whose head it is. The transcript itself is never
        /// changed. Of one that is gone what is kept is checked, with nothing put back; for a repair it is put back.
        ///
        /// With `repair` a copy under a new id is made that is not damaged: lines that are no records are left out, records whose
        /// parents are missing are joined to what stands before them, and calls of tools without results get those that the agent
        /// itself fills in. With `maxToolOutput`, of Claude's transcripts, texts of results are cut in it that are longer, in bytes.
        /// It is told as `repaired`, and as `fidelity` how much it has of what the session had; where nothing was found that it would
        /// not have, and nothing is to be cut, there is none. A conversation that goes on with the session goes on with the copy: its
        /// session is closed, and the copy is appended to its chain as `rebuilt`; while a turn runs or a question waits that is `busy`.
        /// A session in a conversation's past, which none goes on with, is refused with `conflict`. The copy of a session that no
        /// conversation has lies beside it, and is no conversation's either until it is adopted.
        #[method(name = "check", param_kind = map)]
        async fn check(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: Option<UpstreamId>,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
            agent: Option<AgentName>,
            repair: Option<bool>,
            #[argument(rename = "maxToolOutput")] max_tool_output: Option<u64>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<CheckAnswer>;

        /// Copies the transcripts of a conversation's sessions, or that of one session, with what lies beside them, into the
        /// daemon's data folder, as far as they are not copied yet, and tells what each copy takes. Without a name nothing is
        /// copied, and the answer tells what all copies are together. Also where `[keep]` has turned it off.
        #[method(name = "keep", param_kind = map)]
        async fn keep(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: Option<UpstreamId>,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
            agent: Option<AgentName>,
        ) -> RpcResult<KeepAnswer>;

        /// Puts what is kept of a conversation's sessions, or of one session, back to where its agent looks for it; what is there
        /// already stays as it is. A transcript that is there and does not hold what is kept is a conflict.
        #[method(name = "restore", param_kind = map)]
        async fn restore(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: Option<UpstreamId>,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
            agent: Option<AgentName>,
        ) -> RpcResult<RestoreAnswer>;

        /// Has everything that ran in a folder or below it run in another one, which is there already: a project that was renamed.
        /// Takes along conversations and the transcripts that are nobody's, with the files beside them; nothing that differs is
        /// replaced. All of it goes or nothing does, also over a kill of the daemon. With `settings` (default false) the agents' own
        /// files that name the folder name the other then. With `dryRun` (default false) nothing is changed and the plan is told.
        #[method(name = "move", param_kind = map)]
        async fn move_tree(
            &self,
            from: String,
            to: String,
            settings: Option<bool>,
            #[argument(rename = "dryRun")] dry_run: Option<bool>,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<TreeMoveAnswer>;

        /// Takes such a move back, for 30 days. What was said since comes along.
        #[method(name = "undo", param_kind = map)]
        async fn undo_tree(
            &self,
            #[argument(rename = "undoId")] undo_id: String,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<TreeMoveAnswer>;

        /// The moves of folders that were done and not taken back, as long as they can be. Whether one can is only said when that is
        /// tried: its files may have gone further since. That of a single conversation is taken back by `conversation/undo`.
        #[method(name = "moves", param_kind = map)]
        async fn moves(&self) -> RpcResult<TreeMoveList>;
    }
}

methods! {
    describe_checkpoint:
    /// Methods about checkpoints.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "checkpoint", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "checkpoint", namespace_separator = "/")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "checkpoint", namespace_separator = "/")
    )]
    pub trait CheckpointRpc {
        /// A checkpoint and the messages of its turn. It is found by its id alone; with `conversationId` only when it is in
        /// that conversation's lineage.
        #[method(name = "get", param_kind = map)]
        async fn get_checkpoint(
            &self,
            #[argument(rename = "checkpointId")] checkpoint_id: CheckpointId,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
        ) -> RpcResult<CheckpointAnswer>;
    }
}

methods! {
    describe_rpc:
    /// Methods about the methods.
    #[cfg_attr(
        all(feature = "client", feature = "server"),
        rpc(client, server, namespace = "rpc", namespace_separator = ".")
    )]
    #[cfg_attr(
        all(feature = "client", not(feature = "server")),
        rpc(client, namespace = "rpc", namespace_separator = ".")
    )]
    #[cfg_attr(
        all(feature = "server", not(feature = "client")),
        rpc(server, namespace = "rpc", namespace_separator = ".")
    )]
    pub trait DiscoveryRpc {
        /// This document: what the daemon can be asked, in the form of OpenRPC.
        #[method(name = "discover", param_kind = map)]
        async fn discover(&self) -> RpcResult<OpenRpcDocument>;
    }
}
