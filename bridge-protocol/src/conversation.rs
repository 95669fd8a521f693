//! Conversations: the objects that everything else refers to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::check::Finding;
use crate::declare::{objects, words};
use crate::export::MissingSession;
use crate::id::{AgentName, CheckpointId, ConversationId, Cursor, TurnId, UpstreamId};
use crate::link::{Fidelity, LineageEntry, LineageReason, Link, Resumed};
use crate::raw::{PromptContent, RawJson};
use crate::turn::{FailureKind, Interrupt, TurnResult};

words! {
    /// What a conversation is doing.
    ConversationState {
        /// Nothing; it can take a prompt.
        Idle,
        /// A turn is running.
        Prompting,
        /// A turn waits for an answer of the user.
        Awaiting,
        /// A turn was cancelled and has not ended yet.
        Cancelling,
        /// The last prompt hit a usage limit.
        Limited,
        /// The daemon or the agent ended during a turn, or the question of such a turn is still open, or a queued
        /// prompt is held.
        Interrupted,
        /// The conversation is being moved to another folder.
        Moving,
        /// The conversation could not continue. The next prompt tries again.
        Failed,
    }
}

objects! {
    /// How to set up the sessions of a conversation. Applied again after each resume and fork.
    #[derive(Default)]
    Settings {
        /// The model, by the agent's name for it.
        model: Option<String> = default,
        /// The session mode, by the agent's id for it.
        mode: Option<String> = default,
        /// Configuration options: id to value. An update with `null` removes an option, so that it is not applied again.
        config: Option<BTreeMap<String, RawJson>> = default,
        /// Text to add to the agent's own system prompt.
        system_prompt: Option<String> = default,
        /// MCP servers, in ACP's shape.
        mcp_servers: Option<Vec<RawJson>> = default,
        /// More folders that the agent may use, as absolute paths.
        additional_directories: Option<Vec<String>> = default,
    }

    /// Where a conversation branched off another one.
    Parent {
        /// The conversation that it branched off.
        conversation_id: ConversationId,
        /// The checkpoint at which it branched off; absent if the parent had no prompts yet.
        checkpoint_id: Option<CheckpointId> = default,
    }

    /// The usage limit that a conversation hit.
    Limit {
        /// The kind of failure.
        kind: FailureKind,
        /// When the limit ends; absent if the agent did not report it.
        resets_at: Option<Timestamp> as time = default,
    }

    /// How much of the model's context the conversation fills, and what it has cost, as the agent last reported it.
    #[derive(Default)]
    Usage {
        /// How many tokens of the context are used.
        used: Option<u64> = default,
        /// How many tokens the context holds.
        size: Option<u64> = default,
        /// The cost so far, in ACP's shape: `amount` and `currency`.
        cost: Option<RawJson> = default,
    }

    /// A scheduled continuation: a prompt that is sent automatically at a given time.
    Continuation {
        /// When it is sent.
        at: Timestamp as time,
        /// How many times it has been tried.
        attempts: u32,
        /// The beginning of the text that is sent, up to 200 characters; absent if none was given.
        text: Option<String> = default,
    }
}

/// When a conversation continues: `reset` (the end of its usage limit), `now`, or a time. A past time means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    rename_all = "camelCase",
    expecting = "expected \"reset\", \"now\" or a time like 2026-01-31T18:00:00Z"
)]
pub enum ContinueAt {
    /// At the end of its usage limit.
    Reset,
    /// At once.
    Now,
    /// At a time.
    #[serde(untagged, serialize_with = "crate::time::write")]
    Time(Timestamp),
}

objects! {
    /// The answer of `conversation/continue`.
    #[derive(Default)]
    ContinueAnswer {
        /// The scheduled continuation; absent after it was cancelled.
        continuation: Option<Continuation> = default,
    }

    /// A queued prompt: it waits for the turns before it.
    QueuedPrompt {
        /// The id of its future turn. `conversation/cancel` with this id removes it from the queue.
        turn_id: TurnId,
        /// The first 200 characters of the first line of the prompt; empty if it has no text.
        #[serde(default)]
        prompt: String,
        /// When it was queued.
        queued_at: Timestamp as time,
        /// Whether the prompt is held because the daemon was killed while it was queued. A held prompt is sent by
        /// `conversation/continue`, or when the same call is repeated with the same `requestId`.
        held: bool = default,
    }

    /// A conversation.
    Conversation {
        /// The conversation's id; it never changes.
        id: ConversationId,
        /// The app that the conversation belongs to, in the app's own words; empty if none was given.
        #[serde(default)]
        namespace: String,
        /// The agent that it talks to.
        agent: AgentName,
        /// The folder that it runs in, as an absolute path.
        cwd: String,
        /// The title; empty if it has none yet.
        #[serde(default)]
        title: String,
        /// What it is doing.
        state: ConversationState,
        /// Whether its session is open in a running agent.
        live: bool,
        /// The upstream id at the end of the chain; null if the chain is empty.
        head: Option<UpstreamId>,
        /// The number of links in the chain, at most 16.
        chain_length: usize,
        /// The conversation that this one branched off; absent if none.
        parent: Option<Parent> = default,
        /// How its sessions are set up.
        settings: Settings,
        /// The usage limit that it hit; absent if none.
        limit: Option<Limit> = default,
        /// Why the state is `failed`, as a sentence; absent in other states. If the agent's program could not be used,
        /// the end of its output is included.
        failure: Option<String> = default,
        /// The questions that wait for an answer.
        #[serde(default)]
        interrupts: Vec<Interrupt>,
        /// The queued prompts in order, each once it is on disk: first the held ones, then those that wait for the
        /// running turn. Absent when there are none.
        queue: Vec<QueuedPrompt> = default,
        /// Whether `conversation/continue` has something to continue: a turn that was interrupted other than by the
        /// user, or a held prompt. The state may still be `idle`, for example after a turn that failed because nobody
        /// was signed in. Absent when false.
        cut_short: bool = default,
        /// The scheduled continuation; absent if none.
        continuation: Option<Continuation> = default,
        /// What the agent last reported of its usage; absent if it reported nothing.
        usage: Option<Usage> = default,
        /// When it was created.
        created_at: Timestamp as time,
        /// When it last changed.
        updated_at: Timestamp as time,
        /// The number of its durable changes, for `expectedRevision`.
        revision: u64,
    }
}

/// What to do with a prompt while another turn is running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnBusy {
    /// Refuse the prompt as `busy`.
    #[default]
    Fail,
    /// Queue the prompt.
    Queue,
}

/// What to do with a prompt that hits a usage limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnLimit {
    /// End the turn as failed.
    #[default]
    Fail,
    /// Schedule a continuation at the end of the limit.
    Wait,
}

/// What to do with the agent's transcripts when a conversation is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TranscriptsOnDelete {
    /// Keep the transcripts and the daemon's kept copies. `transcript/keep` lists those copies, `transcript/forget`
    /// deletes them.
    #[default]
    Keep,
    /// Delete the transcripts, their side files and the kept copies.
    Delete,
}

objects! {
    /// The answer of `conversation/delete`.
    #[derive(Default)]
    DeleteAnswer {
        /// The transcripts that should have been deleted and remain, with the reasons; absent when there are none. The
        /// conversation is deleted all the same, so this is the only report of them.
        remaining: Vec<RemainingTranscript> = default,
        /// Why the daemon's files may still contain what was stored of the conversation; absent if they do not. The next start of
        /// the daemon tries again to remove it.
        not_erased: Option<String> = default,
        /// With `transcripts: keep`, the sessions that `conversation/adopt` accepts, newest first, without those whose history a
        /// later one contains.
        adoptable: Vec<UpstreamId> = default,
        /// The same for the sessions whose transcript is missing, or has lost turns that the kept copy has: `conversation/adopt`
        /// accepts all of it after `transcript/restore`.
        restorable: Vec<UpstreamId> = default,
    }

    /// A transcript that should have been deleted with its conversation, and remains.
    RemainingTranscript {
        /// The session.
        upstream_id: UpstreamId,
        /// The path of the transcript, or of its folder of side files if only that remains; absent if unknown.
        path: Option<String> = default,
        /// Why it remains.
        reason: RemainingReason,
        /// The same as a sentence.
        message: String,
    }
}

words! {
    /// Why a transcript remains.
    RemainingReason {
        /// The transcript, its side files or its kept copy could not be deleted.
        Failed,
        /// Another conversation has the session too, or a fork in the same folder may need the side files.
        Shared,
        /// The agent archived the session and kept the file.
        Archived,
    }
}

objects! {
    /// An answer with one conversation.
    ConversationAnswer {
        /// The conversation after the call.
        conversation: Conversation,
    }

    /// The answer of `conversation/adopt`.
    AdoptAnswer {
        /// The conversation after the call.
        conversation: Conversation,
        /// Whether the user archived the session in the agent: it can be read, but the agent refuses to resume it until
        /// it is unarchived. Absent when false.
        archived: bool = default,
        /// The session in whose file the transcript begins, if that file is missing: the history begins after it. Absent
        /// if there is none. Not reported if a conversation already had the transcript.
        missing: Vec<MissingSession> = default,
        /// Findings of `transcript/check` that prevent the agent from resuming the transcript as it is, or from
        /// resuming its newest branch; absent when there are none. Not reported if a conversation already had the
        /// transcript.
        findings: Vec<Finding> = default,
    }

    /// The answer of `conversation/list`: one page.
    ConversationPage {
        /// The conversations, newest first.
        conversations: Vec<Conversation>,
        /// The cursor of the next page; absent on the last page.
        next_cursor: Option<Cursor> = default,
    }

    /// The answer of `conversation/tree`.
    TreeAnswer {
        /// The first ancestor and all that branched off it: each conversation after its parent, and the branches of one
        /// conversation oldest first.
        conversations: Vec<TreeMember>,
        /// The conversation that the first one branched off, if it was deleted or is not on this machine; absent
        /// otherwise.
        missing_parent: Option<ConversationId> = default,
        /// Whether there are more branches than one answer holds, 1,000 at most. Absent when false.
        truncated: bool = default,
    }

    /// A conversation of a tree.
    TreeMember {
        /// The conversation. Its `parent` says where it branched off.
        conversation: Conversation,
        /// Its chain, as `conversation/chain` returns it.
        links: Vec<Link>,
        /// Its whole lineage, as `conversation/lineage` returns it.
        entries: Vec<LineageEntry>,
    }

    /// The answer of `conversation/cancel`.
    CancelAnswer {
        /// Whether there was anything to cancel.
        cancelled: bool,
    }

    /// The answer of `conversation/resume`.
    ResumeAnswer {
        /// The conversation after the call.
        conversation: Conversation,
        /// How the session was reopened.
        resumed: Resumed,
    }

    /// The answer of `conversation/fork`.
    ForkAnswer {
        /// The new conversation, or the same one after a fork in place.
        conversation: Conversation,
        /// The branch; absent if the source had nothing to branch from yet.
        link: Option<Link> = default,
        /// How much of the history the branch has.
        fidelity: Fidelity,
        /// How the branch was made.
        via: Option<BranchedVia> = default,
    }
}

words! {
    /// How a branch was made.
    BranchedVia {
        /// With the agent's own fork.
        Native,
        /// As a copy of the transcript, cut at the checkpoint.
        Cut,
        /// As a new session that receives the history as text.
        Text,
        /// As a new session, because there was no history to take.
        Fresh,
    }
}

objects! {
    /// The answer of `conversation/edit`.
    EditAnswer {
        /// How the turn of the new prompt ended.
        turn: TurnResult,
        /// The branch, now the head. Absent if the turn was cancelled before its prompt was accepted: the head is then
        /// unchanged.
        link: Option<Link> = default,
        /// How much of the history before the turn the branch has.
        fidelity: Fidelity,
        /// How many turns the history lost, the replaced one included.
        dropped: u64,
        /// How the branch was made.
        via: Option<BranchedVia> = default,
    }

    /// The answer of `conversation/undo`.
    UndoAnswer {
        /// The conversation after the call.
        conversation: Conversation,
        /// The session that is the head again. After an undone move it is the same session, in its previous folder.
        link: Link,
        /// How many turns of the abandoned branch the history lost; 0 for an undone move.
        dropped: u64,
        /// The folders of the undone move; absent if no move was undone.
        moved: Option<MovedFolder> = default,
        /// What was undone: `edited`, `forked` in place, `moved`, `reset`, or `rolled` if the agent had cleared its context.
        /// Absent if the conversation had left the session because the agent did not open it.
        undone: Option<LineageReason> = default,
    }

    /// The folders of an undone move.
    MovedFolder {
        /// The folder before the undo.
        from: String,
        /// The folder now.
        to: String,
    }

    /// The answer of `conversation/move`.
    MoveAnswer {
        /// The files to move, and where to.
        plan: Vec<PlannedMove>,
        /// How many files were moved; 0 for a dry run.
        moved: u64,
        /// Files and folders next to the transcripts that are not moved, each with the reason; absent when there are
        /// none.
        left_out: Vec<String> = default,
        /// The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when
        /// it is needed, for example by the next prompt. Absent when there are none.
        kept: Vec<UpstreamId> = default,
    }

    /// One step of a move.
    PlannedMove {
        /// The current path.
        from: String,
        /// The new path.
        to: String,
        /// What is moved.
        kind: MovedKind,
        /// The size of the file in bytes; 0 if it is not a file.
        bytes: u64,
    }
}

words! {
    /// What a step moves.
    MovedKind {
        /// A transcript.
        Transcript,
        /// A side file of a transcript.
        SideFile,
        /// The folder of a conversation in the daemon's records.
        Metadata,
    }
}

objects! {
    /// The answer of `conversation/chain`.
    ChainAnswer {
        /// The links, oldest first; the last is the head.
        links: Vec<Link>,
    }

    /// The answer of `conversation/lineage`: one page.
    LineagePage {
        /// The entries, oldest first.
        entries: Vec<LineageEntry>,
        /// The cursor of the next page; absent on the last page.
        next_cursor: Option<Cursor> = default,
    }

    /// The answer of `conversation/respond`.
    RespondAnswer {
        /// The turn that the answer started; absent if it started none.
        turn_id: Option<TurnId> = default,
    }

    /// The running turn, as a client that subscribes receives it.
    RunningTurn {
        /// The turn.
        turn_id: TurnId,
        /// The prompt.
        prompt: PromptContent,
        /// When the turn began. Includes the time to reopen the session, so it is before `promptAccepted`; excludes the
        /// time in the queue.
        started_at: Timestamp as time,
        /// ACP's updates of this turn so far; only the newest if `truncated` is true.
        updates: Vec<RawJson>,
        /// Whether older updates were omitted.
        truncated: bool,
    }

    /// A turn whose prompt was not accepted yet: its session is being opened, or the agent has not begun to work.
    UnacceptedTurn {
        /// The turn.
        turn_id: TurnId,
        /// The prompt.
        prompt: PromptContent,
        /// When the turn began.
        started_at: Timestamp as time,
    }

    /// What the agent last reported about its session, in ACP's shapes. A member is absent until it was reported.
    #[derive(Default)]
    SessionInfo {
        /// The latest plan.
        plan: Option<RawJson> = default,
        /// The modes, and the current one.
        modes: Option<RawJson> = default,
        /// The configuration options and their values.
        config_options: Option<RawJson> = default,
        /// The slash commands that a prompt may use.
        commands: Option<RawJson> = default,
        /// The latest usage.
        usage: Option<RawJson> = default,
        /// The other members of the answer with which the agent opened the session, such as `models` and `_meta`.
        other: Option<RawJson> = default,
    }
}

/// An empty answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Empty {}

/// The longest title that the daemon accepts: one line, in any script.
pub const TITLE_LIMIT_BYTES: usize = 4 * 1024;

/// The title of a fork of a conversation with this title, so that lists tell the two apart; nothing if there is none to change.
#[must_use]
pub fn fork_title(title: &str) -> Option<String> {
    let title = title.trim();
    let number = |rest: &str| match rest {
        "" => Some(1_u32),
        rest => rest.strip_prefix(' ')?.parse().ok(),
    };
    let forked = title
        .strip_suffix(')')
        .and_then(|title| title.rsplit_once(" (fork"))
        .and_then(|(title, rest)| Some((title, number(rest)?)));
    let named = match forked {
        Some((title, number)) => format!("{title} (fork {})", number.saturating_add(1)),
        None => format!("{title} (fork)"),
    };
    (!title.is_empty() && named.len() <= TITLE_LIMIT_BYTES).then_some(named)
}
