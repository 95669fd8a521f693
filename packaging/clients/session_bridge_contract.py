# Generated from packaging/openrpc.json, do not edit. To write it again: WRITE_OPENRPC=1 cargo test -p bridge-protocol
# --all-features --test fixtures packaged
"""Types and methods of sessiond. `session_bridge` is the client that has these methods."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Dict, List, Literal, Optional, TypedDict, Union, final


class _AdoptAnswer(TypedDict):
    # The conversation after the call.
    conversation: Conversation


@final
class AdoptAnswer(_AdoptAnswer, total=False):
    """The answer of `conversation/adopt`."""

    # Whether the user archived the session in the agent: it can be read, but the agent refuses to resume it until it
    # is unarchived. Absent when false.
    archived: bool

    # Findings of `transcript/check` that prevent the agent from resuming the transcript as it is, or from resuming
    # its newest branch; absent when there are none. Not reported if a conversation already had the transcript.
    findings: List[Finding]

    # The session in whose file the transcript begins, if that file is missing: the history begins after it. Absent if
    # there is none. Not reported if a conversation already had the transcript.
    missing: List[MissingSession]


class _AgentInfo(TypedDict):
    # The program and its arguments.
    command: List[str]

    # Whether this is the default agent, used when a call names none.
    default: bool

    # Whether a conversation can be forked after an earlier turn. Its end can be forked if ACP's capabilities say so.
    forkAt: bool

    # Whether the program exists.
    found: bool

    # The kind of agent: `claude`, `codex`, `gemini`, `opencode`, `qwen`, `loopback` or `generic`.
    kind: str

    # The agent's name in the configuration.
    name: AgentName

    # Whether a process of this agent is running.
    running: bool


@final
class AgentInfo(_AgentInfo, total=False):
    """An agent: its configuration, and what is known of its program."""

    # ACP's `agentInfo` (name, title, version); absent while the agent is not running.
    agentInfo: Any

    # ACP's sign-in methods; absent while the agent is not running.
    authMethods: Any

    # Who is signed in, as the agent reports it: `kind`, `label` and `detail`; `kind` is `none` when nobody is signed
    # in. Only the adapters of Claude and Codex report it, some time after they start; absent otherwise. It may omit a
    # token from the environment.
    authStatus: Any

    # ACP's agent capabilities; absent while the agent is not running.
    capabilities: Any


class _AgentList(TypedDict):
    # The agents, in the order of the configuration; always includes `loopback`.
    agents: List[AgentInfo]


@final
class AgentList(_AgentList, total=False):
    """The answer of `agent/list`."""

    # How to install the known agents whose programs are not found: the kind, and a shell command. Absent if all are
    # found.
    install: Dict[str, Any]

# The name of an agent: as configured, or a built-in one (`claude`, `codex`, `loopback`).
AgentName = str


class _Attempt(TypedDict):
    # How it was tried.
    via: Via


@final
class Attempt(_Attempt, total=False):
    """One attempt to reopen a session."""

    # Why it failed; absent if it worked.
    error: str

    # The session that was tried; absent if the attempt had none.
    upstreamId: UpstreamId

# How a branch was made.
BranchedVia = Literal["native", "cut", "text", "fresh"]


@final
class CancelAnswer(TypedDict):
    """The answer of `conversation/cancel`."""

    # Whether there was anything to cancel.
    cancelled: bool


@final
class ChainAnswer(TypedDict):
    """The answer of `conversation/chain`."""

    # The links, oldest first; the last is the head.
    links: List[Link]


class _CheckAnswer(TypedDict):
    # The findings, in the order of the lines. Empty, or without damage, if the transcript is intact.
    findings: List[Finding]


@final
class CheckAnswer(_CheckAnswer, total=False):
    """The answer of `transcript/check`."""

    # How much of the session the copy has: `full` when nothing is missing, else `partial`; absent without a copy. A
    # later resume of the copy is compared with the copy, not with the original session.
    fidelity: Fidelity

    # The sessions that were checked in their kept copies because the agent's own files are missing; absent when there
    # are none.
    kept: List[UpstreamId]

    # The findings that remain in the copy, with the copy's own line numbers; absent when there are none.
    left: List[Finding]

    # How many more findings were omitted, if there are very many; absent when 0.
    more: int

    # The session id of the repaired copy. Absent if no repair was requested, or if there was nothing to repair.
    repaired: UpstreamId

    # What was changed in the copy; absent without one.
    repairs: Repairs

    # The shell command that restores a kept copy which has turns or other records that the transcript has lost. If
    # the conversation has turns that this copy lacks, the command forks it first. Absent if there is no such copy,
    # and in the answer to a repair.
    restore: str


class _Checkpoint(TypedDict):
    # The size of the turn's messages in the transcript, in bytes.
    bytes: int

    # The checkpoint's id. It stays valid whatever happens to the conversation: it encodes the agent, the session and
    # the turn's last record, or the turn itself if the agent names turns (Codex). For a running turn, it is the place
    # that the turn has reached.
    id: CheckpointId

    # The first 200 characters of the prompt, as the user typed it: without what an editor put before it.
    prompt: str

    # The first 200 characters of the reply's text.
    reply: str

    # The number of the turn, from 1, in the current history; if no conversation has the session, in the transcript.
    step: int

    # The tools that were called, each once, in the order of their first calls.
    tools: List[str]

    # The session whose transcript contains the turn. In a fork by reference (Codex), earlier turns are in another
    # session.
    upstreamId: UpstreamId


@final
class Checkpoint(_Checkpoint, total=False):
    """A checkpoint: the place after a turn."""

    # When the turn's last record was written; absent if the record does not say.
    at: str

    # The checkpoint that this one was copied from; absent unless the transcript is a branch or a copy of another.
    # Always absent in a fork by reference.
    origin: CheckpointId

    # The checkpoint before this one; absent on the first.
    parentId: CheckpointId


class _CheckpointAnswer(TypedDict):
    # The checkpoint.
    checkpoint: Checkpoint

    # The messages of its turn, oldest first.
    messages: List[Message]


@final
class CheckpointAnswer(_CheckpointAnswer, total=False):
    """The answer of `checkpoint/get`."""

    # The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    # are none.
    kept: List[UpstreamId]

    # How many more messages the turn has, if they are too large for one answer; absent otherwise.
    omitted: int

# The id of a checkpoint, from which a session can be resumed, forked or edited. Opaque and stable.
CheckpointId = str


@final
class CheckpointLoadedEvent(TypedDict):
    """An agent loaded a transcript. Not sent where the daemon cannot read the transcript; `resumed` is always sent."""

    # How many messages the agent has: those of the current branch, and of a compacted session the summary, the
    # messages that the compaction kept, and those after it. `conversation/history` also has the messages before the
    # compaction.
    messages: int

    # The number of the last turn it has, as checkpoints count; 0 before the first.
    step: int

    type: Literal["checkpointLoaded"]

    # The session.
    upstreamId: UpstreamId


class _CheckpointPage(TypedDict):
    # The checkpoints, newest first. For the next page, pass the id of the last one as `before`; the page that ends
    # with step 1 is the last.
    checkpoints: List[Checkpoint]


@final
class CheckpointPage(_CheckpointPage, total=False):
    """The answer of `conversation/checkpoints`: one page."""

    # What the history lacks; absent when nothing is known to be missing.
    gaps: List[HistoryGap]

    # The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    # are none.
    kept: List[UpstreamId]


@final
class CheckpointSavedEvent(TypedDict):
    """A complete turn is in the transcript, whichever program had it: from now on it can be resumed, forked and edited.
    Sent once, after the `turnEnded` of a turn of this daemon. Sent for such a turn even if its session is no longer
    the head, unless the chain was cleared: it can follow a later event such as `undone`. Ignore it if its turn was
    undone.
    """

    # The checkpoint after the turn.
    checkpoint: Checkpoint

    type: Literal["checkpointSaved"]


@final
class ClosedEvent(TypedDict):
    """The session was closed. The next prompt reopens it."""

    type: Literal["closed"]


class _Continuation(TypedDict):
    # When it is sent.
    at: str

    # How many times it has been tried.
    attempts: int


@final
class Continuation(_Continuation, total=False):
    """A scheduled continuation: a prompt that is sent automatically at a given time."""

    # The beginning of the text that is sent, up to 200 characters; absent if none was given.
    text: str


@final
class ContinueAnswer(TypedDict, total=False):
    """The answer of `conversation/continue`."""

    # The scheduled continuation; absent after it was cancelled.
    continuation: Continuation

# When a conversation continues: `reset` (the end of its usage limit), `now`, or a time. A past time means now.
ContinueAt = Union[Literal["reset", "now"], str]


@final
class ContinuedEvent(TypedDict):
    """A scheduled continuation started this turn. Comes before its `promptAccepted`."""

    # The turn.
    turnId: TurnId

    type: Literal["continued"]


class _Conversation(TypedDict):
    # The agent that it talks to.
    agent: AgentName

    # The number of links in the chain, at most 16.
    chainLength: int

    # When it was created.
    createdAt: str

    # The folder that it runs in, as an absolute path.
    cwd: str

    # The upstream id at the end of the chain; null if the chain is empty.
    head: Union[UpstreamId, None]

    # The conversation's id; it never changes.
    id: ConversationId

    # The questions that wait for an answer.
    interrupts: List[Interrupt]

    # Whether its session is open in a running agent.
    live: bool

    # The app that the conversation belongs to, in the app's own words; empty if none was given.
    namespace: str

    # The number of its durable changes, for `expectedRevision`.
    revision: int

    # How its sessions are set up.
    settings: Settings

    # What it is doing.
    state: ConversationState

    # The title; empty if it has none yet.
    title: str

    # When it last changed.
    updatedAt: str


@final
class Conversation(_Conversation, total=False):
    """A conversation."""

    # The scheduled continuation; absent if none.
    continuation: Continuation

    # Whether `conversation/continue` has something to continue: a turn that was interrupted other than by the user,
    # or a held prompt. The state may still be `idle`, for example after a turn that failed because nobody was signed
    # in. Absent when false.
    cutShort: bool

    # Why the state is `failed`, as a sentence; absent in other states. If the agent's program could not be used, the
    # end of its output is included.
    failure: str

    # The usage limit that it hit; absent if none.
    limit: Limit

    # The conversation that this one branched off; absent if none.
    parent: Parent

    # The queued prompts in order, each once it is on disk: first the held ones, then those that wait for the running
    # turn. Absent when there are none.
    queue: List[QueuedPrompt]

    # What the agent last reported of its usage; absent if it reported nothing.
    usage: Usage


@final
class ConversationAnswer(TypedDict):
    """An answer with one conversation."""

    # The conversation after the call.
    conversation: Conversation

# The id of a conversation: a UUIDv4 that the daemon generates. It never changes and is never used again.
ConversationId = str


class _ConversationPage(TypedDict):
    # The conversations, newest first.
    conversations: List[Conversation]


@final
class ConversationPage(_ConversationPage, total=False):
    """The answer of `conversation/list`: one page."""

    # The cursor of the next page; absent on the last page.
    nextCursor: Cursor

# A reference to a conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or
# more.
ConversationRef = str

# What a conversation is doing.
ConversationState = Literal["idle", "prompting", "awaiting", "cancelling", "limited", "interrupted", "moving", "failed"]

# A position in a stream of events or in a paged list. Opaque.
Cursor = str


@final
class DaemonStatus(TypedDict):
    """The answer of `daemon/status`."""

    # The number of running agent processes.
    agents: int

    # The number of conversations.
    conversations: int

    # The folder that contains everything (`SESSIOND_HOME` or `--home`); without one, the data folder.
    home: str

    # The number of conversations whose session is open in a running agent.
    live: int

    # The daemon's process id.
    pid: int

    # The version of this protocol.
    protocolVersion: int

    # The path of the bridge socket.
    socket: str

    # The store.
    store: StoreStatus

    # For how long the daemon has run, in seconds.
    uptimeSeconds: int

    # The daemon's version.
    version: str


@final
class DeleteAnswer(TypedDict, total=False):
    """The answer of `conversation/delete`."""

    # With `transcripts: keep`, the sessions that `conversation/adopt` accepts, newest first, without those whose
    # history a later one contains.
    adoptable: List[UpstreamId]

    # Why the daemon's files may still contain what was stored of the conversation; absent if they do not. The next
    # start of the daemon tries again to remove it.
    notErased: str

    # The transcripts that should have been deleted and remain, with the reasons; absent when there are none. The
    # conversation is deleted all the same, so this is the only report of them.
    remaining: List[RemainingTranscript]

    # The same for the sessions whose transcript is missing, or has lost turns that the kept copy has:
    # `conversation/adopt` accepts all of it after `transcript/restore`.
    restorable: List[UpstreamId]


@final
class DeletedEvent(TypedDict):
    """The conversation was deleted."""

    type: Literal["deleted"]


@final
class Diagnosis(TypedDict):
    """The answer of `daemon/diagnose`."""

    # The diagnostics, in the order of the checks.
    diagnostics: List[Diagnostic]


class _Diagnostic(TypedDict):
    # What it is about.
    kind: DiagnosticKind

    # What was found, as a sentence.
    message: str

    # How severe it is.
    severity: Severity


@final
class Diagnostic(_Diagnostic, total=False):
    """One diagnostic, with what to do about it."""

    # The same as data, for programs; absent when empty. For an agent `version`, `command` and `offers`; for
    # `DiagnosticKind::SignIn` the agent's own `authStatus`; for a disk `freeBytes` and `totalBytes`; for
    # `DiagnosticKind::Retention` `vendorDays`, `keepDays` and `keptBytes`; for processes their `pids`. More may be
    # added.
    data: Dict[str, Any]

    # What to do next; absent if nothing has to be done.
    nextStep: str

    # The agent or the path that it is about; absent if it is about neither.
    subject: str

# What a diagnostic is about.
DiagnosticKind = Literal["daemon", "otherDaemon", "configuration", "folder", "store", "setAside", "room", "agent", "signIn", "quirk", "transcripts", "retention", "leftOver"]


class _EditAnswer(TypedDict):
    # How many turns the history lost, the replaced one included.
    dropped: int

    # How much of the history before the turn the branch has.
    fidelity: Fidelity

    # How the turn of the new prompt ended.
    turn: TurnResult


@final
class EditAnswer(_EditAnswer, total=False):
    """The answer of `conversation/edit`."""

    # The branch, now the head. Absent if the turn was cancelled before its prompt was accepted: the head is then
    # unchanged.
    link: Link

    # How the branch was made.
    via: BranchedVia


@final
class EditedEvent(TypedDict):
    """An earlier prompt was replaced: the branch is the head, and the history no longer has the turns after that place.
    Comes before the `promptAccepted` of the new prompt.
    """

    # How many turns the history lost, the replaced one included.
    dropped: int

    # How much of the history before the turn the branch has.
    fidelity: Fidelity

    # The branch.
    link: Link

    type: Literal["edited"]

# An empty answer.
Empty = Dict[str, Any]

# The kind of an error: its JSON-RPC code, and `data.kind` on the wire.
ErrorKind = Literal["parseError", "invalidRequest", "methodNotFound", "invalidParams", "internalError", "notFound", "ambiguous", "busy", "invalidCwd", "checkpointNotFound", "agentUnavailable", "agentError", "authRequired", "limited", "unsupported", "notResumable", "conflict", "interruptResolved", "shuttingDown", "storeFailed", "transcriptDamaged", "revisionMismatch"]

# What happened. An unknown kind is kept as it came, so that new ones break no client.
Event = Union["SnapshotEvent", "PromptAcceptedEvent", "UpdateEvent", "TurnEndedEvent", "StateChangedEvent", "UpdatedEvent", "InterruptRaisedEvent", "InterruptResolvedEvent", "ResumedEvent", "RolledEvent", "ForkedEvent", "EditedEvent", "UndoneEvent", "MovedEvent", "LimitedEvent", "ContinuedEvent", "CheckpointSavedEvent", "CheckpointLoadedEvent", "ForeignWriterEvent", "ClosedEvent", "ResetEvent", "DeletedEvent", "LaggedEvent"]


@final
class EventEnvelope(TypedDict):
    """One event, with its conversation and its position in the stream."""

    # When it happened.
    at: str

    # The conversation.
    conversationId: ConversationId

    # The position: subscribing with `after` set to it continues after this event.
    cursor: Cursor

    # What happened.
    event: Event

# The path of the file or, if none was requested, what the file would contain. Only a file has a `path`.
ExportAnswer = Union["ExportedFile", "PortableConversation"]

# The format of an export.
ExportFormat = Literal["json", "bundle"]


class _ExportedFile(TypedDict):
    # The size in bytes.
    bytes: int

    # The absolute path of the file.
    path: str


@final
class ExportedFile(_ExportedFile, total=False):
    """An exported file."""

    # What the history lacks; absent when nothing is known to be missing.
    gaps: List[HistoryGap]

    # The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    # are none.
    kept: List[UpstreamId]

    # The sessions whose transcripts or side files it lacks; absent when there are none.
    missing: List[MissingSession]

    # The values of MCP servers that it lacks; absent when there are none.
    missingValues: List[MissingValue]


class _Failure(TypedDict):
    # The kind of failure.
    kind: FailureKind

    # The reason as a sentence; the agent's own, if it gave one.
    message: str

    # Whether the same prompt may succeed later with nothing changed; false if a continuation is scheduled.
    retryable: bool


@final
class Failure(_Failure, total=False):
    """The failure of a turn."""

    # When the limit ends; absent if unknown, or if there is no limit.
    resetsAt: str

    # The agent's JSON-RPC error, as the agent sent it; absent if the agent did not answer with one.
    upstream: Any

# The kind of a failure.
FailureKind = Literal["rateLimited", "overloaded", "authRequired", "contextOverflow", "network", "invalidRequest", "agentDied", "daemonRestarted", "unknown"]

# How much of the history the agent has. Default for a caller's minimum: `text`.
Fidelity = Literal["none", "text", "partial", "full"]


@final
class Finding(TypedDict):
    """One finding in a transcript."""

    # What it means for a resume, as a sentence.
    detail: str

    # The kind of finding.
    kind: FindingKind

    # The line, counted from 1; 0 if the finding is about the whole file.
    line: int

# The kind of a finding in a transcript.
FindingKind = Literal["nothingToResume", "tornLine", "garbageLine", "oversizedLine", "brokenParent", "cutOff", "newerBranch", "toolUseWithoutResult", "duplicateUuid", "foreignSessionId", "missingSideFile", "missingSource", "resultWithoutToolUse", "brokenOrder", "archived", "otherCopy"]


@final
class ForeignWriterEvent(TypedDict):
    """Another program writes to the transcript of the open session: it contains prompts that were not sent from here, or
    it became shorter, or was replaced. Prompts are checked in Claude's format only: Codex does not let a second
    program write to an open session. The two programs do not see each other's turns, and a later resume sees only one
    of them.
    """

    type: Literal["foreignWriter"]

    # The session.
    upstreamId: UpstreamId


class _ForgetAnswer(TypedDict):
    # The disk space of the deleted copies, in bytes.
    bytes: int


@final
class ForgetAnswer(_ForgetAnswer, total=False):
    """The answer of `transcript/forget`."""

    # Whether the copies are still needed, because the histories of other kept sessions begin in them. They are then
    # deleted with the last of those sessions. Absent when false.
    needed: bool


class _ForkAnswer(TypedDict):
    # The new conversation, or the same one after a fork in place.
    conversation: Conversation

    # How much of the history the branch has.
    fidelity: Fidelity


@final
class ForkAnswer(_ForkAnswer, total=False):
    """The answer of `conversation/fork`."""

    # The branch; absent if the source had nothing to branch from yet.
    link: Link

    # How the branch was made.
    via: BranchedVia


@final
class ForkedEvent(TypedDict):
    """A branch was made."""

    # The conversation whose head it is.
    conversationId: ConversationId

    # The branch.
    link: Link

    type: Literal["forked"]

# The kind of a gap in the history.
GapKind = Literal["missing", "unreadable", "broken", "compacted", "behind", "unknownRecord"]

# What `conversation/history` returns.
HistoryForm = Literal["messages", "updates"]


@final
class HistoryGap(TypedDict):
    """A gap in the history, or a possible one."""

    # The same as a sentence.
    detail: str

    # The kind of gap.
    kind: GapKind

    # The session whose transcript has the gap.
    upstreamId: UpstreamId


class _HistoryPage(TypedDict):
    # The messages, oldest first; empty if updates were requested.
    messages: List[Message]


@final
class HistoryPage(_HistoryPage, total=False):
    """The answer of `conversation/history`: one page."""

    # What the history lacks; absent when nothing is known to be missing.
    gaps: List[HistoryGap]

    # The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    # are none.
    kept: List[UpstreamId]

    # The cursor of the messages after this page; absent at the end.
    nextCursor: Cursor

    # The cursor of the messages before this page; absent at the beginning.
    previousCursor: Cursor

    # The same messages as updates; absent unless they were requested. Messages that the agent wrote on the user's
    # behalf make none.
    updates: List[HistoryUpdate]


class _HistoryUpdate(TypedDict):
    # The body of ACP's `session/update`, as the agent sends it live or when it loads a session: a chunk of a message,
    # a tool call, its result as `tool_call_update`, or a plan. The `messageId` of a chunk is the message's id here.
    update: Any


@final
class HistoryUpdate(_HistoryUpdate, total=False):
    """A part of the history as ACP's update."""

    # When it was written; absent if its record does not say.
    at: str

    # The checkpoint after the turn; absent before the first turn.
    checkpointId: CheckpointId


class _ImportAnswer(TypedDict):
    # The conversation as imported.
    conversation: Conversation


@final
class ImportAnswer(_ImportAnswer, total=False):
    """The answer of `conversation/import`."""

    # The names of the settings in the bundle that were not imported; absent when all were.
    leftOut: List[str]

    # The sessions whose transcripts or side files the bundle lacks; absent when there are none.
    missing: List[MissingSession]

    # The values of MCP servers that the bundle lacks; absent when there are none. `conversation/update` sets them.
    missingValues: List[MissingValue]

    # The sessions with lines that were imported unchanged because each is too long to adapt; absent when there are
    # none.
    unchanged: List[UnchangedLines]


class _Interrupt(TypedDict):
    # The interrupt's id.
    id: InterruptId

    # The kind of question.
    kind: InterruptKind

    # Whether the agent process that asked has ended, so that the answer has to be sent to its successor.
    orphaned: bool

    # When the agent asked.
    raisedAt: str

    # ACP's request parameters, as the agent sent them.
    request: Any


@final
class Interrupt(_Interrupt, total=False):
    """An interrupt: a question of the agent that waits for an answer. It belongs to the conversation, so that every
    client sees it.
    """

    # ACP's options; absent unless this is a permission.
    options: Any

    # ACP's tool call; absent unless this is a permission.
    toolCall: Any

# The id of an interrupt: a question of the agent that waits for an answer.
InterruptId = str

# The kind of a question.
InterruptKind = Literal["permission", "elicitation"]


@final
class InterruptRaisedEvent(TypedDict):
    """The agent asks a question."""

    # The question.
    interrupt: Interrupt

    type: Literal["interruptRaised"]


@final
class InterruptResolvedEvent(TypedDict):
    """A question was answered, or withdrawn because its turn ended or the conversation was reset. Comes before any
    update that the answer causes.
    """

    # Who answered: a client's name, or `agent`, `cancel`, `edit`, `fork`, `policy`, `reset` or `undo`.
    by: str

    # The question.
    interruptId: InterruptId

    # ACP's outcome.
    outcome: Any

    type: Literal["interruptResolved"]


class _KeepAnswer(TypedDict):
    # Whether transcripts are copied automatically.
    enabled: bool

    # The kept copies of the named conversation or session.
    kept: List[KeptFile]


@final
class KeepAnswer(_KeepAnswer, total=False):
    """The answer of `transcript/keep`."""

    # The totals of all kept copies; absent if a conversation or session was named.
    total: KeepTotal

    # The sessions that no conversation has, newest first, at most 1,000; absent if there are none, or if a
    # conversation or session was named. `transcript/restore` restores one, `transcript/forget` deletes its copies.
    unclaimed: List[UnclaimedSession]


class _KeepTotal(TypedDict):
    # The disk space that they use, in bytes. A copy that is still a link to the agent's own file counts as 0.
    bytes: int

    # The number of kept files.
    files: int

    # The number of sessions with kept copies.
    sessions: int


@final
class KeepTotal(_KeepTotal, total=False):
    """The totals of all kept copies."""

    # The number of sessions that no conversation has, because it was deleted or there never was one; absent when 0.
    unclaimed: int


@final
class KeptFile(TypedDict):
    """A kept copy of one file."""

    # The disk space that it uses, in bytes.
    bytes: int

    # The path, in the daemon's data folder.
    path: str


@final
class LaggedEvent(TypedDict):
    """This subscriber was too slow, and receives nothing more. Subscribe again with `after` set to this cursor."""

    # The cursor of the last event that was delivered.
    cursor: Cursor

    type: Literal["lagged"]


class _Limit(TypedDict):
    # The kind of failure.
    kind: FailureKind


@final
class Limit(_Limit, total=False):
    """The usage limit that a conversation hit."""

    # When the limit ends; absent if the agent did not report it.
    resetsAt: str


@final
class LimitedEvent(TypedDict):
    """The last prompt hit a usage limit."""

    # The limit, and when it ends.
    limit: Limit

    type: Literal["limited"]


class _LineageEntry(TypedDict):
    # The agent of the session.
    agent: AgentName

    # When it happened.
    at: str

    # The folder that it runs in, as an absolute path.
    cwd: str

    # How much of the history the session had.
    fidelity: Fidelity

    # Whether the upstream id is in the chain now.
    inChain: bool

    # What happened.
    reason: LineageReason

    # How the link relates to the session that it came from.
    relation: Relation

    # The number of the entry within the conversation: 1, 2, 3, without gaps.
    seq: int

    # The number of turns acknowledged on the link when the entry was written.
    turns: int

    # Whether the agent had accepted a prompt on it by then.
    written: bool


@final
class LineageEntry(_LineageEntry, total=False):
    """A lineage entry: one change of a conversation's chain. Entries are never deleted."""

    # The failed attempts to reopen the session before this one, and why they failed; absent when there are none. Long
    # reasons are cut.
    attempts: List[Attempt]

    # See `Link`.
    carriedTurns: int

    # The cause of a roll; absent for other reasons.
    cause: RollCause

    # The checkpoint of that session at which it begins; absent if none.
    fromCheckpointId: CheckpointId

    # The session that it came from; absent if none.
    fromUpstreamId: UpstreamId

    # The upstream id that the entry is about; absent (in Rust empty) if it is about none: `reset` or `deleted` of a
    # conversation that never had a session.
    upstreamId: UpstreamId


class _LineagePage(TypedDict):
    # The entries, oldest first.
    entries: List[LineageEntry]


@final
class LineagePage(_LineagePage, total=False):
    """The answer of `conversation/lineage`: one page."""

    # The cursor of the next page; absent on the last page.
    nextCursor: Cursor

# The reason of a lineage entry: a reason of a link, or one that adds no link.
LineageReason = Literal["created", "forked", "edited", "moved", "rolled", "adopted", "restored", "copied", "rebuilt", "undone", "reset", "deleted", "abandoned", "updated"]


class _Link(TypedDict):
    # The agent of the session.
    agent: AgentName

    # When it joined the chain.
    at: str

    # The folder that it runs in, as an absolute path.
    cwd: str

    # Why it joined the chain.
    reason: LinkReason

    # How it relates to `fromUpstreamId`.
    relation: Relation

    # The number of turns acknowledged on it so far.
    turns: int

    # The session, by the agent's own id.
    upstreamId: UpstreamId

    # Whether the agent ever accepted a prompt on it, so that a transcript is expected.
    written: bool


@final
class Link(_Link, total=False):
    """A link: one upstream session of a conversation."""

    # The number of turns that its transcript contained at the start, from the session that it is a branch or copy of;
    # absent when 0.
    carriedTurns: int

    # The cause of a roll; absent for other reasons.
    cause: RollCause

    # The checkpoint of that session at which it begins; absent if none.
    fromCheckpointId: CheckpointId

    # The session that it came from; absent if none.
    fromUpstreamId: UpstreamId

# Why a link joined the chain.
LinkReason = Literal["created", "forked", "edited", "moved", "rolled", "adopted", "restored", "copied", "rebuilt", "undone"]


class _Message(TypedDict):
    # The content.
    content: List[MessagePart]

    # The message's id; stable like a checkpoint's id.
    id: str

    # The role of the author. Tool results have the role `user`.
    role: Role

    # The session whose transcript contains it.
    upstreamId: UpstreamId


@final
class Message(_Message, total=False):
    """A message: a prompt, a part of a reply, or tool results."""

    # When it was written; absent if its record does not say.
    at: str

    # The checkpoint after the message's turn; absent before the first turn.
    checkpointId: CheckpointId

    # The kind of message; absent if the user or the model wrote it.
    kind: MessageKind

# The kind of a message that neither the user nor the model wrote.
MessageKind = Literal["summary", "aside", "error"]


class _MessagePart(TypedDict):
    # The type of part.
    type: str


@final
class MessagePart(_MessagePart, total=False):
    """One part of a message. `type` (in Rust `kind`) decides which other members it has: `text`, `thought` and
    `retelling` (the daemon's own retelling of an earlier session) have `text`; `image` has `mimeType` and `data`;
    `toolCall` has `toolCallId`, `name` and `input`; `toolResult` has `toolCallId`, `text` and, if the agent reports
    it, `isError`.

    Any other type is the agent's own, with the whole block in `raw`. So is a block of one of these types that lacks a
    required member, and a block without a type, whose `type` is empty.
    """

    # The full size of the part in bytes, if it was too large and was cut; absent otherwise.
    cutBytes: int

    # The image, in base64. Absent if it was too large; `cutBytes` is its size then.
    data: str

    # The arguments of the tool call, byte for byte.
    input: Any

    # Whether the tool failed or was refused.
    isError: bool

    # The media type of the image.
    mimeType: str

    # The name of the tool.
    name: str

    # A block that has no type of its own here, byte for byte.
    raw: Any

    # The text.
    text: str

    # The id of the tool call: of this one, or of the one that this is the result of.
    toolCallId: str


@final
class MissingSession(TypedDict):
    """A session of a conversation's past whose transcript is missing, or could not be included."""

    # The agent of the session.
    agent: AgentName

    # The reason, as a sentence.
    detail: str

    # The session.
    upstreamId: UpstreamId


@final
class MissingValue(TypedDict):
    """A value of an MCP server's configuration that an export omitted because it may be a secret."""

    # The member of its configuration: `env` or `headers`.
    member: str

    # The name of the variable or header; empty if it has none.
    name: str

    # The name of the server.
    server: str


class _MoveAnswer(TypedDict):
    # How many files were moved; 0 for a dry run.
    moved: int

    # The files to move, and where to.
    plan: List[PlannedMove]


@final
class MoveAnswer(_MoveAnswer, total=False):
    """The answer of `conversation/move`."""

    # The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when it is
    # needed, for example by the next prompt. Absent when there are none.
    kept: List[UpstreamId]

    # Files and folders next to the transcripts that are not moved, each with the reason; absent when there are none.
    leftOut: List[str]


_MovedEventMembers = TypedDict(
    "_MovedEventMembers",
    {
        # The previous folder.
        "from": "str",
        # The new folder.
        "to": "str",
        "type": "Literal[\"moved\"]",
    },
)


@final
class MovedEvent(_MovedEventMembers):
    """The conversation moved to another folder."""


_MovedFolderMembers = TypedDict(
    "_MovedFolderMembers",
    {
        # The folder before the undo.
        "from": "str",
        # The folder now.
        "to": "str",
    },
)


@final
class MovedFolder(_MovedFolderMembers):
    """The folders of an undone move."""

# What a step moves.
MovedKind = Literal["transcript", "sideFile", "metadata"]

# What to do with a prompt while another turn is running.
OnBusy = Literal["fail", "queue"]

# What to do with a prompt that hits a usage limit.
OnLimit = Literal["fail", "wait"]


class _OpenRpcDocument(TypedDict):
    info: Dict[str, Any]

    methods: List[Dict[str, Any]]

    # The version of OpenRPC that it follows.
    openrpc: Literal["1.3.2"]


_OpenRpcDocumentMembers = TypedDict(
    "_OpenRpcDocumentMembers",
    {
        "components": "Dict[str, Any]",
        # The notifications that the daemon sends. OpenRPC has no member for them.
        "x-notifications": "List[Dict[str, Any]]",
    },
    total=False,
)


@final
class OpenRpcDocument(_OpenRpcDocumentMembers, _OpenRpcDocument):
    """An OpenRPC document."""


class _Parent(TypedDict):
    # The conversation that it branched off.
    conversationId: ConversationId


@final
class Parent(_Parent, total=False):
    """Where a conversation branched off another one."""

    # The checkpoint at which it branched off; absent if the parent had no prompts yet.
    checkpointId: CheckpointId


_PlannedMoveMembers = TypedDict(
    "_PlannedMoveMembers",
    {
        # The size of the file in bytes; 0 if it is not a file.
        "bytes": "int",
        # The current path.
        "from": "str",
        # What is moved.
        "kind": "MovedKind",
        # The new path.
        "to": "str",
    },
)


@final
class PlannedMove(_PlannedMoveMembers):
    """One step of a move."""


class _PortableConversation(TypedDict):
    # Its upstream sessions, oldest first; the last is the head.
    chain: List[Link]

    # The conversation.
    conversation: Conversation

    # When it was exported.
    exportedAt: str

    # Everything that ever happened to the chain, oldest first.
    lineage: List[LineageEntry]

    # The messages, oldest first, as `conversation/history` returns them.
    messages: List[Message]

    # The number of turns in `messages`.
    turns: int

    # The version of this format: `PORTABLE_VERSION` of the program that wrote it.
    version: int


@final
class PortableConversation(_PortableConversation, total=False):
    """A conversation as plain JSON, for other programs. Without `secrets`, each MCP server has only `name`, `type`,
    `command` and the names in `env` and `headers`: values, arguments and URLs are omitted because they may contain
    keys.
    """

    # What the history lacks; absent when nothing is known to be missing.
    gaps: List[HistoryGap]

    # The sessions that were read from their kept copies because the agent's own files are missing; absent when there
    # are none.
    kept: List[UpstreamId]

    # The questions that wait for an answer; absent when there are none.
    pending: List[Interrupt]

    # The usage that the agent last reported, in ACP's shape; absent if it never did, for example if the conversation
    # was adopted and has had no turn since.
    usage: Any


@final
class PromptAcceptedEvent(TypedDict):
    """A prompt was accepted. Its turn always ends with `turnEnded`."""

    # The prompt.
    prompt: List[Dict[str, Any]]

    # The turn.
    turnId: TurnId

    type: Literal["promptAccepted"]


class _QueuedPrompt(TypedDict):
    # The first 200 characters of the first line of the prompt; empty if it has no text.
    prompt: str

    # When it was queued.
    queuedAt: str

    # The id of its future turn. `conversation/cancel` with this id removes it from the queue.
    turnId: TurnId


@final
class QueuedPrompt(_QueuedPrompt, total=False):
    """A queued prompt: it waits for the turns before it."""

    # Whether the prompt is held because the daemon was killed while it was queued. A held prompt is sent by
    # `conversation/continue`, or when the same call is repeated with the same `requestId`.
    held: bool

# How a link's transcript relates to the session that it came from.
Relation = Literal["carries", "follows", "fresh"]

# Why a transcript remains.
RemainingReason = Literal["failed", "shared", "archived"]


class _RemainingTranscript(TypedDict):
    # The same as a sentence.
    message: str

    # Why it remains.
    reason: RemainingReason

    # The session.
    upstreamId: UpstreamId


@final
class RemainingTranscript(_RemainingTranscript, total=False):
    """A transcript that should have been deleted with its conversation, and remains."""

    # The path of the transcript, or of its folder of side files if only that remains; absent if unknown.
    path: str


@final
class Repairs(TypedDict):
    """The changes in a repaired copy, compared with its source. Absent counts are 0."""

    # Tool results that were filled in, as the agent does it.
    filledIn: int

    # Records whose parents are missing and that were attached to another record.
    joined: int

    # Lines that are not records and were left out.
    leftOut: int


@final
class ResetEvent(TypedDict):
    """The user reset the conversation: its chain is empty."""

    type: Literal["reset"]


@final
class RespondAnswer(TypedDict, total=False):
    """The answer of `conversation/respond`."""

    # The turn that the answer started; absent if it started none.
    turnId: TurnId


class _RestoreAnswer(TypedDict):
    # The paths of the restored files; empty if nothing was missing.
    restored: List[str]


@final
class RestoreAnswer(_RestoreAnswer, total=False):
    """The answer of `transcript/restore`."""

    # How many acknowledged turns of the session are newer than the restored copy, as far as known; absent when 0.
    missingTurns: int


@final
class ResumeAnswer(TypedDict):
    """The answer of `conversation/resume`."""

    # The conversation after the call.
    conversation: Conversation

    # How the session was reopened.
    resumed: Resumed


@final
class Resumed(TypedDict):
    """How a conversation was reopened, and what was lost."""

    # All attempts, in order; the last one worked.
    attempts: List[Attempt]

    # How much of the history the agent has.
    fidelity: Fidelity

    # How many turns the agent lacks, at least: where a damaged transcript does not show how many turns a gap held,
    # the gap counts as one. 0 if the fidelity is `full`; also 0 if it is `partial` and the turns cannot be counted,
    # as in a damaged Codex transcript.
    missingTurns: int

    # The session that is open now.
    upstreamId: UpstreamId

    # How it was opened.
    via: Via


@final
class ResumedEvent(TypedDict):
    """The session was reopened."""

    # How.
    resumed: Resumed

    type: Literal["resumed"]

# The role of a message's author.
Role = Literal["user", "assistant"]

# Why a conversation rolled to another upstream id.
RollCause = Literal["limit", "forgotten", "lost", "damaged", "cleared", "foreign", "agentDied", "other"]


class _RolledEvent(TypedDict):
    # Why.
    cause: RollCause

    # How much of the history the new session has.
    fidelity: Fidelity

    # The new id.
    to: UpstreamId

    type: Literal["rolled"]


_RolledEventMembers = TypedDict(
    "_RolledEventMembers",
    {
        # The previous id.
        "from": "UpstreamId",
    },
    total=False,
)


@final
class RolledEvent(_RolledEventMembers, _RolledEvent):
    """The conversation continues under another upstream id."""


@final
class RunningTurn(TypedDict):
    """The running turn, as a client that subscribes receives it."""

    # The prompt.
    prompt: List[Dict[str, Any]]

    # When the turn began. Includes the time to reopen the session, so it is before `promptAccepted`; excludes the
    # time in the queue.
    startedAt: str

    # Whether older updates were omitted.
    truncated: bool

    # The turn.
    turnId: TurnId

    # ACP's updates of this turn so far; only the newest if `truncated` is true.
    updates: List[Any]


@final
class SessionInfo(TypedDict, total=False):
    """What the agent last reported about its session, in ACP's shapes. A member is absent until it was reported."""

    # The slash commands that a prompt may use.
    commands: Any

    # The configuration options and their values.
    configOptions: Any

    # The modes, and the current one.
    modes: Any

    # The other members of the answer with which the agent opened the session, such as `models` and `_meta`.
    other: Any

    # The latest plan.
    plan: Any

    # The latest usage.
    usage: Any


@final
class Settings(TypedDict, total=False):
    """How to set up the sessions of a conversation. Applied again after each resume and fork."""

    # More folders that the agent may use, as absolute paths.
    additionalDirectories: List[str]

    # Configuration options: id to value. An update with `null` removes an option, so that it is not applied again.
    config: Dict[str, Any]

    # MCP servers, in ACP's shape.
    mcpServers: List[Any]

    # The session mode, by the agent's id for it.
    mode: str

    # The model, by the agent's name for it.
    model: str

    # Text to add to the agent's own system prompt.
    systemPrompt: str

# The severity of a diagnostic. In Rust, `Unknown` ranks above `Error`, so that nothing serious is overlooked.
Severity = Literal["ok", "note", "warning", "error"]


class _SnapshotEvent(TypedDict):
    # The conversation.
    conversation: Conversation

    # Whether events were missed since the cursor that was asked for.
    gap: bool

    type: Literal["snapshot"]


@final
class SnapshotEvent(_SnapshotEvent, total=False):
    """The conversation as it is now. The first event of a subscription that does not continue after a cursor."""

    # The running turn.
    running: RunningTurn

    # What the agent last reported about its session.
    session: SessionInfo

    # The turn whose prompt was not accepted yet. `promptAccepted` follows, unless the prompt fails or is cancelled.
    unaccepted: UnacceptedTurn


@final
class StateChangedEvent(TypedDict):
    """The conversation's state changed."""

    # The new state.
    state: ConversationState

    type: Literal["stateChanged"]

# Why a turn stopped: ACP's stop reasons, and `failed`.
StopReason = Union[Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "failed"], str]


class _StoreStatus(TypedDict):
    # Whether the store is in memory only.
    ephemeral: bool

    # The size of the journal in bytes.
    journalBytes: int

    # The sequence number of the last durable change.
    sequence: int


@final
class StoreStatus(_StoreStatus, total=False):
    """The status of the store."""

    # Why changes can no longer be made durable; absent while they can.
    failure: str

    # The path to which a store that could not be opened was moved; absent unless that happened at this start.
    setAside: str


class _Transcript(TypedDict):
    # The agent whose transcript folder contains it.
    agent: AgentName

    # The size of the file in bytes.
    bytes: int

    # The folder that the agent worked in; empty if the transcript does not say.
    cwd: str

    # The path of the file.
    path: str

    # The title that the user gave, else the one that the agent made, else the first line that the user wrote; empty
    # if there is none. At most 200 characters.
    title: str

    # The time of the last record; if it has none, of the file's last change.
    updatedAt: str

    # The session. Several files can belong to one session: copies in other folders.
    upstreamId: UpstreamId


@final
class Transcript(_Transcript, total=False):
    """A transcript on disk."""

    # The conversation that has or had the session; of several, the one whose head it is. Absent if none.
    conversationId: ConversationId

    # The session that it was forked from; absent if the transcript does not say.
    forkedFrom: UpstreamId

    # The number of turns, if known without reading the whole file: while the daemon caches what it read of the file
    # for another call. Its absence means nothing about the transcript.
    turns: int


class _TranscriptPage(TypedDict):
    # The transcripts, newest first.
    transcripts: List[Transcript]


@final
class TranscriptPage(_TranscriptPage, total=False):
    """The answer of `transcript/list`: one page."""

    # The cursor of the next page; absent on the last page.
    nextCursor: Cursor

    # Files and folders that could not be read, so that the list lacks their transcripts; only some if there are many.
    # Absent when there are none.
    unreadable: List[str]

    # Transcript folders whose changes cannot be watched. Lists are still correct, but slower; changes by other
    # programs cause no events. Absent when there are none.
    unwatched: List[Unwatched]

# What to do with the agent's transcripts when a conversation is deleted.
TranscriptsOnDelete = Literal["keep", "delete"]


class _TreeAnswer(TypedDict):
    # The first ancestor and all that branched off it: each conversation after its parent, and the branches of one
    # conversation oldest first.
    conversations: List[TreeMember]


@final
class TreeAnswer(_TreeAnswer, total=False):
    """The answer of `conversation/tree`."""

    # The conversation that the first one branched off, if it was deleted or is not on this machine; absent otherwise.
    missingParent: ConversationId

    # Whether there are more branches than one answer holds, 1,000 at most. Absent when false.
    truncated: bool


@final
class TreeMember(TypedDict):
    """A conversation of a tree."""

    # The conversation. Its `parent` says where it branched off.
    conversation: Conversation

    # Its whole lineage, as `conversation/lineage` returns it.
    entries: List[LineageEntry]

    # Its chain, as `conversation/chain` returns it.
    links: List[Link]


_TreeMoveMembers = TypedDict(
    "_TreeMoveMembers",
    {
        # When it was moved.
        "at": "str",
        # How many conversations were moved.
        "conversations": "int",
        # The old folder, as the call named it.
        "from": "str",
        # How many files were moved.
        "moved": "int",
        # The new folder.
        "to": "str",
        # The id for `transcript/undo`.
        "undoId": "str",
        # Until when it can be undone.
        "until": "str",
    },
)


@final
class TreeMove(_TreeMoveMembers):
    """A folder move that can be undone."""


class _TreeMoveAnswer(TypedDict):
    # How many files were moved; 0 for a dry run.
    moved: int

    # The files to move, and where to.
    plan: List[PlannedMove]


@final
class TreeMoveAnswer(_TreeMoveAnswer, total=False):
    """The answer of `transcript/move` and of `transcript/undo`."""

    # The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when it is
    # needed, for example by the next prompt. Absent when there are none.
    kept: List[UpstreamId]

    # The files that are not moved, each with the reason; absent if there are none.
    leftOut: List[str]

    # The id for `transcript/undo`; absent if nothing was moved, and after an undo.
    undoId: str


@final
class TreeMoveList(TypedDict):
    """The answer of `transcript/moves`."""

    # The moves, newest first.
    moves: List[TreeMove]


@final
class TurnEndedEvent(TypedDict):
    """A turn ended."""

    # How it ended.
    turn: TurnResult

    type: Literal["turnEnded"]

# The id of a turn: one prompt of a conversation, from its acceptance into the queue to its end.
TurnId = str


class _TurnResult(TypedDict):
    # Why it stopped.
    stopReason: StopReason

    # The turn.
    turnId: TurnId


@final
class TurnResult(_TurnResult, total=False):
    """The result of a turn."""

    # The scheduled continuation; absent if none. A turn schedules one if it hit a usage limit and `onLimit` was
    # `wait`, if it was itself a continuation and can be tried again, or if it was interrupted because another
    # conversation may have ended the agent's process.
    continuation: Continuation

    # Why it failed; absent unless `stopReason` is `failed`.
    failure: Failure

    # The other members of the agent's answer to the prompt, such as `_meta`; absent if there are none.
    other: Any

    # How the session was reopened; absent if this prompt did not have to reopen it.
    resumed: Resumed

    # The session that it ran on; absent (in Rust empty) if the turn was cancelled before it had one.
    upstreamId: UpstreamId

    # The usage that the agent reports, in ACP's shape; absent if it reports none.
    usage: Any


@final
class UnacceptedTurn(TypedDict):
    """A turn whose prompt was not accepted yet: its session is being opened, or the agent has not begun to work."""

    # The prompt.
    prompt: List[Dict[str, Any]]

    # When the turn began.
    startedAt: str

    # The turn.
    turnId: TurnId


@final
class UnchangedLines(TypedDict):
    """A session that was imported with lines that could not be adapted: they still have the session ids and folders of
    the machine that exported them, and the agent may skip them.
    """

    # The agent of the session.
    agent: AgentName

    # The number of these lines.
    lines: int

    # The session, by its id on this machine.
    upstreamId: UpstreamId


class _UnclaimedSession(TypedDict):
    # The disk space that its copies use, in bytes. A copy that is still a link to the agent's own file counts as 0.
    bytes: int

    # When the session was last written to.
    changedAt: str

    # The session, by the agent's own id.
    upstreamId: UpstreamId


@final
class UnclaimedSession(_UnclaimedSession, total=False):
    """A session with kept copies that no conversation has: its conversation was deleted, or it never had one."""

    # The agent of the session; absent if no configured agent has that transcript folder any more.
    agent: AgentName

    # The title of the deleted conversation that had the session; absent if it had none.
    title: str


class _UndoAnswer(TypedDict):
    # The conversation after the call.
    conversation: Conversation

    # How many turns of the abandoned branch the history lost; 0 for an undone move.
    dropped: int

    # The session that is the head again. After an undone move it is the same session, in its previous folder.
    link: Link


@final
class UndoAnswer(_UndoAnswer, total=False):
    """The answer of `conversation/undo`."""

    # The folders of the undone move; absent if no move was undone.
    moved: MovedFolder

    # What was undone: `edited`, `forked` in place, `moved`, `reset`, or `rolled` if the agent had cleared its
    # context. Absent if the conversation had left the session because the agent did not open it.
    undone: LineageReason


@final
class UndoneEvent(TypedDict):
    """An edit, a fork in place, a move or a reset was undone."""

    # How many turns of the abandoned branch the history lost.
    dropped: int

    # The session that is the head again.
    link: Link

    type: Literal["undone"]


@final
class Unwatched(TypedDict):
    """A folder whose changes cannot be watched."""

    # The folder.
    path: str

    # Why it cannot be watched.
    problem: str


class _UpdateEvent(TypedDict):
    type: Literal["update"]

    # ACP's update.
    update: Any


@final
class UpdateEvent(_UpdateEvent, total=False):
    """An update of the agent: ACP's `update`, byte for byte."""

    # The turn that it belongs to; absent outside a turn and after its end.
    turnId: TurnId


@final
class UpdatedEvent(TypedDict):
    """Something else that clients show changed: title, folder, settings, queued prompts."""

    # The conversation as it is now.
    conversation: Conversation

    type: Literal["updated"]

# The id of an upstream session: the agent's own, opaque, unique within one transcript root, and the name of its
# transcript.
UpstreamId = str


@final
class Usage(TypedDict, total=False):
    """How much of the model's context the conversation fills, and what it has cost, as the agent last reported it."""

    # The cost so far, in ACP's shape: `amount` and `currency`.
    cost: Any

    # How many tokens the context holds.
    size: int

    # How many tokens of the context are used.
    used: int

# How a session was reopened.
Via = Literal["live", "resume", "load", "freshProcess", "located", "archive", "copied", "rebuilt", "olderLink", "text", "fresh"]


class _Work(TypedDict):
    # How many bytes are done.
    doneBytes: int

    # The method.
    method: str

    # How many bytes there are in total, as far as known yet.
    totalBytes: int


@final
class Work(_Work, total=False):
    """The progress of a call that takes long because it reads or writes many files."""

    # The conversation that the call is about; absent if it is about none.
    conversationId: ConversationId


@final
class WorkAnswer(TypedDict):
    """The answer of `daemon/work`."""

    # The running calls, oldest first.
    work: List[Work]

# Calls a method: its name, its parameters, and whether a missing `requestId` is added.
Call = Callable[[str, Dict[str, Any], bool], Awaitable[Any]]


class DaemonMethods:
    """Methods of the group `daemon`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def status(
        self,
    ) -> DaemonStatus:
        """Shows how the daemon is doing."""
        result: DaemonStatus = await self._call(
            "daemon/status",
            {
            },
            False,
        )
        return result

    async def work(
        self,
    ) -> WorkAnswer:
        """Lists the running calls that read or write many files, oldest first, and how far each has come."""
        result: WorkAnswer = await self._call(
            "daemon/work",
            {
            },
            False,
        )
        return result

    async def diagnose(
        self,
        *,
        agents: Optional[bool] = None,
        path: Optional[str] = None,
    ) -> Diagnosis:
        """Checks what the daemon depends on: its store, disk space, agents, their transcripts and for how long they keep
        them, and left-over processes. Changes nothing, except that a journal with damaged lines is written anew from
        the database while changes wait.

        `agents`: Whether to start agents that do not run and ask for their version. Default: true.

        `path`: The caller's own `PATH`: reports agents that are found there and not on the daemon's. Default: only
        the daemon's own is searched.
        """
        result: Diagnosis = await self._call(
            "daemon/diagnose",
            {
                "agents": agents,
                "path": path,
            },
            False,
        )
        return result

    async def shutdown(
        self,
        *,
        graceMs: Optional[int] = None,
    ) -> Empty:
        """Stops the daemon. Running turns get some time to end.

        `graceMs`: For how long running turns may still run, in milliseconds. Default: the configured
        `cancel_grace_ms`.
        """
        result: Empty = await self._call(
            "daemon/shutdown",
            {
                "graceMs": graceMs,
            },
            False,
        )
        return result


class RpcMethods:
    """Methods of the group `rpc`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def discover(
        self,
    ) -> OpenRpcDocument:
        """Returns this document: the methods, events and errors of the daemon as OpenRPC."""
        result: OpenRpcDocument = await self._call(
            "rpc.discover",
            {
            },
            False,
        )
        return result


class AgentMethods:
    """Methods of the group `agent`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def list(
        self,
    ) -> AgentList:
        """Lists the configured agents and the built-in `loopback`."""
        result: AgentList = await self._call(
            "agent/list",
            {
            },
            False,
        )
        return result

    async def authenticate(
        self,
        *,
        agent: AgentName,
        methodId: str,
        requestId: Optional[str] = None,
    ) -> Empty:
        """Signs in to an agent by one of its own methods.

        `agent`: The agent to sign in to.

        `methodId`: One of the agent's `authMethods`, as `agent/list` reports them.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: Empty = await self._call(
            "agent/authenticate",
            {
                "agent": agent,
                "methodId": methodId,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def logout(
        self,
        *,
        agent: AgentName,
        reset: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> Empty:
        """Signs out of an agent.

        `agent`: The agent to sign out of.

        `reset`: Whether to clear the chains of its conversations too. Default: false.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: Empty = await self._call(
            "agent/logout",
            {
                "agent": agent,
                "reset": reset,
                "requestId": requestId,
            },
            True,
        )
        return result


class ConversationMethods:
    """Methods of the group `conversation`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def new(
        self,
        *,
        cwd: str,
        agent: Optional[AgentName] = None,
        title: Optional[str] = None,
        namespace: Optional[str] = None,
        open: Optional[bool] = None,
        settings: Optional[Settings] = None,
        requestId: Optional[str] = None,
    ) -> ConversationAnswer:
        """Creates a conversation. Its upstream session is opened at the first prompt or resume.

        `cwd`: The folder to run in: the absolute path of an existing folder.

        `agent`: The agent to talk to. Default: the configured default agent.

        `title`: The title. Default: none.

        `namespace`: The app that the conversation belongs to, in the app's own words. Default: none.

        `open`: Whether to open the upstream session at once. If that fails, the conversation exists all the same: the
        error's `conversationId` names it, and it can be prompted. Default: false.

        `settings`: How to set up its sessions. Default: the agent's own settings.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ConversationAnswer = await self._call(
            "conversation/new",
            {
                "cwd": cwd,
                "agent": agent,
                "title": title,
                "namespace": namespace,
                "open": open,
                "settings": settings,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def list(
        self,
        *,
        namespace: Optional[str] = None,
        agent: Optional[AgentName] = None,
        cwd: Optional[str] = None,
        state: Optional[ConversationState] = None,
        cutShort: Optional[bool] = None,
        query: Optional[str] = None,
        cursor: Optional[Cursor] = None,
        limit: Optional[int] = None,
    ) -> ConversationPage:
        """Lists conversations, newest first.

        `namespace`: Only those of this app. Default: all.

        `agent`: Only those of this agent. Default: all.

        `cwd`: Only those that run in this absolute folder, whichever path leads to it. Default: any folder.

        `state`: Only those in this state. Default: any state.

        `cutShort`: Only those with an interrupted turn or a held prompt (true), or only the others (false). Default:
        both.

        `query`: Words, each of which must be in the title, the folder or the agent, in any case, or begin the id.
        Default: all.

        `cursor`: The `nextCursor` of the previous page. Default: the first page.

        `limit`: The most entries to return, up to 500. Default: 50.
        """
        result: ConversationPage = await self._call(
            "conversation/list",
            {
                "namespace": namespace,
                "agent": agent,
                "cwd": cwd,
                "state": state,
                "cutShort": cutShort,
                "query": query,
                "cursor": cursor,
                "limit": limit,
            },
            False,
        )
        return result

    async def get(
        self,
        *,
        conversationId: ConversationRef,
    ) -> ConversationAnswer:
        """Returns one conversation.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.
        """
        result: ConversationAnswer = await self._call(
            "conversation/get",
            {
                "conversationId": conversationId,
            },
            False,
        )
        return result

    async def resolve(
        self,
        *,
        name: str,
        cwd: Optional[str] = None,
    ) -> ConversationAnswer:
        """Finds the conversation that a user means by what they typed.

        `name`: A conversation's id, an upstream id that it ever had, or a prefix of either of 6 characters or more;
        or a part of its title, in any case, if no other title contains it; or `.`: the conversation of `cwd` that was
        last found there by this method, else the newest of that folder. If several match, the error's `candidates`
        have the `id` and `title` of each; if none does, its `transcripts` have those of the transcripts whose ids
        begin so.

        `cwd`: The absolute folder that the user is in. If the conversation runs there, `.` means this conversation
        from now on. Needed for `.`.
        """
        result: ConversationAnswer = await self._call(
            "conversation/resolve",
            {
                "name": name,
                "cwd": cwd,
            },
            False,
        )
        return result

    async def tree(
        self,
        *,
        conversationId: ConversationRef,
    ) -> TreeAnswer:
        """Returns the conversations that are related by forks: the first ancestor, and everything that branched off it.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.
        """
        result: TreeAnswer = await self._call(
            "conversation/tree",
            {
                "conversationId": conversationId,
            },
            False,
        )
        return result

    async def update(
        self,
        *,
        conversationId: ConversationRef,
        title: Optional[str] = None,
        settings: Optional[Settings] = None,
        expectedRevision: Optional[int] = None,
        requestId: Optional[str] = None,
    ) -> ConversationAnswer:
        """Changes the title or the settings. Model, mode and options apply to an open session at once. An agent takes a
        system prompt, MCP servers and folders when it opens a session: the session is reopened before the next turn,
        unless the agent cannot reopen sessions, a background command runs, or other conversations use the same Codex
        process.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `title`: The new title. Default: unchanged.

        `settings`: The settings that change; the others stay. Default: none changes.

        `expectedRevision`: The `revision` that the caller has seen; any other is refused as `revisionMismatch`.
        Default: any revision.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ConversationAnswer = await self._call(
            "conversation/update",
            {
                "conversationId": conversationId,
                "title": title,
                "settings": settings,
                "expectedRevision": expectedRevision,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def prompt(
        self,
        *,
        conversationId: ConversationRef,
        prompt: Union[List[Dict[str, Any]], str],
        onBusy: Optional[OnBusy] = None,
        onLimit: Optional[OnLimit] = None,
        minFidelity: Optional[Fidelity] = None,
        requestId: Optional[str] = None,
    ) -> TurnResult:
        """Sends a prompt, and answers when its turn has ended.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `prompt`: A text, or ACP's content blocks.

        `onBusy`: What to do while another turn runs. Default: `fail`.

        `onLimit`: What to do at a usage limit. Default: `fail`.

        `minFidelity`: The least that the session must have of the history; with less the prompt is refused as
        `notResumable`. Default: `text`.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: TurnResult = await self._call(
            "conversation/prompt",
            {
                "conversationId": conversationId,
                "prompt": prompt,
                "onBusy": onBusy,
                "onLimit": onLimit,
                "minFidelity": minFidelity,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def continue_(
        self,
        *,
        conversationId: ConversationRef,
        at: Optional[ContinueAt] = None,
        text: Optional[Union[List[Dict[str, Any]], str]] = None,
        cancel: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> ContinueAnswer:
        """Schedules the conversation to continue what a limit, a crash or a stop interrupted. If the agent's transcript
        does not contain the interrupted prompt, that prompt is sent again. If it does, `text` is sent, or a short
        text of the daemon's. If no prompt was interrupted, `text` is sent.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `at`: When: `reset` (the end of the usage limit), `now`, or a time. Needed unless `cancel` is true.

        `text`: What to send if the transcript contains the interrupted prompt, or if none was interrupted. Default:
        the text of the scheduled continuation, otherwise a short text of the daemon's.

        `cancel`: Whether to cancel the scheduled continuation. Default: false.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ContinueAnswer = await self._call(
            "conversation/continue",
            {
                "conversationId": conversationId,
                "at": at,
                "text": text,
                "cancel": cancel,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def cancel(
        self,
        *,
        conversationId: ConversationRef,
        turnId: Optional[TurnId] = None,
        queued: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> CancelAnswer:
        """Cancels a turn, and answers when it has ended.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `turnId`: The turn to cancel, running or queued. Default: the running one.

        `queued`: Whether to cancel the queued turns too. Default: false.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: CancelAnswer = await self._call(
            "conversation/cancel",
            {
                "conversationId": conversationId,
                "turnId": turnId,
                "queued": queued,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def resume(
        self,
        *,
        conversationId: ConversationRef,
        minFidelity: Optional[Fidelity] = None,
        requestId: Optional[str] = None,
    ) -> ResumeAnswer:
        """Opens the conversation's session without sending a prompt.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `minFidelity`: The least that the session must have of the history; with less the call is refused as
        `notResumable`. Default: `text`.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ResumeAnswer = await self._call(
            "conversation/resume",
            {
                "conversationId": conversationId,
                "minFidelity": minFidelity,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def fork(
        self,
        *,
        conversationId: ConversationRef,
        inPlace: Optional[bool] = None,
        at: Optional[str] = None,
        cwd: Optional[str] = None,
        title: Optional[str] = None,
        minFidelity: Optional[Fidelity] = None,
        requestId: Optional[str] = None,
    ) -> ForkAnswer:
        """Forks a conversation: into a new one, or in place, as a new head of the same one.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `inPlace`: Whether the branch becomes the head of this conversation. Default: false, a new conversation.

        `at`: The last checkpoint or message that the branch contains, by its id. Default: the head. A message inside
        a turn is rounded: back to the last message before which every tool call has its result; for Codex forward to
        the end of its turn. `link.fromCheckpointId` says where the branch begins.

        `cwd`: The folder for the branch: the absolute path of an existing folder. Default: this conversation's.

        `title`: The branch's title. Default: this conversation's.

        `minFidelity`: The least that the branch must have of the history. Default: `text`.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ForkAnswer = await self._call(
            "conversation/fork",
            {
                "conversationId": conversationId,
                "inPlace": inPlace,
                "at": at,
                "cwd": cwd,
                "title": title,
                "minFidelity": minFidelity,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def edit(
        self,
        *,
        conversationId: ConversationRef,
        at: str,
        prompt: Union[List[Dict[str, Any]], str],
        minFidelity: Optional[Fidelity] = None,
        requestId: Optional[str] = None,
    ) -> EditAnswer:
        """Replaces the prompt of a turn, finished or not: the history before that turn continues with the new prompt.
        Answers when the new turn has ended.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `at`: The checkpoint of the turn whose prompt is replaced, or the message of that prompt, by its id.

        `prompt`: The new prompt: a text, or ACP's content blocks.

        `minFidelity`: The least that the new turn must have of the history before it. Default: `text`.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: EditAnswer = await self._call(
            "conversation/edit",
            {
                "conversationId": conversationId,
                "at": at,
                "prompt": prompt,
                "minFidelity": minFidelity,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def undo(
        self,
        *,
        conversationId: ConversationRef,
        requestId: Optional[str] = None,
    ) -> UndoAnswer:
        """Undoes the last edit, fork in place, move or reset, then the one before it.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: UndoAnswer = await self._call(
            "conversation/undo",
            {
                "conversationId": conversationId,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def move(
        self,
        *,
        conversationId: ConversationRef,
        cwd: str,
        dryRun: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> MoveAnswer:
        """Moves a conversation to another folder: its transcripts and side files are moved to where the agent looks for
        them there, and name the new folder. Files that differ are never replaced. Refused as busy while a turn runs
        or another program writes.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `cwd`: The new folder: the absolute path of an existing folder.

        `dryRun`: Whether to return the plan and change nothing. Default: false.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: MoveAnswer = await self._call(
            "conversation/move",
            {
                "conversationId": conversationId,
                "cwd": cwd,
                "dryRun": dryRun,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def chain(
        self,
        *,
        conversationId: ConversationRef,
    ) -> ChainAnswer:
        """Lists the upstream sessions that can be resumed, oldest first; the last is the head.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.
        """
        result: ChainAnswer = await self._call(
            "conversation/chain",
            {
                "conversationId": conversationId,
            },
            False,
        )
        return result

    async def lineage(
        self,
        *,
        conversationId: ConversationRef,
        cursor: Optional[Cursor] = None,
        limit: Optional[int] = None,
    ) -> LineagePage:
        """Lists everything that ever happened to the chain, oldest first.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `cursor`: The `nextCursor` of the previous page. Default: the first page.

        `limit`: The most entries to return, up to 1,000. Default: 100.
        """
        result: LineagePage = await self._call(
            "conversation/lineage",
            {
                "conversationId": conversationId,
                "cursor": cursor,
                "limit": limit,
            },
            False,
        )
        return result

    async def checkpoints(
        self,
        *,
        conversationId: ConversationRef,
        before: Optional[CheckpointId] = None,
        limit: Optional[int] = None,
    ) -> CheckpointPage:
        """Lists the checkpoints of the current history, newest first. Each stands after a turn.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `before`: Only those before this one: the last of the previous page. Default: from the newest.

        `limit`: The most entries to return, up to 500. Default: 50.
        """
        result: CheckpointPage = await self._call(
            "conversation/checkpoints",
            {
                "conversationId": conversationId,
                "before": before,
                "limit": limit,
            },
            False,
        )
        return result

    async def history(
        self,
        *,
        conversationId: ConversationRef,
        cursor: Optional[Cursor] = None,
        limit: Optional[int] = None,
        last: Optional[int] = None,
        as_: Optional[HistoryForm] = None,
    ) -> HistoryPage:
        """Returns the messages of the current history, over all of its sessions, oldest first: from the beginning, from
        `cursor`, or the `last` ones. With `last` and `limit` the page is the beginning of those, and `nextCursor`
        leads to the rest.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `cursor`: The `nextCursor` or `previousCursor` of a page. Not with `last`. Default: the beginning. After
        edits, its position may be missing, and it is refused: read again from the end, with `last`.

        `limit`: The most messages to return, up to 1,000. Default: 100.

        `last`: Only the last N messages, up to 1,000; any number with `limit`. Default: all.

        `as_`: Whether to return the messages themselves or as ACP's updates; `limit` and `last` count messages either
        way. Default: `messages`.
        """
        result: HistoryPage = await self._call(
            "conversation/history",
            {
                "conversationId": conversationId,
                "cursor": cursor,
                "limit": limit,
                "last": last,
                "as": as_,
            },
            False,
        )
        return result

    async def respond(
        self,
        *,
        conversationId: ConversationRef,
        interruptId: InterruptId,
        outcome: Any,
        by: Optional[str] = None,
        requestId: Optional[str] = None,
    ) -> RespondAnswer:
        """Answers a question of the agent. The first answer wins.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `interruptId`: The question: the `id` of an interrupt.

        `outcome`: ACP's outcome.

        `by`: Who answers, as other clients see it: a name of 1 to 64 characters, without control characters, and not
        `agent`, `cancel`, `edit`, `fork`, `policy`, `reset` or `undo`. Default: `client`.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: RespondAnswer = await self._call(
            "conversation/respond",
            {
                "conversationId": conversationId,
                "interruptId": interruptId,
                "outcome": outcome,
                "by": by,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def close(
        self,
        *,
        conversationId: ConversationRef,
        requestId: Optional[str] = None,
    ) -> Empty:
        """Closes the session. The next prompt reopens it.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: Empty = await self._call(
            "conversation/close",
            {
                "conversationId": conversationId,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def reset(
        self,
        *,
        conversationId: ConversationRef,
        requestId: Optional[str] = None,
    ) -> ConversationAnswer:
        """Starts an empty session in the same conversation: the chain is empty until the next prompt, the lineage stays.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ConversationAnswer = await self._call(
            "conversation/reset",
            {
                "conversationId": conversationId,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def delete(
        self,
        *,
        conversationId: ConversationRef,
        transcripts: Optional[TranscriptsOnDelete] = None,
        requestId: Optional[str] = None,
    ) -> DeleteAnswer:
        """Deletes a conversation for good; its id is never used again. The answer lists the transcripts that remain, and
        why. Transcripts of sessions that were adopted along with another always remain.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `transcripts`: Whether to keep or delete the agents' transcripts. Default: `keep`.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: DeleteAnswer = await self._call(
            "conversation/delete",
            {
                "conversationId": conversationId,
                "transcripts": transcripts,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def adopt(
        self,
        *,
        upstreamId: UpstreamId,
        agent: Optional[AgentName] = None,
        cwd: Optional[str] = None,
        title: Optional[str] = None,
        requestId: Optional[str] = None,
    ) -> AdoptAnswer:
        """Makes a conversation of a transcript that another program made; the next prompt resumes it. If a conversation
        already has the session, returns that conversation. The sessions that it came from, as far as the files say,
        join the chain unless another conversation has them.

        `upstreamId`: The session, by the agent's own id, or the first 6 or more characters of it if no other
        session's id starts so.

        `agent`: The agent of the session. Needed where several agents have a transcript with this id. Default: the
        agent that has one.

        `cwd`: The folder to run in: the absolute path of an existing folder. Default: the transcript's own.

        `title`: The title. Default: that of a deleted conversation that had the session, else the transcript's own.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: AdoptAnswer = await self._call(
            "conversation/adopt",
            {
                "upstreamId": upstreamId,
                "agent": agent,
                "cwd": cwd,
                "title": title,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def export(
        self,
        *,
        conversationId: ConversationRef,
        format: Optional[ExportFormat] = None,
        path: Optional[str] = None,
        secrets: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> ExportAnswer:
        """Writes a conversation to one file that only its owner may read. As `json`: the messages, for other programs;
        without a `path` the answer itself contains them, as far as an answer can. As `bundle`: what
        `conversation/import` reads, with the agents' transcripts, as of the call. If the daemon is killed before it
        answers, the file may be there already: a repetition with the same `requestId` and `path` is then refused with
        `conflict`.

        `conversationId`: The conversation: its id, an upstream id that it ever had, or a prefix of either of 6
        characters or more.

        `format`: What to write. Default: `json`.

        `path`: The file to create: an absolute path of a file that does not exist. Default: with `json` none, the
        answer contains the messages; with `bundle` a file in the folder `exports` of the daemon's data.

        `secrets`: Whether to include the values of MCP servers' `env` and `headers`. Default: false; `missingValues`
        names them.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ExportAnswer = await self._call(
            "conversation/export",
            {
                "conversationId": conversationId,
                "format": format,
                "path": path,
                "secrets": secrets,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def import_(
        self,
        *,
        path: str,
        cwd: Optional[str] = None,
        sameFolders: Optional[bool] = None,
        newIds: Optional[bool] = None,
        trustSettings: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> ImportAnswer:
        """Imports the conversation of a bundle: its transcripts are put where the agents of this machine look for them,
        and the next prompt resumes it. The whole file is checked before anything is put in place. Of its settings
        only the model is taken, since another person may have made the file; `leftOut` names the others.

        The bundle names the folders in which the conversation and its sessions ran: give `cwd` or `sameFolders`.

        `path`: The bundle: an absolute path.

        `cwd`: The folder to run in: the absolute path of an existing folder. A session of a folder below the bundle's
        own runs in the same folder below this one, if that exists. Default: none, `sameFolders` has to be true.

        `sameFolders`: Whether to use the folders that the bundle names; they have to exist. Only for a bundle of your
        own. Default: false.

        `newIds`: Whether to give the conversation and its sessions new ids. Default: false, and ids that exist here
        are a conflict.

        `trustSettings`: Whether to take all of its settings. Default: false, only the model.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ImportAnswer = await self._call(
            "conversation/import",
            {
                "path": path,
                "cwd": cwd,
                "sameFolders": sameFolders,
                "newIds": newIds,
                "trustSettings": trustSettings,
                "requestId": requestId,
            },
            True,
        )
        return result


class TranscriptMethods:
    """Methods of the group `transcript`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def list(
        self,
        *,
        agent: Optional[AgentName] = None,
        cwd: Optional[str] = None,
        query: Optional[str] = None,
        cursor: Optional[Cursor] = None,
        limit: Optional[int] = None,
    ) -> TranscriptPage:
        """Lists the transcripts that the agents keep on this machine, whichever program made them, newest first. Covers
        Claude Code, Codex, Qwen Code and `loopback`. The first page shows the files as they are now; later pages show
        the same moment.

        `agent`: Only those of this agent. Default: all agents whose transcripts can be listed.

        `cwd`: Only those of this absolute folder. Default: any folder.

        `query`: Words, each of which must be in the title, the folder, the path or the id, in any case. Default: all.

        `cursor`: The `nextCursor` of the previous page. Default: the first page.

        `limit`: The most entries to return, up to 500. Default: 50.
        """
        result: TranscriptPage = await self._call(
            "transcript/list",
            {
                "agent": agent,
                "cwd": cwd,
                "query": query,
                "cursor": cursor,
                "limit": limit,
            },
            False,
        )
        return result

    async def check(
        self,
        *,
        upstreamId: Optional[UpstreamId] = None,
        conversationId: Optional[ConversationRef] = None,
        agent: Optional[AgentName] = None,
        repair: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> CheckAnswer:
        """Checks a transcript, or that of a conversation's head, for damage, and says what the damage means for a
        resume. Never changes the transcript itself. If the transcript is missing, its kept copy is checked; a repair
        restores that copy first.

        With `repair`, writes a sound copy under a new id: lines that are not records are left out, records whose
        parents are missing are attached to the record before them, and tool calls without results get the result that
        the agent itself would fill in. The answer names the copy as `repaired` and, as `fidelity`, how much of the
        session it has; there is no copy where nothing needs repair. A conversation whose head is repaired continues
        with the copy: its session is closed and the copy joins the chain as `rebuilt`; during a turn or an open
        question that is `busy`. A session in the past of a conversation is refused with `conflict`. The copy of a
        session that no conversation has belongs to none until it is adopted.

        `upstreamId`: The session, by the agent's own id, or the first 6 or more characters of it if no other
        session's id starts so. Either this or `conversationId`.

        `conversationId`: The conversation. Either this or `upstreamId`.

        `agent`: The agent of `upstreamId`. Needed where several agents have a session with this id.

        `repair`: Whether to write a repaired copy. Default: false.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: CheckAnswer = await self._call(
            "transcript/check",
            {
                "upstreamId": upstreamId,
                "conversationId": conversationId,
                "agent": agent,
                "repair": repair,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def keep(
        self,
        *,
        upstreamId: Optional[UpstreamId] = None,
        conversationId: Optional[ConversationRef] = None,
        agent: Optional[AgentName] = None,
        requestId: Optional[str] = None,
    ) -> KeepAnswer:
        """Copies the transcripts of a conversation's sessions, or of one session, with their side files into the
        daemon's data folder, as far as they are not copied yet, and returns the size of each copy. If no conversation
        and no session is named, nothing is copied, and the size of all copies together is returned. Works even where
        `[keep]` is disabled.

        `upstreamId`: The session, by the agent's own id, or the first 6 or more characters of it if no other
        session's id starts so. Either this or `conversationId`.

        `conversationId`: The conversation. Either this or `upstreamId`.

        `agent`: The agent of `upstreamId`. Needed where several agents have a session with this id.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: KeepAnswer = await self._call(
            "transcript/keep",
            {
                "upstreamId": upstreamId,
                "conversationId": conversationId,
                "agent": agent,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def restore(
        self,
        *,
        upstreamId: Optional[UpstreamId] = None,
        conversationId: Optional[ConversationRef] = None,
        agent: Optional[AgentName] = None,
        requestId: Optional[str] = None,
    ) -> RestoreAnswer:
        """Restores the kept copies of a conversation's sessions, or of one session, to where the agent looks for them.
        Existing files are never replaced; a transcript that does not contain its kept copy is a conflict. While the
        session is open, its missing transcript is not restored; that is `busy`.

        `upstreamId`: The session, by the agent's own id, or the first 6 or more characters of it if no other
        session's id starts so. Either this or `conversationId`.

        `conversationId`: The conversation. Either this or `upstreamId`.

        `agent`: The agent of `upstreamId`. Needed where several agents have a session with this id.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: RestoreAnswer = await self._call(
            "transcript/restore",
            {
                "upstreamId": upstreamId,
                "conversationId": conversationId,
                "agent": agent,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def forget(
        self,
        *,
        upstreamId: UpstreamId,
        agent: Optional[AgentName] = None,
        requestId: Optional[str] = None,
    ) -> ForgetAnswer:
        """Deletes the kept copies of a session that no conversation has, as `transcript/keep` lists them in `unclaimed`.
        The agent's own transcript stays. The copies of a conversation's session are deleted with the conversation, by
        `conversation/delete` with `transcripts`; here they are a conflict.

        `upstreamId`: The session, by the agent's own id.

        `agent`: The agent of the session. Needed where copies of several agents' sessions with this id are kept.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: ForgetAnswer = await self._call(
            "transcript/forget",
            {
                "upstreamId": upstreamId,
                "agent": agent,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def move(
        self,
        *,
        from_: str,
        to: str,
        dryRun: Optional[bool] = None,
        requestId: Optional[str] = None,
    ) -> TreeMoveAnswer:
        """Follows a project folder that was renamed: everything that ran in the old folder or below it now runs in the
        new one, which has to exist. Covers conversations and transcripts that no conversation has, with their side
        files. Files that differ are never replaced. Moves all or nothing, also when the daemon is killed meanwhile.

        `from_`: The folder's old absolute path.

        `to`: The folder's new absolute path, which exists.

        `dryRun`: Whether to return the plan and change nothing. Default: false.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: TreeMoveAnswer = await self._call(
            "transcript/move",
            {
                "from": from_,
                "to": to,
                "dryRun": dryRun,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def undo(
        self,
        *,
        undoId: str,
        requestId: Optional[str] = None,
    ) -> TreeMoveAnswer:
        """Undoes a folder's move, for 30 days. What was said since stays.

        `undoId`: The move: its `undoId`, as its answer and `transcript/moves` report it.

        `requestId`: The caller's own id of this call: the same id with the same content joins the running call or
        returns its result, for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not
        remembered. 1 to 256 bytes. Default: each call is carried out.
        """
        result: TreeMoveAnswer = await self._call(
            "transcript/undo",
            {
                "undoId": undoId,
                "requestId": requestId,
            },
            True,
        )
        return result

    async def moves(
        self,
    ) -> TreeMoveList:
        """Lists the folder moves that were not undone, for as long as an undo is possible. Whether one can be undone is
        known when that is tried: its files may have been moved again since.
        """
        result: TreeMoveList = await self._call(
            "transcript/moves",
            {
            },
            False,
        )
        return result


class CheckpointMethods:
    """Methods of the group `checkpoint`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def get(
        self,
        *,
        checkpointId: CheckpointId,
        conversationId: Optional[ConversationRef] = None,
    ) -> CheckpointAnswer:
        """Returns a checkpoint and the messages of its turn.

        `checkpointId`: The checkpoint. With `conversationId` also a turn of that conversation's current history as a
        user names it: `3` (the third), `-1` (the last), or the id of a message of it.

        `conversationId`: The conversation whose lineage has to contain it. Default: any.
        """
        result: CheckpointAnswer = await self._call(
            "checkpoint/get",
            {
                "checkpointId": checkpointId,
                "conversationId": conversationId,
            },
            False,
        )
        return result


class Methods:
    """The methods, by the first part of their names."""

    def __init__(self, call: Call) -> None:
        self.daemon = DaemonMethods(call)
        self.rpc = RpcMethods(call)
        self.agent = AgentMethods(call)
        self.conversation = ConversationMethods(call)
        self.transcript = TranscriptMethods(call)
        self.checkpoint = CheckpointMethods(call)
