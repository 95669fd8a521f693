//! `transcript/…`: about the agents' transcripts.

#[cfg(any(feature = "client", feature = "server"))]
use jsonrpsee::proc_macros::rpc;

#[cfg(any(feature = "client", feature = "server"))]
#[cfg(feature = "server")]
use super::RpcResult;
use crate::check::CheckAnswer;
use crate::id::{AgentName, ConversationRef, Cursor, UpstreamId};
use crate::keep::{ForgetAnswer, KeepAnswer, RestoreAnswer};
#[cfg(feature = "schema")]
use crate::openrpc::Methods;
use crate::transcript::{TranscriptPage, TreeMoveAnswer, TreeMoveList};

methods! {
    describe:
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
        /// The transcripts that the agents keep on this machine, whoever made them, newest first; of Claude Code, Codex
        /// and `loopback`. A first page shows the files as they are now, the pages behind its cursor what was seen
        /// then.
        ///
        /// - `agent`: Only those of this agent. Default: of all whose transcripts can be listed.
        /// - `cwd`: Only those of this absolute folder. Default: of any.
        /// - `query`: Only those whose title, folder, path or id contains this. Default: all.
        /// - `cursor`: The `nextCursor` of the page before. Default: the first page.
        /// - `limit`: How many at most, up to 500. Default: 50.
        ///
        /// # Errors
        /// `notFound`, `invalidCwd`, `unsupported`, `storeFailed`.
        #[method(name = "list", param_kind = map)]
        async fn list_transcripts(
            &self,
            agent: Option<AgentName>,
            cwd: Option<String>,
            query: Option<String>,
            cursor: Option<Cursor>,
            limit: Option<u32>,
        ) -> RpcResult<TranscriptPage>;

        /// What is wrong with a transcript, and what that does to a resume. The transcript itself is never changed. Of
        /// one that is gone what is kept is checked, with nothing put back; for a repair it is put back.
        ///
        /// With `repair` a copy under a new id is made that is not damaged: lines that are no records are left out,
        /// records whose parents are missing are joined to what stands before them, and calls of tools without results
        /// get those that the agent itself fills in. It is told as `repaired`, and as `fidelity` how much it has of
        /// what the session had; where nothing was found that it would not have, and nothing is to be cut, there is
        /// none. A conversation that goes on with the session goes on with the copy: its session is closed, and the
        /// copy is appended to its chain as `rebuilt`; while a turn runs or a question waits that is `busy`. A session
        /// in a conversation's past, which none goes on with, is refused with `conflict`. The copy of a session that no
        /// conversation has lies beside it, and is no conversation's either until it is adopted.
        ///
        /// - `upstreamId`: The session, by the agent's own id. Either this or `conversationId`.
        /// - `conversationId`: The conversation whose head is checked. Either this or `upstreamId`.
        /// - `agent`: Whose session it is, with `upstreamId`. Needed where several agents have one of this id.
        /// - `repair`: Whether a copy is made that is not damaged. Default: false.
        /// - `maxToolOutput`: How long a text of a tool's result may be in the copy, in bytes; of Claude's transcripts.
        ///   Default: any length.
        ///
        /// # Errors
        /// `busy`, `unsupported`, `transcriptDamaged`.
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
        ///
        /// - `upstreamId`: The session, by the agent's own id. Default: those of `conversationId`.
        /// - `conversationId`: The conversation. Default: the session that `upstreamId` names; with neither, nothing is
        ///   copied.
        /// - `agent`: Whose session it is, with `upstreamId`. Needed where several agents have one of this id.
        ///
        /// # Errors
        /// `unsupported`, `transcriptDamaged`.
        #[method(name = "keep", param_kind = map)]
        async fn keep(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: Option<UpstreamId>,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
            agent: Option<AgentName>,
        ) -> RpcResult<KeepAnswer>;

        /// Puts what is kept of a conversation's sessions, or of one session, back to where its agent looks for it; what is there
        /// already stays as it is. A transcript that is there and does not hold what is kept is a conflict.
        ///
        /// - `upstreamId`: The session, by the agent's own id. Either this or `conversationId`.
        /// - `conversationId`: The conversation. Either this or `upstreamId`.
        /// - `agent`: Whose session it is, with `upstreamId`. Needed where several agents have one of this id.
        ///
        /// # Errors
        /// `conflict`, `unsupported`, `transcriptDamaged`.
        #[method(name = "restore", param_kind = map)]
        async fn restore(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: Option<UpstreamId>,
            #[argument(rename = "conversationId")] conversation_id: Option<ConversationRef>,
            agent: Option<AgentName>,
        ) -> RpcResult<RestoreAnswer>;

        /// Deletes the copies that are kept of a session which no conversation has: what `transcript/keep` names as
        /// `unclaimed`. The agent's own transcript stays. Those of a session that a conversation has go with it, by
        /// `conversation/delete` with `transcripts`; here that is a conflict.
        ///
        /// - `upstreamId`: The session, by the agent's own id.
        /// - `agent`: Whose session it is. Needed where copies of several agents' sessions of this id are kept.
        ///
        /// # Errors
        /// `notFound`, `conflict`, `transcriptDamaged`.
        #[method(name = "forget", param_kind = map)]
        async fn forget(
            &self,
            #[argument(rename = "upstreamId")] upstream_id: UpstreamId,
            agent: Option<AgentName>,
        ) -> RpcResult<ForgetAnswer>;

        /// Has everything that ran in a folder or below it run in another one, which is there already: a project that
        /// was renamed. Takes along conversations and the transcripts that are nobody's, with the files beside them;
        /// nothing that differs is replaced. All of it goes or nothing does, also over a kill of the daemon.
        ///
        /// - `from`: The folder as it was called: absolute.
        /// - `to`: The folder as it is called now: absolute, and there.
        /// - `settings`: Whether the agents' own files that name the folder are changed too. Default: false.
        /// - `dryRun`: Whether nothing is changed and only the plan is told. Default: false.
        ///
        /// # Errors
        /// `busy`, `invalidCwd`.
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
        ///
        /// - `undoId`: The move, as its answer and `transcript/moves` name it.
        ///
        /// # Errors
        /// `notFound`, `busy`, `invalidCwd`.
        #[method(name = "undo", param_kind = map)]
        async fn undo_tree(
            &self,
            #[argument(rename = "undoId")] undo_id: String,
            #[argument(rename = "requestId")] request_id: Option<String>,
        ) -> RpcResult<TreeMoveAnswer>;

        /// The moves of folders that were done and not taken back, as long as they can be. Whether one can is only said when that is
        /// tried: its files may have gone further since. That of a single conversation is taken back by `conversation/undo`.
        ///
        /// # Errors
        /// `storeFailed`.
        #[method(name = "moves", param_kind = map)]
        async fn moves(&self) -> RpcResult<TreeMoveList>;
    }
}
