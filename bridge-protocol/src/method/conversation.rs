//! `conversation/…`: conversations.

use super::{method, methods};
use crate::conversation::*;
use crate::event::EventEnvelope;
use crate::export::*;
use crate::history::*;
use crate::id::*;
use crate::link::Fidelity;
use crate::raw::*;
use crate::turn::TurnResult;

methods! {
    trait HandleConversations;

    /// Creates a conversation. Its upstream session is opened at the first prompt or resume.
    "conversation/new" => NewConversation(once) -> ConversationAnswer,
    [NotFound, Busy, InvalidCwd, AgentUnavailable, AgentError, AuthRequired, Limited, NotResumable] {
        /// The agent to talk to. Default: the configured default agent.
        agent: Option<AgentName>,
        /// The folder to run in: the absolute path of an existing folder.
        cwd: String,
        /// The title. Default: none.
        title: String = default,
        /// The app that the conversation belongs to, in the app's own words. Default: none.
        namespace: String = default,
        /// Whether to open the upstream session at once. If that fails, the conversation exists all the same: the error's
        /// `conversationId` names it, and it can be prompted. Default: false.
        open: bool = default,
        /// How to set up its sessions. Default: the agent's own settings.
        settings: Settings = default,
    }

    /// Lists conversations, newest first.
    "conversation/list" => ListConversations() -> ConversationPage,
    [InvalidCwd, StoreFailed] {
        /// Only those of this app. Default: all.
        namespace: Option<String>,
        /// Only those of this agent. Default: all.
        agent: Option<AgentName>,
        /// Only those that run in this absolute folder, whichever path leads to it. Default: any folder.
        cwd: Option<String>,
        /// Only those in this state. Default: any state.
        state: Option<ConversationState>,
        /// Only those with an interrupted turn or a held prompt (true), or only the others (false). Default: both.
        cut_short: Option<bool>,
        /// Words, each of which must be in the title, the folder or the agent, in any case, or begin the id. Default: all.
        query: Option<String>,
        /// The `nextCursor` of the previous page. Default: the first page.
        cursor: Option<Cursor>,
        /// The most entries to return, up to 500. Default: 50.
        limit: Option<u32>,
    }

    /// Returns one conversation.
    "conversation/get" => GetConversation(conversation) -> ConversationAnswer, [] {}

    /// Finds the conversation that a user means by what they typed.
    "conversation/resolve" => ResolveConversation() -> ConversationAnswer,
    [NotFound, Ambiguous, StoreFailed] {
        /// A conversation's id, an upstream id that it ever had, or a prefix of either of 6 characters or more; or a part of
        /// its title, in any case, if no other title contains it; or `.`: the conversation of `cwd` that was last found
        /// there by this method, else the newest of that folder. If several match, the error's `candidates` have the `id` and
        /// `title` of each; if none does, its `transcripts` have those of the transcripts whose ids begin so.
        name: String,
        /// The absolute folder that the user is in. If the conversation runs there, `.` means this conversation from now
        /// on. Needed for `.`.
        cwd: Option<String>,
    }

    /// Returns the conversations that are related by forks: the first ancestor, and everything that branched off it.
    "conversation/tree" => TreeOf(conversation) -> TreeAnswer, [] {}

    /// Changes the title or the settings. Model, mode and options apply to an open session at once. An agent takes a system
    /// prompt, MCP servers and folders when it opens a session: the session is reopened before the next turn, unless the agent
    /// cannot reopen sessions, a background command runs, or other conversations use the same Codex process.
    "conversation/update" => Update(conversation, once) -> ConversationAnswer,
    [Busy, AgentUnavailable, AgentError, AuthRequired, Limited, RevisionMismatch] {
        /// The new title. Default: unchanged.
        title: Option<String>,
        /// The settings that change; the others stay. Default: none changes.
        settings: Settings = default,
        /// The `revision` that the caller has seen; any other is refused as `revisionMismatch`. Default: any revision.
        expected_revision: Option<u64>,
    }

    /// Sends a prompt, and answers when its turn has ended.
    "conversation/prompt" => Prompt(conversation, once) -> TurnResult,
    [Busy, InvalidCwd, AgentUnavailable, AgentError, AuthRequired, Limited, NotResumable] {
        /// A text, or ACP's content blocks.
        prompt: PromptContent,
        /// What to do while another turn runs. Default: `fail`.
        on_busy: OnBusy = default,
        /// What to do at a usage limit. Default: `fail`.
        on_limit: OnLimit = default,
        /// The least that the session must have of the history; with less the prompt is refused as `notResumable`.
        /// Default: `text`.
        min_fidelity: Fidelity = default,
    }

    /// Schedules the conversation to continue what a limit, a crash or a stop interrupted. If the agent's transcript does
    /// not contain the interrupted prompt, that prompt is sent again. If it does, `text` is sent, or a short text of the
    /// daemon's. If no prompt was interrupted, `text` is sent.
    "conversation/continue" => Continue(conversation, once) -> ContinueAnswer,
    [Busy] {
        /// When: `reset` (the end of the usage limit), `now`, or a time. Needed unless `cancel` is true.
        at: Option<ContinueAt>,
        /// What to send if the transcript contains the interrupted prompt, or if none was interrupted. Default: the text
        /// of the scheduled continuation, otherwise a short text of the daemon's.
        text: Option<PromptContent>,
        /// Whether to cancel the scheduled continuation. Default: false.
        cancel: bool = default,
    }

    /// Cancels a turn, and answers when it has ended.
    "conversation/cancel" => Cancel(conversation, once) -> CancelAnswer, [] {
        /// The turn to cancel, running or queued. Default: the running one.
        turn_id: Option<TurnId>,
        /// Whether to cancel the queued turns too. Default: false.
        queued: bool = default,
    }

    /// Opens the conversation's session without sending a prompt.
    "conversation/resume" => Resume(conversation, once) -> ResumeAnswer,
    [Busy, InvalidCwd, AgentUnavailable, AgentError, AuthRequired, Limited, NotResumable] {
        /// The least that the session must have of the history; with less the call is refused as `notResumable`.
        /// Default: `text`.
        min_fidelity: Fidelity = default,
    }

    /// Forks a conversation: into a new one, or in place, as a new head of the same one.
    "conversation/fork" => Fork(conversation, once) -> ForkAnswer,
    [Busy, InvalidCwd, CheckpointNotFound, AgentUnavailable, AgentError, AuthRequired, Limited, NotResumable, Unsupported,
     TranscriptDamaged] {
        /// Whether the branch becomes the head of this conversation. Default: false, a new conversation.
        in_place: bool = default,
        /// The last checkpoint or message that the branch contains, by its id. Default: the head. A message inside a turn is
        /// rounded: back to the last message before which every tool call has its result; for Codex forward to the end of
        /// its turn. `link.fromCheckpointId` says where the branch begins.
        at: Option<String>,
        /// The folder for the branch: the absolute path of an existing folder. Default: this conversation's.
        cwd: Option<String>,
        /// The branch's title. Default: this conversation's.
        title: Option<String>,
        /// The least that the branch must have of the history. Default: `text`.
        min_fidelity: Fidelity = default,
    }

    /// Replaces the prompt of a turn, finished or not: the history before that turn continues with the new prompt. Answers
    /// when the new turn has ended.
    "conversation/edit" => Edit(conversation, once) -> EditAnswer,
    [Busy, InvalidCwd, CheckpointNotFound, AgentUnavailable, AgentError, AuthRequired, Limited, NotResumable, Unsupported,
     TranscriptDamaged] {
        /// The checkpoint of the turn whose prompt is replaced, or the message of that prompt, by its id.
        at: String,
        /// The new prompt: a text, or ACP's content blocks.
        prompt: PromptContent,
        /// The least that the new turn must have of the history before it. Default: `text`.
        min_fidelity: Fidelity = default,
    }

    /// Undoes the last edit, fork in place, move or reset, then the one before it.
    "conversation/undo" => Undo(conversation, once) -> UndoAnswer,
    [Busy, InvalidCwd, AgentUnavailable, AgentError, AuthRequired, Limited, NotResumable, Unsupported] {}

    /// Moves a conversation to another folder: its transcripts and side files are moved to where the agent looks for them
    /// there, and name the new folder. Files that differ are never replaced. Refused as busy while a turn runs or another
    /// program writes.
    "conversation/move" => Move(conversation, once) -> MoveAnswer,
    [Busy, InvalidCwd, AgentUnavailable, AgentError, Unsupported, TranscriptDamaged] {
        /// The new folder: the absolute path of an existing folder.
        cwd: String,
        /// Whether to return the plan and change nothing. Default: false.
        dry_run: bool = default,
    }

    /// Lists the upstream sessions that can be resumed, oldest first; the last is the head.
    "conversation/chain" => Chain(conversation) -> ChainAnswer, [] {}

    /// Lists everything that ever happened to the chain, oldest first.
    "conversation/lineage" => Lineage(conversation) -> LineagePage, [] {
        /// The `nextCursor` of the previous page. Default: the first page.
        cursor: Option<Cursor>,
        /// The most entries to return, up to 1,000. Default: 100.
        limit: Option<u32>,
    }

    /// Lists the checkpoints of the current history, newest first. Each stands after a turn.
    "conversation/checkpoints" => Checkpoints(conversation) -> CheckpointPage,
    [CheckpointNotFound, Unsupported, TranscriptDamaged] {
        /// Only those before this one: the last of the previous page. Default: from the newest.
        before: Option<CheckpointId>,
        /// The most entries to return, up to 500. Default: 50.
        limit: Option<u32>,
    }

    /// Returns the messages of the current history, over all of its sessions, oldest first: from the beginning, from
    /// `cursor`, or the `last` ones. With `last` and `limit` the page is the beginning of those, and `nextCursor` leads to
    /// the rest.
    "conversation/history" => History(conversation) -> HistoryPage,
    [Unsupported, TranscriptDamaged] {
        /// The `nextCursor` or `previousCursor` of a page. Not with `last`. Default: the beginning. After edits, its position
        /// may be missing, and it is refused: read again from the end, with `last`.
        cursor: Option<Cursor>,
        /// The most messages to return, up to 1,000. Default: 100.
        limit: Option<u32>,
        /// Only the last N messages, up to 1,000; any number with `limit`. Default: all.
        last: Option<u32>,
        /// Whether to return the messages themselves or as ACP's updates; `limit` and `last` count messages either way.
        /// Default: `messages`.
        r#as: HistoryForm = default,
    }

    /// Answers a question of the agent. The first answer wins.
    "conversation/respond" => Respond(conversation, once) -> RespondAnswer,
    [Busy, InvalidCwd, AgentUnavailable, AgentError, AuthRequired, Limited, NotResumable, InterruptResolved] {
        /// The question: the `id` of an interrupt.
        interrupt_id: InterruptId,
        /// ACP's outcome.
        outcome: RawJson,
        /// Who answers, as other clients see it: a name of 1 to 64 characters, without control characters, and not
        /// `agent`, `cancel`, `edit`, `fork`, `policy`, `reset` or `undo`. Default: `client`.
        by: Option<String>,
    }

    /// Closes the session. The next prompt reopens it.
    "conversation/close" => Close(conversation, once) -> Empty, [Busy] {}

    /// Starts an empty session in the same conversation: the chain is empty until the next prompt, the lineage stays.
    "conversation/reset" => Reset(conversation, once) -> ConversationAnswer, [Busy] {}

    /// Deletes a conversation for good; its id is never used again. The answer lists the transcripts that remain, and why.
    /// Transcripts of sessions that were adopted along with another always remain.
    "conversation/delete" => Delete(conversation, once) -> DeleteAnswer, [Busy] {
        /// Whether to keep or delete the agents' transcripts. Default: `keep`.
        transcripts: TranscriptsOnDelete = default,
    }

    /// Makes a conversation of a transcript that another program made; the next prompt resumes it. If a conversation
    /// already has the session, returns that conversation. The sessions that it came from, as far as the files say, join the
    /// chain unless another conversation has them.
    "conversation/adopt" => Adopt(once) -> AdoptAnswer,
    [NotFound, Ambiguous, Busy, InvalidCwd, Unsupported, TranscriptDamaged] {
        /// The session, by the agent's own id, or the first 6 or more characters of it if no other session's id starts so.
        upstream_id: UpstreamId,
        /// The agent of the session. Needed where several agents have a transcript with this id. Default: the agent that
        /// has one.
        agent: Option<AgentName>,
        /// The folder to run in: the absolute path of an existing folder. Default: the transcript's own.
        cwd: Option<String>,
        /// The title. Default: that of a deleted conversation that had the session, else the transcript's own.
        title: Option<String>,
    }

    /// Writes a conversation to one file that only its owner may read. As `json`: the messages, for other programs; without
    /// a `path` the answer itself contains them, as far as an answer can. As `bundle`: what `conversation/import` reads,
    /// with the agents' transcripts, as of the call. If the daemon is killed before it answers, the file may be there already: a
    /// repetition with the same `requestId` and `path` is then refused with `conflict`.
    "conversation/export" => Export(conversation, once) -> ExportAnswer,
    [Busy, Unsupported, TranscriptDamaged] {
        /// What to write. Default: `json`.
        format: ExportFormat = default,
        /// The file to create: an absolute path of a file that does not exist. Default: with `json` none, the answer
        /// contains the messages; with `bundle` a file in the folder `exports` of the daemon's data.
        path: Option<String>,
        /// Whether to include the values of MCP servers' `env` and `headers`. Default: false; `missingValues` names them.
        secrets: bool = default,
    }

    /// Imports the conversation of a bundle: its transcripts are put where the agents of this machine look for them, and the
    /// next prompt resumes it. The whole file is checked before anything is put in place. Of its settings only the model is
    /// taken, since another person may have made the file; `leftOut` names the others.
    ///
    /// The bundle names the folders in which the conversation and its sessions ran: give `cwd` or `sameFolders`.
    "conversation/import" => Import(once) -> ImportAnswer,
    [Busy, InvalidCwd, AgentUnavailable, Unsupported, TranscriptDamaged] {
        /// The bundle: an absolute path.
        path: String,
        /// The folder to run in: the absolute path of an existing folder. A session of a folder below the bundle's own runs
        /// in the same folder below this one, if that exists. Default: none, `sameFolders` has to be true.
        cwd: Option<String>,
        /// Whether to use the folders that the bundle names; they have to exist. Only for a bundle of your own. Default:
        /// false.
        same_folders: bool = default,
        /// Whether to give the conversation and its sessions new ids. Default: false, and ids that exist here are a
        /// conflict.
        new_ids: bool = default,
        /// Whether to take all of its settings. Default: false, only the model.
        trust_settings: bool = default,
    }
}

method! {
    /// Subscribes to the events of one conversation, or of all. With a cursor that the daemon still holds: exactly what was
    /// missed, then live. Otherwise a snapshot first (without `conversationId`: one of each conversation that is not idle, and
    /// later one of each new conversation).
    "conversation/subscribe" => Subscribe() -> EventEnvelope,
    [NotFound, Ambiguous, StoreFailed] {
        /// The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more.
        /// Default: all.
        conversation_id: Option<ConversationRef>,
        /// The cursor of the last event that was received. Default: start with a snapshot.
        after: Option<Cursor>,
    }
}
