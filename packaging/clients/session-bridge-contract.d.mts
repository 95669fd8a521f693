// Generated from packaging/openrpc.json, do not edit. To write it again: WRITE_OPENRPC=1 cargo test -p
// bridge-protocol --all-features --test fixtures packaged

/** Whether each method takes a `requestId`. */
export const methods: Record<string, boolean>;

/** Options of each call. An aborted call may still be carried out. */
export interface CallOptions {
  signal?: AbortSignal;
}

/** The answer of `conversation/adopt`. */
export interface AdoptAnswer {
  /**
   * Whether the user archived the session in the agent: it can be read, but the agent refuses to resume it until it
   * is unarchived. Absent when false.
   */
  archived?: boolean;
  /** The conversation after the call. */
  conversation: Conversation;
  /**
   * Findings of `transcript/check` that prevent the agent from resuming the transcript as it is, or from resuming its
   * newest branch; absent when there are none. Not reported if a conversation already had the transcript.
   */
  findings?: Finding[];
  /**
   * The session in whose file the transcript begins, if that file is missing: the history begins after it. Absent if
   * there is none. Not reported if a conversation already had the transcript.
   */
  missing?: MissingSession[];
}

/** An agent: its configuration, and what is known of its program. */
export interface AgentInfo {
  /** ACP's `agentInfo` (name, title, version); absent while the agent is not running. */
  agentInfo?: any;
  /** ACP's sign-in methods; absent while the agent is not running. */
  authMethods?: any;
  /**
   * Who is signed in, as the agent reports it: `kind`, `label` and `detail`; `kind` is `none` when nobody is signed
   * in. Only the adapters of Claude and Codex report it, some time after they start; absent otherwise. It may omit a
   * token from the environment.
   */
  authStatus?: any;
  /** ACP's agent capabilities; absent while the agent is not running. */
  capabilities?: any;
  /** The program and its arguments. */
  command: string[];
  /** Whether this is the default agent, used when a call names none. */
  default: boolean;
  /** Whether a conversation can be forked after an earlier turn. Its end can be forked if ACP's capabilities say so. */
  forkAt: boolean;
  /** Whether the program exists. */
  found: boolean;
  /** The kind of agent: `claude`, `codex`, `gemini`, `opencode`, `qwen`, `loopback` or `generic`. */
  kind: string;
  /** The agent's name in the configuration. */
  name: AgentName;
  /** Whether a process of this agent is running. */
  running: boolean;
}

/** The answer of `agent/list`. */
export interface AgentList {
  /** The agents, in the order of the configuration; always includes `loopback`. */
  agents: AgentInfo[];
  /**
   * How to install the known agents whose programs are not found: the kind, and a shell command. Absent if all are
   * found.
   */
  install?: Record<string, any>;
}

/** The name of an agent: as configured, or a built-in one (`claude`, `codex`, `loopback`). */
export type AgentName = string;

/** One attempt to reopen a session. */
export interface Attempt {
  /** Why it failed; absent if it worked. */
  error?: string;
  /** The session that was tried; absent if the attempt had none. */
  upstreamId?: UpstreamId;
  /** How it was tried. */
  via: Via;
}

/** How a branch was made. */
export type BranchedVia = "native" | "cut" | "text" | "fresh";

/** The answer of `conversation/cancel`. */
export interface CancelAnswer {
  /** Whether there was anything to cancel. */
  cancelled: boolean;
}

/** The answer of `conversation/chain`. */
export interface ChainAnswer {
  /** The links, oldest first; the last is the head. */
  links: Link[];
}

/** The answer of `transcript/check`. */
export interface CheckAnswer {
  /**
   * How much of the session the copy has: `full` when nothing is missing, else `partial`; absent without a copy. A
   * later resume of the copy is compared with the copy, not with the original session.
   */
  fidelity?: Fidelity;
  /** The findings, in the order of the lines. Empty, or without damage, if the transcript is intact. */
  findings: Finding[];
  /**
   * The sessions that were checked in their kept copies because the agent's own files are missing; absent when there
   * are none.
   */
  kept?: UpstreamId[];
  /** The findings that remain in the copy, with the copy's own line numbers; absent when there are none. */
  left?: Finding[];
  /** How many more findings were omitted, if there are very many; absent when 0. */
  more?: number;
  /** The session id of the repaired copy. Absent if no repair was requested, or if there was nothing to repair. */
  repaired?: UpstreamId;
  /** What was changed in the copy; absent without one. */
  repairs?: Repairs;
  /**
   * The shell command that restores a kept copy which has turns or other records that the transcript has lost. If the
   * conversation has turns that this copy lacks, the command forks it first. Absent if there is no such copy, and in
   * the answer to a repair.
   */
  restore?: string;
}

/** A checkpoint: the place after a turn. */
export interface Checkpoint {
  /** When the turn's last record was written; absent if the record does not say. */
  at?: string;
  /** The size of the turn's messages in the transcript, in bytes. */
  bytes: number;
  /**
   * The checkpoint's id. It stays valid whatever happens to the conversation: it encodes the agent, the session and
   * the turn's last record, or the turn itself if the agent names turns (Codex). For a running turn, it is the place
   * that the turn has reached.
   */
  id: CheckpointId;
  /**
   * The checkpoint that this one was copied from; absent unless the transcript is a branch or a copy of another.
   * Always absent in a fork by reference.
   */
  origin?: CheckpointId;
  /** The checkpoint before this one; absent on the first. */
  parentId?: CheckpointId;
  /** The first 200 characters of the prompt, as the user typed it: without what an editor put before it. */
  prompt: string;
  /** The first 200 characters of the reply's text. */
  reply: string;
  /** The number of the turn, from 1, in the current history; if no conversation has the session, in the transcript. */
  step: number;
  /** The tools that were called, each once, in the order of their first calls. */
  tools: string[];
  /**
   * The session whose transcript contains the turn. In a fork by reference (Codex), earlier turns are in another
   * session.
   */
  upstreamId: UpstreamId;
}

/** The answer of `checkpoint/get`. */
export interface CheckpointAnswer {
  /** The checkpoint. */
  checkpoint: Checkpoint;
  /**
   * The sessions that were read from their kept copies because the agent's own files are missing; absent when there
   * are none.
   */
  kept?: UpstreamId[];
  /** The messages of its turn, oldest first. */
  messages: Message[];
  /** How many more messages the turn has, if they are too large for one answer; absent otherwise. */
  omitted?: number;
}

/** The id of a checkpoint, from which a session can be resumed, forked or edited. Opaque and stable. */
export type CheckpointId = string;

/** An agent loaded a transcript. Not sent where the daemon cannot read the transcript; `resumed` is always sent. */
export interface CheckpointLoadedEvent {
  /**
   * How many messages the agent has: those of the current branch, and of a compacted session the summary, the
   * messages that the compaction kept, and those after it. `conversation/history` also has the messages before the
   * compaction.
   */
  messages: number;
  /** The number of the last turn it has, as checkpoints count; 0 before the first. */
  step: number;
  type: "checkpointLoaded";
  /** The session. */
  upstreamId: UpstreamId;
}

/** The answer of `conversation/checkpoints`: one page. */
export interface CheckpointPage {
  /**
   * The checkpoints, newest first. For the next page, pass the id of the last one as `before`; the page that ends
   * with step 1 is the last.
   */
  checkpoints: Checkpoint[];
  /** What the history lacks; absent when nothing is known to be missing. */
  gaps?: HistoryGap[];
  /**
   * The sessions that were read from their kept copies because the agent's own files are missing; absent when there
   * are none.
   */
  kept?: UpstreamId[];
}

/**
 * A complete turn is in the transcript, whichever program had it: from now on it can be resumed, forked and edited.
 * Sent once, after the `turnEnded` of a turn of this daemon. Sent for such a turn even if its session is no longer
 * the head, unless the chain was cleared: it can follow a later event such as `undone`. Ignore it if its turn was
 * undone.
 */
export interface CheckpointSavedEvent {
  /** The checkpoint after the turn. */
  checkpoint: Checkpoint;
  type: "checkpointSaved";
}

/** The session was closed. The next prompt reopens it. */
export interface ClosedEvent {
  type: "closed";
}

/** A scheduled continuation: a prompt that is sent automatically at a given time. */
export interface Continuation {
  /** When it is sent. */
  at: string;
  /** How many times it has been tried. */
  attempts: number;
  /** The beginning of the text that is sent, up to 200 characters; absent if none was given. */
  text?: string;
}

/** The answer of `conversation/continue`. */
export interface ContinueAnswer {
  /** The scheduled continuation; absent after it was cancelled. */
  continuation?: Continuation;
}

/** When a conversation continues: `reset` (the end of its usage limit), `now`, or a time. A past time means now. */
export type ContinueAt = "reset" | "now" | (string & {});

/** A scheduled continuation started this turn. Comes before its `promptAccepted`. */
export interface ContinuedEvent {
  /** The turn. */
  turnId: TurnId;
  type: "continued";
}

/** A conversation. */
export interface Conversation {
  /** The agent that it talks to. */
  agent: AgentName;
  /** The number of links in the chain, at most 16. */
  chainLength: number;
  /** The scheduled continuation; absent if none. */
  continuation?: Continuation;
  /** When it was created. */
  createdAt: string;
  /**
   * Whether `conversation/continue` has something to continue: a turn that was interrupted other than by the user, or
   * a held prompt. The state may still be `idle`, for example after a turn that failed because nobody was signed in.
   * Absent when false.
   */
  cutShort?: boolean;
  /** The folder that it runs in, as an absolute path. */
  cwd: string;
  /**
   * Why the state is `failed`, as a sentence; absent in other states. If the agent's program could not be used, the
   * end of its output is included.
   */
  failure?: string;
  /** The upstream id at the end of the chain; null if the chain is empty. */
  head: UpstreamId | null;
  /** The conversation's id; it never changes. */
  id: ConversationId;
  /** The questions that wait for an answer. */
  interrupts: Interrupt[];
  /** The usage limit that it hit; absent if none. */
  limit?: Limit;
  /** Whether its session is open in a running agent. */
  live: boolean;
  /** The app that the conversation belongs to, in the app's own words; empty if none was given. */
  namespace: string;
  /** The conversation that this one branched off; absent if none. */
  parent?: Parent;
  /**
   * The queued prompts in order, each once it is on disk: first the held ones, then those that wait for the running
   * turn. Absent when there are none.
   */
  queue?: QueuedPrompt[];
  /** The number of its durable changes, for `expectedRevision`. */
  revision: number;
  /** How its sessions are set up. */
  settings: Settings;
  /** What it is doing. */
  state: ConversationState;
  /** The title; empty if it has none yet. */
  title: string;
  /** When it last changed. */
  updatedAt: string;
  /** What the agent last reported of its usage; absent if it reported nothing. */
  usage?: Usage;
}

/** An answer with one conversation. */
export interface ConversationAnswer {
  /** The conversation after the call. */
  conversation: Conversation;
}

/** The id of a conversation: a UUIDv4 that the daemon generates. It never changes and is never used again. */
export type ConversationId = string;

/** The answer of `conversation/list`: one page. */
export interface ConversationPage {
  /** The conversations, newest first. */
  conversations: Conversation[];
  /** The cursor of the next page; absent on the last page. */
  nextCursor?: Cursor;
}

/**
 * A reference to a conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or
 * more.
 */
export type ConversationRef = string;

/** What a conversation is doing. */
export type ConversationState = "idle" | "prompting" | "awaiting" | "cancelling" | "limited" | "interrupted" | "moving" | "failed";

/** A position in a stream of events or in a paged list. Opaque. */
export type Cursor = string;

/** The answer of `daemon/status`. */
export interface DaemonStatus {
  /** The number of running agent processes. */
  agents: number;
  /** The number of conversations. */
  conversations: number;
  /** The folder that contains everything (`SESSIOND_HOME` or `--home`); without one, the data folder. */
  home: string;
  /** The number of conversations whose session is open in a running agent. */
  live: number;
  /** The daemon's process id. */
  pid: number;
  /** The version of this protocol. */
  protocolVersion: number;
  /** The path of the bridge socket. */
  socket: string;
  /** The store. */
  store: StoreStatus;
  /** For how long the daemon has run, in seconds. */
  uptimeSeconds: number;
  /** The daemon's version. */
  version: string;
}

/** The answer of `conversation/delete`. */
export interface DeleteAnswer {
  /**
   * With `transcripts: keep`, the sessions that `conversation/adopt` accepts, newest first, without those whose
   * history a later one contains.
   */
  adoptable?: UpstreamId[];
  /**
   * Why the daemon's files may still contain what was stored of the conversation; absent if they do not. The next
   * start of the daemon tries again to remove it.
   */
  notErased?: string;
  /**
   * The transcripts that should have been deleted and remain, with the reasons; absent when there are none. The
   * conversation is deleted all the same, so this is the only report of them.
   */
  remaining?: RemainingTranscript[];
  /**
   * The same for the sessions whose transcript is missing, or has lost turns that the kept copy has:
   * `conversation/adopt` accepts all of it after `transcript/restore`.
   */
  restorable?: UpstreamId[];
}

/** The conversation was deleted. */
export interface DeletedEvent {
  type: "deleted";
}

/** The answer of `daemon/diagnose`. */
export interface Diagnosis {
  /** The diagnostics, in the order of the checks. */
  diagnostics: Diagnostic[];
}

/** One diagnostic, with what to do about it. */
export interface Diagnostic {
  /**
   * The same as data, for programs; absent when empty. For an agent `version`, `command` and `offers`; for
   * `DiagnosticKind::SignIn` the agent's own `authStatus`; for a disk `freeBytes` and `totalBytes`; for
   * `DiagnosticKind::Retention` `vendorDays`, `keepDays` and `keptBytes`; for processes their `pids`. More may be
   * added.
   */
  data?: Record<string, any>;
  /** What it is about. */
  kind: DiagnosticKind;
  /** What was found, as a sentence. */
  message: string;
  /** What to do next; absent if nothing has to be done. */
  nextStep?: string;
  /** How severe it is. */
  severity: Severity;
  /** The agent or the path that it is about; absent if it is about neither. */
  subject?: string;
}

/** What a diagnostic is about. */
export type DiagnosticKind = "daemon" | "otherDaemon" | "configuration" | "folder" | "store" | "setAside" | "room" | "agent" | "signIn" | "quirk" | "transcripts" | "retention" | "leftOver";

/** The answer of `conversation/edit`. */
export interface EditAnswer {
  /** How many turns the history lost, the replaced one included. */
  dropped: number;
  /** How much of the history before the turn the branch has. */
  fidelity: Fidelity;
  /**
   * The branch, now the head. Absent if the turn was cancelled before its prompt was accepted: the head is then
   * unchanged.
   */
  link?: Link;
  /** How the turn of the new prompt ended. */
  turn: TurnResult;
  /** How the branch was made. */
  via?: BranchedVia;
}

/**
 * An earlier prompt was replaced: the branch is the head, and the history no longer has the turns after that place.
 * Comes before the `promptAccepted` of the new prompt.
 */
export interface EditedEvent {
  /** How many turns the history lost, the replaced one included. */
  dropped: number;
  /** How much of the history before the turn the branch has. */
  fidelity: Fidelity;
  /** The branch. */
  link: Link;
  type: "edited";
}

/** An empty answer. */
export type Empty = Record<string, any>;

/** The kind of an error: its JSON-RPC code, and `data.kind` on the wire. */
export type ErrorKind = "parseError" | "invalidRequest" | "methodNotFound" | "invalidParams" | "internalError" | "notFound" | "ambiguous" | "busy" | "invalidCwd" | "checkpointNotFound" | "agentUnavailable" | "agentError" | "authRequired" | "limited" | "unsupported" | "notResumable" | "conflict" | "interruptResolved" | "shuttingDown" | "storeFailed" | "transcriptDamaged" | "revisionMismatch";

/** What happened. An unknown kind is kept as it came, so that new ones break no client. */
export type Event = SnapshotEvent | PromptAcceptedEvent | UpdateEvent | TurnEndedEvent | StateChangedEvent | UpdatedEvent | InterruptRaisedEvent | InterruptResolvedEvent | ResumedEvent | RolledEvent | ForkedEvent | EditedEvent | UndoneEvent | MovedEvent | LimitedEvent | ContinuedEvent | CheckpointSavedEvent | CheckpointLoadedEvent | ForeignWriterEvent | ClosedEvent | ResetEvent | DeletedEvent | LaggedEvent;

/** One event, with its conversation and its position in the stream. */
export interface EventEnvelope {
  /** When it happened. */
  at: string;
  /** The conversation. */
  conversationId: ConversationId;
  /** The position: subscribing with `after` set to it continues after this event. */
  cursor: Cursor;
  /** What happened. */
  event: Event;
}

/** The path of the file or, if none was requested, what the file would contain. Only a file has a `path`. */
export type ExportAnswer = ExportedFile | PortableConversation;

/** The format of an export. */
export type ExportFormat = "json" | "bundle";

/** An exported file. */
export interface ExportedFile {
  /** The size in bytes. */
  bytes: number;
  /** What the history lacks; absent when nothing is known to be missing. */
  gaps?: HistoryGap[];
  /**
   * The sessions that were read from their kept copies because the agent's own files are missing; absent when there
   * are none.
   */
  kept?: UpstreamId[];
  /** The sessions whose transcripts or side files it lacks; absent when there are none. */
  missing?: MissingSession[];
  /** The values of MCP servers that it lacks; absent when there are none. */
  missingValues?: MissingValue[];
  /** The absolute path of the file. */
  path: string;
}

/** The failure of a turn. */
export interface Failure {
  /** The kind of failure. */
  kind: FailureKind;
  /** The reason as a sentence; the agent's own, if it gave one. */
  message: string;
  /** When the limit ends; absent if unknown, or if there is no limit. */
  resetsAt?: string;
  /** Whether the same prompt may succeed later with nothing changed; false if a continuation is scheduled. */
  retryable: boolean;
  /** The agent's JSON-RPC error, as the agent sent it; absent if the agent did not answer with one. */
  upstream?: any;
}

/** The kind of a failure. */
export type FailureKind = "rateLimited" | "overloaded" | "authRequired" | "contextOverflow" | "network" | "invalidRequest" | "agentDied" | "daemonRestarted" | "unknown";

/** How much of the history the agent has. Default for a caller's minimum: `text`. */
export type Fidelity = "none" | "text" | "partial" | "full";

/** One finding in a transcript. */
export interface Finding {
  /** What it means for a resume, as a sentence. */
  detail: string;
  /** The kind of finding. */
  kind: FindingKind;
  /** The line, counted from 1; 0 if the finding is about the whole file. */
  line: number;
}

/** The kind of a finding in a transcript. */
export type FindingKind = "nothingToResume" | "tornLine" | "garbageLine" | "oversizedLine" | "brokenParent" | "cutOff" | "newerBranch" | "toolUseWithoutResult" | "duplicateUuid" | "foreignSessionId" | "missingSideFile" | "missingSource" | "resultWithoutToolUse" | "brokenOrder" | "archived" | "otherCopy";

/**
 * Another program writes to the transcript of the open session: it contains prompts that were not sent from here, or
 * it became shorter, or was replaced. Prompts are checked in Claude's format only: Codex does not let a second
 * program write to an open session. The two programs do not see each other's turns, and a later resume sees only one
 * of them.
 */
export interface ForeignWriterEvent {
  type: "foreignWriter";
  /** The session. */
  upstreamId: UpstreamId;
}

/** The answer of `transcript/forget`. */
export interface ForgetAnswer {
  /** The disk space of the deleted copies, in bytes. */
  bytes: number;
  /**
   * Whether the copies are still needed, because the histories of other kept sessions begin in them. They are then
   * deleted with the last of those sessions. Absent when false.
   */
  needed?: boolean;
}

/** The answer of `conversation/fork`. */
export interface ForkAnswer {
  /** The new conversation, or the same one after a fork in place. */
  conversation: Conversation;
  /** How much of the history the branch has. */
  fidelity: Fidelity;
  /** The branch; absent if the source had nothing to branch from yet. */
  link?: Link;
  /** How the branch was made. */
  via?: BranchedVia;
}

/** A branch was made. */
export interface ForkedEvent {
  /** The conversation whose head it is. */
  conversationId: ConversationId;
  /** The branch. */
  link: Link;
  type: "forked";
}

/** The kind of a gap in the history. */
export type GapKind = "missing" | "unreadable" | "broken" | "compacted" | "behind" | "unknownRecord";

/** What `conversation/history` returns. */
export type HistoryForm = "messages" | "updates";

/** A gap in the history, or a possible one. */
export interface HistoryGap {
  /** The same as a sentence. */
  detail: string;
  /** The kind of gap. */
  kind: GapKind;
  /** The session whose transcript has the gap. */
  upstreamId: UpstreamId;
}

/** The answer of `conversation/history`: one page. */
export interface HistoryPage {
  /** What the history lacks; absent when nothing is known to be missing. */
  gaps?: HistoryGap[];
  /**
   * The sessions that were read from their kept copies because the agent's own files are missing; absent when there
   * are none.
   */
  kept?: UpstreamId[];
  /** The messages, oldest first; empty if updates were requested. */
  messages: Message[];
  /** The cursor of the messages after this page; absent at the end. */
  nextCursor?: Cursor;
  /** The cursor of the messages before this page; absent at the beginning. */
  previousCursor?: Cursor;
  /**
   * The same messages as updates; absent unless they were requested. Messages that the agent wrote on the user's
   * behalf make none.
   */
  updates?: HistoryUpdate[];
}

/** A part of the history as ACP's update. */
export interface HistoryUpdate {
  /** When it was written; absent if its record does not say. */
  at?: string;
  /** The checkpoint after the turn; absent before the first turn. */
  checkpointId?: CheckpointId;
  /**
   * The body of ACP's `session/update`, as the agent sends it live or when it loads a session: a chunk of a message,
   * a tool call, its result as `tool_call_update`, or a plan. The `messageId` of a chunk is the message's id here.
   */
  update: any;
}

/** The answer of `conversation/import`. */
export interface ImportAnswer {
  /** The conversation as imported. */
  conversation: Conversation;
  /** The names of the settings in the bundle that were not imported; absent when all were. */
  leftOut?: string[];
  /** The sessions whose transcripts or side files the bundle lacks; absent when there are none. */
  missing?: MissingSession[];
  /** The values of MCP servers that the bundle lacks; absent when there are none. `conversation/update` sets them. */
  missingValues?: MissingValue[];
  /**
   * The sessions with lines that were imported unchanged because each is too long to adapt; absent when there are
   * none.
   */
  unchanged?: UnchangedLines[];
}

/**
 * An interrupt: a question of the agent that waits for an answer. It belongs to the conversation, so that every
 * client sees it.
 */
export interface Interrupt {
  /** The interrupt's id. */
  id: InterruptId;
  /** The kind of question. */
  kind: InterruptKind;
  /** ACP's options; absent unless this is a permission. */
  options?: any;
  /** Whether the agent process that asked has ended, so that the answer has to be sent to its successor. */
  orphaned: boolean;
  /** When the agent asked. */
  raisedAt: string;
  /** ACP's request parameters, as the agent sent them. */
  request: any;
  /** ACP's tool call; absent unless this is a permission. */
  toolCall?: any;
}

/** The id of an interrupt: a question of the agent that waits for an answer. */
export type InterruptId = string;

/** The kind of a question. */
export type InterruptKind = "permission" | "elicitation";

/** The agent asks a question. */
export interface InterruptRaisedEvent {
  /** The question. */
  interrupt: Interrupt;
  type: "interruptRaised";
}

/**
 * A question was answered, or withdrawn because its turn ended or the conversation was reset. Comes before any update
 * that the answer causes.
 */
export interface InterruptResolvedEvent {
  /** Who answered: a client's name, or `agent`, `cancel`, `edit`, `fork`, `policy`, `reset` or `undo`. */
  by: string;
  /** The question. */
  interruptId: InterruptId;
  /** ACP's outcome. */
  outcome: any;
  type: "interruptResolved";
}

/** The answer of `transcript/keep`. */
export interface KeepAnswer {
  /** Whether transcripts are copied automatically. */
  enabled: boolean;
  /** The kept copies of the named conversation or session. */
  kept: KeptFile[];
  /** The totals of all kept copies; absent if a conversation or session was named. */
  total?: KeepTotal;
  /**
   * The sessions that no conversation has, newest first, at most 1,000; absent if there are none, or if a
   * conversation or session was named. `transcript/restore` restores one, `transcript/forget` deletes its copies.
   */
  unclaimed?: UnclaimedSession[];
}

/** The totals of all kept copies. */
export interface KeepTotal {
  /** The disk space that they use, in bytes. A copy that is still a link to the agent's own file counts as 0. */
  bytes: number;
  /** The number of kept files. */
  files: number;
  /** The number of sessions with kept copies. */
  sessions: number;
  /** The number of sessions that no conversation has, because it was deleted or there never was one; absent when 0. */
  unclaimed?: number;
}

/** A kept copy of one file. */
export interface KeptFile {
  /** The disk space that it uses, in bytes. */
  bytes: number;
  /** The path, in the daemon's data folder. */
  path: string;
}

/** This subscriber was too slow, and receives nothing more. Subscribe again with `after` set to this cursor. */
export interface LaggedEvent {
  /** The cursor of the last event that was delivered. */
  cursor: Cursor;
  type: "lagged";
}

/** The usage limit that a conversation hit. */
export interface Limit {
  /** The kind of failure. */
  kind: FailureKind;
  /** When the limit ends; absent if the agent did not report it. */
  resetsAt?: string;
}

/** The last prompt hit a usage limit. */
export interface LimitedEvent {
  /** The limit, and when it ends. */
  limit: Limit;
  type: "limited";
}

/** A lineage entry: one change of a conversation's chain. Entries are never deleted. */
export interface LineageEntry {
  /** The agent of the session. */
  agent: AgentName;
  /** When it happened. */
  at: string;
  /**
   * The failed attempts to reopen the session before this one, and why they failed; absent when there are none. Long
   * reasons are cut.
   */
  attempts?: Attempt[];
  /** See `Link`. */
  carriedTurns?: number;
  /** The cause of a roll; absent for other reasons. */
  cause?: RollCause;
  /** The folder that it runs in, as an absolute path. */
  cwd: string;
  /** How much of the history the session had. */
  fidelity: Fidelity;
  /** The checkpoint of that session at which it begins; absent if none. */
  fromCheckpointId?: CheckpointId;
  /** The session that it came from; absent if none. */
  fromUpstreamId?: UpstreamId;
  /** Whether the upstream id is in the chain now. */
  inChain: boolean;
  /** What happened. */
  reason: LineageReason;
  /** How the link relates to the session that it came from. */
  relation: Relation;
  /** The number of the entry within the conversation: 1, 2, 3, without gaps. */
  seq: number;
  /** The number of turns acknowledged on the link when the entry was written. */
  turns: number;
  /**
   * The upstream id that the entry is about; absent (in Rust empty) if it is about none: `reset` or `deleted` of a
   * conversation that never had a session.
   */
  upstreamId?: UpstreamId;
  /** Whether the agent had accepted a prompt on it by then. */
  written: boolean;
}

/** The answer of `conversation/lineage`: one page. */
export interface LineagePage {
  /** The entries, oldest first. */
  entries: LineageEntry[];
  /** The cursor of the next page; absent on the last page. */
  nextCursor?: Cursor;
}

/** The reason of a lineage entry: a reason of a link, or one that adds no link. */
export type LineageReason = "created" | "forked" | "edited" | "moved" | "rolled" | "adopted" | "restored" | "copied" | "rebuilt" | "undone" | "reset" | "deleted" | "abandoned" | "updated";

/** A link: one upstream session of a conversation. */
export interface Link {
  /** The agent of the session. */
  agent: AgentName;
  /** When it joined the chain. */
  at: string;
  /**
   * The number of turns that its transcript contained at the start, from the session that it is a branch or copy of;
   * absent when 0.
   */
  carriedTurns?: number;
  /** The cause of a roll; absent for other reasons. */
  cause?: RollCause;
  /** The folder that it runs in, as an absolute path. */
  cwd: string;
  /** The checkpoint of that session at which it begins; absent if none. */
  fromCheckpointId?: CheckpointId;
  /** The session that it came from; absent if none. */
  fromUpstreamId?: UpstreamId;
  /** Why it joined the chain. */
  reason: LinkReason;
  /** How it relates to `fromUpstreamId`. */
  relation: Relation;
  /** The number of turns acknowledged on it so far. */
  turns: number;
  /** The session, by the agent's own id. */
  upstreamId: UpstreamId;
  /** Whether the agent ever accepted a prompt on it, so that a transcript is expected. */
  written: boolean;
}

/** Why a link joined the chain. */
export type LinkReason = "created" | "forked" | "edited" | "moved" | "rolled" | "adopted" | "restored" | "copied" | "rebuilt" | "undone";

/** A message: a prompt, a part of a reply, or tool results. */
export interface Message {
  /** When it was written; absent if its record does not say. */
  at?: string;
  /** The checkpoint after the message's turn; absent before the first turn. */
  checkpointId?: CheckpointId;
  /** The content. */
  content: MessagePart[];
  /** The message's id; stable like a checkpoint's id. */
  id: string;
  /** The kind of message; absent if the user or the model wrote it. */
  kind?: MessageKind;
  /** The role of the author. Tool results have the role `user`. */
  role: Role;
  /** The session whose transcript contains it. */
  upstreamId: UpstreamId;
}

/** The kind of a message that neither the user nor the model wrote. */
export type MessageKind = "summary" | "aside" | "error";

/**
 * One part of a message. `type` (in Rust `kind`) decides which other members it has: `text`, `thought` and
 * `retelling` (the daemon's own retelling of an earlier session) have `text`; `image` has `mimeType` and `data`;
 * `toolCall` has `toolCallId`, `name` and `input`; `toolResult` has `toolCallId`, `text` and, if the agent reports
 * it, `isError`.
 *
 * Any other type is the agent's own, with the whole block in `raw`. So is a block of one of these types that lacks a
 * required member, and a block without a type, whose `type` is empty.
 */
export interface MessagePart {
  /** The full size of the part in bytes, if it was too large and was cut; absent otherwise. */
  cutBytes?: number;
  /** The image, in base64. Absent if it was too large; `cutBytes` is its size then. */
  data?: string;
  /** The arguments of the tool call, byte for byte. */
  input?: any;
  /** Whether the tool failed or was refused. */
  isError?: boolean;
  /** The media type of the image. */
  mimeType?: string;
  /** The name of the tool. */
  name?: string;
  /** A block that has no type of its own here, byte for byte. */
  raw?: any;
  /** The text. */
  text?: string;
  /** The id of the tool call: of this one, or of the one that this is the result of. */
  toolCallId?: string;
  /** The type of part. */
  type: string;
}

/** A session of a conversation's past whose transcript is missing, or could not be included. */
export interface MissingSession {
  /** The agent of the session. */
  agent: AgentName;
  /** The reason, as a sentence. */
  detail: string;
  /** The session. */
  upstreamId: UpstreamId;
}

/** A value of an MCP server's configuration that an export omitted because it may be a secret. */
export interface MissingValue {
  /** The member of its configuration: `env` or `headers`. */
  member: string;
  /** The name of the variable or header; empty if it has none. */
  name: string;
  /** The name of the server. */
  server: string;
}

/** The answer of `conversation/move`. */
export interface MoveAnswer {
  /**
   * The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when it is
   * needed, for example by the next prompt. Absent when there are none.
   */
  kept?: UpstreamId[];
  /** Files and folders next to the transcripts that are not moved, each with the reason; absent when there are none. */
  leftOut?: string[];
  /** How many files were moved; 0 for a dry run. */
  moved: number;
  /** The files to move, and where to. */
  plan: PlannedMove[];
}

/** The conversation moved to another folder. */
export interface MovedEvent {
  /** The previous folder. */
  from: string;
  /** The new folder. */
  to: string;
  type: "moved";
}

/** The folders of an undone move. */
export interface MovedFolder {
  /** The folder before the undo. */
  from: string;
  /** The folder now. */
  to: string;
}

/** What a step moves. */
export type MovedKind = "transcript" | "sideFile" | "metadata";

/** What to do with a prompt while another turn is running. */
export type OnBusy = "fail" | "queue";

/** What to do with a prompt that hits a usage limit. */
export type OnLimit = "fail" | "wait";

/** An OpenRPC document. */
export interface OpenRpcDocument {
  components?: Record<string, any>;
  info: Record<string, any>;
  methods: Record<string, any>[];
  /** The version of OpenRPC that it follows. */
  openrpc: "1.3.2";
  /** The notifications that the daemon sends. OpenRPC has no member for them. */
  "x-notifications"?: Record<string, any>[];
}

/** Where a conversation branched off another one. */
export interface Parent {
  /** The checkpoint at which it branched off; absent if the parent had no prompts yet. */
  checkpointId?: CheckpointId;
  /** The conversation that it branched off. */
  conversationId: ConversationId;
}

/** One step of a move. */
export interface PlannedMove {
  /** The size of the file in bytes; 0 if it is not a file. */
  bytes: number;
  /** The current path. */
  from: string;
  /** What is moved. */
  kind: MovedKind;
  /** The new path. */
  to: string;
}

/**
 * A conversation as plain JSON, for other programs. Without `secrets`, each MCP server has only `name`, `type`,
 * `command` and the names in `env` and `headers`: values, arguments and URLs are omitted because they may contain
 * keys.
 */
export interface PortableConversation {
  /** Its upstream sessions, oldest first; the last is the head. */
  chain: Link[];
  /** The conversation. */
  conversation: Conversation;
  /** When it was exported. */
  exportedAt: string;
  /** What the history lacks; absent when nothing is known to be missing. */
  gaps?: HistoryGap[];
  /**
   * The sessions that were read from their kept copies because the agent's own files are missing; absent when there
   * are none.
   */
  kept?: UpstreamId[];
  /** Everything that ever happened to the chain, oldest first. */
  lineage: LineageEntry[];
  /** The messages, oldest first, as `conversation/history` returns them. */
  messages: Message[];
  /** The questions that wait for an answer; absent when there are none. */
  pending?: Interrupt[];
  /** The number of turns in `messages`. */
  turns: number;
  /**
   * The usage that the agent last reported, in ACP's shape; absent if it never did, for example if the conversation
   * was adopted and has had no turn since.
   */
  usage?: any;
  /** The version of this format: `PORTABLE_VERSION` of the program that wrote it. */
  version: number;
}

/** A prompt was accepted. Its turn always ends with `turnEnded`. */
export interface PromptAcceptedEvent {
  /** The prompt. */
  prompt: Record<string, any>[];
  /** The turn. */
  turnId: TurnId;
  type: "promptAccepted";
}

/** A queued prompt: it waits for the turns before it. */
export interface QueuedPrompt {
  /**
   * Whether the prompt is held because the daemon was killed while it was queued. A held prompt is sent by
   * `conversation/continue`, or when the same call is repeated with the same `requestId`.
   */
  held?: boolean;
  /** The first 200 characters of the first line of the prompt; empty if it has no text. */
  prompt: string;
  /** When it was queued. */
  queuedAt: string;
  /** The id of its future turn. `conversation/cancel` with this id removes it from the queue. */
  turnId: TurnId;
}

/** How a link's transcript relates to the session that it came from. */
export type Relation = "carries" | "follows" | "fresh";

/** Why a transcript remains. */
export type RemainingReason = "failed" | "shared" | "archived";

/** A transcript that should have been deleted with its conversation, and remains. */
export interface RemainingTranscript {
  /** The same as a sentence. */
  message: string;
  /** The path of the transcript, or of its folder of side files if only that remains; absent if unknown. */
  path?: string;
  /** Why it remains. */
  reason: RemainingReason;
  /** The session. */
  upstreamId: UpstreamId;
}

/** The changes in a repaired copy, compared with its source. Absent counts are 0. */
export interface Repairs {
  /** Tool results that were filled in, as the agent does it. */
  filledIn: number;
  /** Records whose parents are missing and that were attached to another record. */
  joined: number;
  /** Lines that are not records and were left out. */
  leftOut: number;
}

/** The user reset the conversation: its chain is empty. */
export interface ResetEvent {
  type: "reset";
}

/** The answer of `conversation/respond`. */
export interface RespondAnswer {
  /** The turn that the answer started; absent if it started none. */
  turnId?: TurnId;
}

/** The answer of `transcript/restore`. */
export interface RestoreAnswer {
  /** How many acknowledged turns of the session are newer than the restored copy, as far as known; absent when 0. */
  missingTurns?: number;
  /** The paths of the restored files; empty if nothing was missing. */
  restored: string[];
}

/** The answer of `conversation/resume`. */
export interface ResumeAnswer {
  /** The conversation after the call. */
  conversation: Conversation;
  /** How the session was reopened. */
  resumed: Resumed;
}

/** How a conversation was reopened, and what was lost. */
export interface Resumed {
  /** All attempts, in order; the last one worked. */
  attempts: Attempt[];
  /** How much of the history the agent has. */
  fidelity: Fidelity;
  /**
   * How many turns the agent lacks, at least: where a damaged transcript does not show how many turns a gap held, the
   * gap counts as one. 0 if the fidelity is `full`; also 0 if it is `partial` and the turns cannot be counted, as in
   * a damaged Codex transcript.
   */
  missingTurns: number;
  /** The session that is open now. */
  upstreamId: UpstreamId;
  /** How it was opened. */
  via: Via;
}

/** The session was reopened. */
export interface ResumedEvent {
  /** How. */
  resumed: Resumed;
  type: "resumed";
}

/** The role of a message's author. */
export type Role = "user" | "assistant";

/** Why a conversation rolled to another upstream id. */
export type RollCause = "limit" | "forgotten" | "lost" | "damaged" | "cleared" | "foreign" | "agentDied" | "other";

/** The conversation continues under another upstream id. */
export interface RolledEvent {
  /** Why. */
  cause: RollCause;
  /** How much of the history the new session has. */
  fidelity: Fidelity;
  /** The previous id. */
  from?: UpstreamId;
  /** The new id. */
  to: UpstreamId;
  type: "rolled";
}

/** The running turn, as a client that subscribes receives it. */
export interface RunningTurn {
  /** The prompt. */
  prompt: Record<string, any>[];
  /**
   * When the turn began. Includes the time to reopen the session, so it is before `promptAccepted`; excludes the time
   * in the queue.
   */
  startedAt: string;
  /** Whether older updates were omitted. */
  truncated: boolean;
  /** The turn. */
  turnId: TurnId;
  /** ACP's updates of this turn so far; only the newest if `truncated` is true. */
  updates: any[];
}

/** What the agent last reported about its session, in ACP's shapes. A member is absent until it was reported. */
export interface SessionInfo {
  /** The slash commands that a prompt may use. */
  commands?: any;
  /** The configuration options and their values. */
  configOptions?: any;
  /** The modes, and the current one. */
  modes?: any;
  /** The other members of the answer with which the agent opened the session, such as `models` and `_meta`. */
  other?: any;
  /** The latest plan. */
  plan?: any;
  /** The latest usage. */
  usage?: any;
}

/** How to set up the sessions of a conversation. Applied again after each resume and fork. */
export interface Settings {
  /** More folders that the agent may use, as absolute paths. */
  additionalDirectories?: string[];
  /** Configuration options: id to value. An update with `null` removes an option, so that it is not applied again. */
  config?: Record<string, any>;
  /** MCP servers, in ACP's shape. */
  mcpServers?: any[];
  /** The session mode, by the agent's id for it. */
  mode?: string;
  /** The model, by the agent's name for it. */
  model?: string;
  /** Text to add to the agent's own system prompt. */
  systemPrompt?: string;
}

/** The severity of a diagnostic. In Rust, `Unknown` ranks above `Error`, so that nothing serious is overlooked. */
export type Severity = "ok" | "note" | "warning" | "error";

/** The conversation as it is now. The first event of a subscription that does not continue after a cursor. */
export interface SnapshotEvent {
  /** The conversation. */
  conversation: Conversation;
  /** Whether events were missed since the cursor that was asked for. */
  gap: boolean;
  /** The running turn. */
  running?: RunningTurn;
  /** What the agent last reported about its session. */
  session?: SessionInfo;
  type: "snapshot";
  /** The turn whose prompt was not accepted yet. `promptAccepted` follows, unless the prompt fails or is cancelled. */
  unaccepted?: UnacceptedTurn;
}

/** The conversation's state changed. */
export interface StateChangedEvent {
  /** The new state. */
  state: ConversationState;
  type: "stateChanged";
}

/** Why a turn stopped: ACP's stop reasons, and `failed`. */
export type StopReason = "end_turn" | "max_tokens" | "max_turn_requests" | "refusal" | "cancelled" | "failed" | (string & {});

/** The status of the store. */
export interface StoreStatus {
  /** Whether the store is in memory only. */
  ephemeral: boolean;
  /** Why changes can no longer be made durable; absent while they can. */
  failure?: string;
  /** The size of the journal in bytes. */
  journalBytes: number;
  /** The sequence number of the last durable change. */
  sequence: number;
  /** The path to which a store that could not be opened was moved; absent unless that happened at this start. */
  setAside?: string;
}

/** A transcript on disk. */
export interface Transcript {
  /** The agent whose transcript folder contains it. */
  agent: AgentName;
  /** The size of the file in bytes. */
  bytes: number;
  /** The conversation that has or had the session; of several, the one whose head it is. Absent if none. */
  conversationId?: ConversationId;
  /** The folder that the agent worked in; empty if the transcript does not say. */
  cwd: string;
  /** The session that it was forked from; absent if the transcript does not say. */
  forkedFrom?: UpstreamId;
  /** The path of the file. */
  path: string;
  /**
   * The title that the user gave, else the one that the agent made, else the first line that the user wrote; empty if
   * there is none. At most 200 characters.
   */
  title: string;
  /**
   * The number of turns, if known without reading the whole file: while the daemon caches what it read of the file
   * for another call. Its absence means nothing about the transcript.
   */
  turns?: number;
  /** The time of the last record; if it has none, of the file's last change. */
  updatedAt: string;
  /** The session. Several files can belong to one session: copies in other folders. */
  upstreamId: UpstreamId;
}

/** The answer of `transcript/list`: one page. */
export interface TranscriptPage {
  /** The cursor of the next page; absent on the last page. */
  nextCursor?: Cursor;
  /** The transcripts, newest first. */
  transcripts: Transcript[];
  /**
   * Files and folders that could not be read, so that the list lacks their transcripts; only some if there are many.
   * Absent when there are none.
   */
  unreadable?: string[];
  /**
   * Transcript folders whose changes cannot be watched. Lists are still correct, but slower; changes by other
   * programs cause no events. Absent when there are none.
   */
  unwatched?: Unwatched[];
}

/** What to do with the agent's transcripts when a conversation is deleted. */
export type TranscriptsOnDelete = "keep" | "delete";

/** The answer of `conversation/tree`. */
export interface TreeAnswer {
  /**
   * The first ancestor and all that branched off it: each conversation after its parent, and the branches of one
   * conversation oldest first.
   */
  conversations: TreeMember[];
  /** The conversation that the first one branched off, if it was deleted or is not on this machine; absent otherwise. */
  missingParent?: ConversationId;
  /** Whether there are more branches than one answer holds, 1,000 at most. Absent when false. */
  truncated?: boolean;
}

/** A conversation of a tree. */
export interface TreeMember {
  /** The conversation. Its `parent` says where it branched off. */
  conversation: Conversation;
  /** Its whole lineage, as `conversation/lineage` returns it. */
  entries: LineageEntry[];
  /** Its chain, as `conversation/chain` returns it. */
  links: Link[];
}

/** A folder move that can be undone. */
export interface TreeMove {
  /** When it was moved. */
  at: string;
  /** How many conversations were moved. */
  conversations: number;
  /** The old folder, as the call named it. */
  from: string;
  /** How many files were moved. */
  moved: number;
  /** The new folder. */
  to: string;
  /** The id for `transcript/undo`. */
  undoId: string;
  /** Until when it can be undone. */
  until: string;
}

/** The answer of `transcript/move` and of `transcript/undo`. */
export interface TreeMoveAnswer {
  /**
   * The sessions whose transcripts are missing but have kept copies: a copy is restored to the new folder when it is
   * needed, for example by the next prompt. Absent when there are none.
   */
  kept?: UpstreamId[];
  /** The files that are not moved, each with the reason; absent if there are none. */
  leftOut?: string[];
  /** How many files were moved; 0 for a dry run. */
  moved: number;
  /** The files to move, and where to. */
  plan: PlannedMove[];
  /** The id for `transcript/undo`; absent if nothing was moved, and after an undo. */
  undoId?: string;
}

/** The answer of `transcript/moves`. */
export interface TreeMoveList {
  /** The moves, newest first. */
  moves: TreeMove[];
}

/** A turn ended. */
export interface TurnEndedEvent {
  /** How it ended. */
  turn: TurnResult;
  type: "turnEnded";
}

/** The id of a turn: one prompt of a conversation, from its acceptance into the queue to its end. */
export type TurnId = string;

/** The result of a turn. */
export interface TurnResult {
  /**
   * The scheduled continuation; absent if none. A turn schedules one if it hit a usage limit and `onLimit` was
   * `wait`, if it was itself a continuation and can be tried again, or if it was interrupted because another
   * conversation may have ended the agent's process.
   */
  continuation?: Continuation;
  /** Why it failed; absent unless `stopReason` is `failed`. */
  failure?: Failure;
  /** The other members of the agent's answer to the prompt, such as `_meta`; absent if there are none. */
  other?: any;
  /** How the session was reopened; absent if this prompt did not have to reopen it. */
  resumed?: Resumed;
  /** Why it stopped. */
  stopReason: StopReason;
  /** The turn. */
  turnId: TurnId;
  /** The session that it ran on; absent (in Rust empty) if the turn was cancelled before it had one. */
  upstreamId?: UpstreamId;
  /** The usage that the agent reports, in ACP's shape; absent if it reports none. */
  usage?: any;
}

/** A turn whose prompt was not accepted yet: its session is being opened, or the agent has not begun to work. */
export interface UnacceptedTurn {
  /** The prompt. */
  prompt: Record<string, any>[];
  /** When the turn began. */
  startedAt: string;
  /** The turn. */
  turnId: TurnId;
}

/**
 * A session that was imported with lines that could not be adapted: they still have the session ids and folders of
 * the machine that exported them, and the agent may skip them.
 */
export interface UnchangedLines {
  /** The agent of the session. */
  agent: AgentName;
  /** The number of these lines. */
  lines: number;
  /** The session, by its id on this machine. */
  upstreamId: UpstreamId;
}

/** A session with kept copies that no conversation has: its conversation was deleted, or it never had one. */
export interface UnclaimedSession {
  /** The agent of the session; absent if no configured agent has that transcript folder any more. */
  agent?: AgentName;
  /** The disk space that its copies use, in bytes. A copy that is still a link to the agent's own file counts as 0. */
  bytes: number;
  /** When the session was last written to. */
  changedAt: string;
  /** The title of the deleted conversation that had the session; absent if it had none. */
  title?: string;
  /** The session, by the agent's own id. */
  upstreamId: UpstreamId;
}

/** The answer of `conversation/undo`. */
export interface UndoAnswer {
  /** The conversation after the call. */
  conversation: Conversation;
  /** How many turns of the abandoned branch the history lost; 0 for an undone move. */
  dropped: number;
  /** The session that is the head again. After an undone move it is the same session, in its previous folder. */
  link: Link;
  /** The folders of the undone move; absent if no move was undone. */
  moved?: MovedFolder;
  /**
   * What was undone: `edited`, `forked` in place, `moved`, `reset`, or `rolled` if the agent had cleared its context.
   * Absent if the conversation had left the session because the agent did not open it.
   */
  undone?: LineageReason;
}

/** An edit, a fork in place, a move or a reset was undone. */
export interface UndoneEvent {
  /** How many turns of the abandoned branch the history lost. */
  dropped: number;
  /** The session that is the head again. */
  link: Link;
  type: "undone";
}

/** A folder whose changes cannot be watched. */
export interface Unwatched {
  /** The folder. */
  path: string;
  /** Why it cannot be watched. */
  problem: string;
}

/** An update of the agent: ACP's `update`, byte for byte. */
export interface UpdateEvent {
  /** The turn that it belongs to; absent outside a turn and after its end. */
  turnId?: TurnId;
  type: "update";
  /** ACP's update. */
  update: any;
}

/** Something else that clients show changed: title, folder, settings, queued prompts. */
export interface UpdatedEvent {
  /** The conversation as it is now. */
  conversation: Conversation;
  type: "updated";
}

/**
 * The id of an upstream session: the agent's own, opaque, unique within one transcript root, and the name of its
 * transcript.
 */
export type UpstreamId = string;

/** How much of the model's context the conversation fills, and what it has cost, as the agent last reported it. */
export interface Usage {
  /** The cost so far, in ACP's shape: `amount` and `currency`. */
  cost?: any;
  /** How many tokens the context holds. */
  size?: number;
  /** How many tokens of the context are used. */
  used?: number;
}

/** How a session was reopened. */
export type Via = "live" | "resume" | "load" | "freshProcess" | "located" | "archive" | "copied" | "rebuilt" | "olderLink" | "text" | "fresh";

/** The progress of a call that takes long because it reads or writes many files. */
export interface Work {
  /** The conversation that the call is about; absent if it is about none. */
  conversationId?: ConversationId;
  /** How many bytes are done. */
  doneBytes: number;
  /** The method. */
  method: string;
  /** How many bytes there are in total, as far as known yet. */
  totalBytes: number;
}

/** The answer of `daemon/work`. */
export interface WorkAnswer {
  /** The running calls, oldest first. */
  work: Work[];
}

/** Parameters of `daemon/status`. */
export interface DaemonStatusParams {
}

/** Parameters of `daemon/work`. */
export interface DaemonWorkParams {
}

/** Parameters of `daemon/diagnose`. */
export interface DaemonDiagnoseParams {
  /** Whether to start agents that do not run and ask for their version. Default: true. */
  agents?: boolean;
  /**
   * The caller's own `PATH`: reports agents that are found there and not on the daemon's. Default: only the daemon's
   * own is searched.
   */
  path?: string;
}

/** Parameters of `daemon/shutdown`. */
export interface DaemonShutdownParams {
  /** For how long running turns may still run, in milliseconds. Default: the configured `cancel_grace_ms`. */
  graceMs?: number;
}

/** Methods of the group `daemon`. */
export interface DaemonMethods {
  /** Shows how the daemon is doing. */
  status(params?: DaemonStatusParams, options?: CallOptions): Promise<DaemonStatus>;
  /** Lists the running calls that read or write many files, oldest first, and how far each has come. */
  work(params?: DaemonWorkParams, options?: CallOptions): Promise<WorkAnswer>;
  /**
   * Checks what the daemon depends on: its store, disk space, agents, their transcripts and for how long they keep
   * them, and left-over processes. Changes nothing, except that a journal with damaged lines is written anew from the
   * database while changes wait.
   */
  diagnose(params?: DaemonDiagnoseParams, options?: CallOptions): Promise<Diagnosis>;
  /** Stops the daemon. Running turns get some time to end. */
  shutdown(params?: DaemonShutdownParams, options?: CallOptions): Promise<Empty>;
}

/** Parameters of `rpc.discover`. */
export interface RpcDiscoverParams {
}

/** Methods of the group `rpc`. */
export interface RpcMethods {
  /** Returns this document: the methods, events and errors of the daemon as OpenRPC. */
  discover(params?: RpcDiscoverParams, options?: CallOptions): Promise<OpenRpcDocument>;
}

/** Parameters of `agent/list`. */
export interface AgentListParams {
}

/** Parameters of `agent/authenticate`. */
export interface AgentAuthenticateParams {
  /** The agent to sign in to. */
  agent: AgentName;
  /** One of the agent's `authMethods`, as `agent/list` reports them. */
  methodId: string;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `agent/logout`. */
export interface AgentLogoutParams {
  /** The agent to sign out of. */
  agent: AgentName;
  /** Whether to clear the chains of its conversations too. Default: false. */
  reset?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Methods of the group `agent`. */
export interface AgentMethods {
  /** Lists the configured agents and the built-in `loopback`. */
  list(params?: AgentListParams, options?: CallOptions): Promise<AgentList>;
  /** Signs in to an agent by one of its own methods. */
  authenticate(params: AgentAuthenticateParams, options?: CallOptions): Promise<Empty>;
  /** Signs out of an agent. */
  logout(params: AgentLogoutParams, options?: CallOptions): Promise<Empty>;
}

/** Parameters of `conversation/new`. */
export interface ConversationNewParams {
  /** The agent to talk to. Default: the configured default agent. */
  agent?: AgentName;
  /** The folder to run in: the absolute path of an existing folder. */
  cwd: string;
  /** The title. Default: none. */
  title?: string;
  /** The app that the conversation belongs to, in the app's own words. Default: none. */
  namespace?: string;
  /**
   * Whether to open the upstream session at once. If that fails, the conversation exists all the same: the error's
   * `conversationId` names it, and it can be prompted. Default: false.
   */
  open?: boolean;
  /** How to set up its sessions. Default: the agent's own settings. */
  settings?: Settings;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/list`. */
export interface ConversationListParams {
  /** Only those of this app. Default: all. */
  namespace?: string;
  /** Only those of this agent. Default: all. */
  agent?: AgentName;
  /** Only those that run in this absolute folder, whichever path leads to it. Default: any folder. */
  cwd?: string;
  /** Only those in this state. Default: any state. */
  state?: ConversationState;
  /** Only those with an interrupted turn or a held prompt (true), or only the others (false). Default: both. */
  cutShort?: boolean;
  /** Words, each of which must be in the title, the folder or the agent, in any case, or begin the id. Default: all. */
  query?: string;
  /** The `nextCursor` of the previous page. Default: the first page. */
  cursor?: Cursor;
  /** The most entries to return, up to 500. Default: 50. */
  limit?: number;
}

/** Parameters of `conversation/get`. */
export interface ConversationGetParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
}

/** Parameters of `conversation/resolve`. */
export interface ConversationResolveParams {
  /**
   * A conversation's id, an upstream id that it ever had, or a prefix of either of 6 characters or more; or a part of
   * its title, in any case, if no other title contains it; or `.`: the conversation of `cwd` that was last found
   * there by this method, else the newest of that folder. If several match, the error's `candidates` have the `id`
   * and `title` of each; if none does, its `transcripts` have those of the transcripts whose ids begin so.
   */
  name: string;
  /**
   * The absolute folder that the user is in. If the conversation runs there, `.` means this conversation from now on.
   * Needed for `.`.
   */
  cwd?: string;
}

/** Parameters of `conversation/tree`. */
export interface ConversationTreeParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
}

/** Parameters of `conversation/update`. */
export interface ConversationUpdateParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** The new title. Default: unchanged. */
  title?: string;
  /** The settings that change; the others stay. Default: none changes. */
  settings?: Settings;
  /** The `revision` that the caller has seen; any other is refused as `revisionMismatch`. Default: any revision. */
  expectedRevision?: number;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/prompt`. */
export interface ConversationPromptParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** A text, or ACP's content blocks. */
  prompt: Record<string, any>[] | string;
  /** What to do while another turn runs. Default: `fail`. */
  onBusy?: OnBusy;
  /** What to do at a usage limit. Default: `fail`. */
  onLimit?: OnLimit;
  /**
   * The least that the session must have of the history; with less the prompt is refused as `notResumable`. Default:
   * `text`.
   */
  minFidelity?: Fidelity;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/continue`. */
export interface ConversationContinueParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** When: `reset` (the end of the usage limit), `now`, or a time. Needed unless `cancel` is true. */
  at?: ContinueAt;
  /**
   * What to send if the transcript contains the interrupted prompt, or if none was interrupted. Default: the text of
   * the scheduled continuation, otherwise a short text of the daemon's.
   */
  text?: Record<string, any>[] | string;
  /** Whether to cancel the scheduled continuation. Default: false. */
  cancel?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/cancel`. */
export interface ConversationCancelParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** The turn to cancel, running or queued. Default: the running one. */
  turnId?: TurnId;
  /** Whether to cancel the queued turns too. Default: false. */
  queued?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/resume`. */
export interface ConversationResumeParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /**
   * The least that the session must have of the history; with less the call is refused as `notResumable`. Default:
   * `text`.
   */
  minFidelity?: Fidelity;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/fork`. */
export interface ConversationForkParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** Whether the branch becomes the head of this conversation. Default: false, a new conversation. */
  inPlace?: boolean;
  /**
   * The last checkpoint or message that the branch contains, by its id. Default: the head. A message inside a turn is
   * rounded: back to the last message before which every tool call has its result; for Codex forward to the end of
   * its turn. `link.fromCheckpointId` says where the branch begins.
   */
  at?: string;
  /** The folder for the branch: the absolute path of an existing folder. Default: this conversation's. */
  cwd?: string;
  /** The branch's title. Default: this conversation's. */
  title?: string;
  /** The least that the branch must have of the history. Default: `text`. */
  minFidelity?: Fidelity;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/edit`. */
export interface ConversationEditParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** The checkpoint of the turn whose prompt is replaced, or the message of that prompt, by its id. */
  at: string;
  /** The new prompt: a text, or ACP's content blocks. */
  prompt: Record<string, any>[] | string;
  /** The least that the new turn must have of the history before it. Default: `text`. */
  minFidelity?: Fidelity;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/undo`. */
export interface ConversationUndoParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/move`. */
export interface ConversationMoveParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** The new folder: the absolute path of an existing folder. */
  cwd: string;
  /** Whether to return the plan and change nothing. Default: false. */
  dryRun?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/chain`. */
export interface ConversationChainParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
}

/** Parameters of `conversation/lineage`. */
export interface ConversationLineageParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** The `nextCursor` of the previous page. Default: the first page. */
  cursor?: Cursor;
  /** The most entries to return, up to 1,000. Default: 100. */
  limit?: number;
}

/** Parameters of `conversation/checkpoints`. */
export interface ConversationCheckpointsParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** Only those before this one: the last of the previous page. Default: from the newest. */
  before?: CheckpointId;
  /** The most entries to return, up to 500. Default: 50. */
  limit?: number;
}

/** Parameters of `conversation/history`. */
export interface ConversationHistoryParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /**
   * The `nextCursor` or `previousCursor` of a page. Not with `last`. Default: the beginning. After edits, its
   * position may be missing, and it is refused: read again from the end, with `last`.
   */
  cursor?: Cursor;
  /** The most messages to return, up to 1,000. Default: 100. */
  limit?: number;
  /** Only the last N messages, up to 1,000; any number with `limit`. Default: all. */
  last?: number;
  /**
   * Whether to return the messages themselves or as ACP's updates; `limit` and `last` count messages either way.
   * Default: `messages`.
   */
  as?: HistoryForm;
}

/** Parameters of `conversation/respond`. */
export interface ConversationRespondParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** The question: the `id` of an interrupt. */
  interruptId: InterruptId;
  /** ACP's outcome. */
  outcome: any;
  /**
   * Who answers, as other clients see it: a name of 1 to 64 characters, without control characters, and not `agent`,
   * `cancel`, `edit`, `fork`, `policy`, `reset` or `undo`. Default: `client`.
   */
  by?: string;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/close`. */
export interface ConversationCloseParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/reset`. */
export interface ConversationResetParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/delete`. */
export interface ConversationDeleteParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** Whether to keep or delete the agents' transcripts. Default: `keep`. */
  transcripts?: TranscriptsOnDelete;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/adopt`. */
export interface ConversationAdoptParams {
  /** The session, by the agent's own id, or the first 6 or more characters of it if no other session's id starts so. */
  upstreamId: UpstreamId;
  /**
   * The agent of the session. Needed where several agents have a transcript with this id. Default: the agent that has
   * one.
   */
  agent?: AgentName;
  /** The folder to run in: the absolute path of an existing folder. Default: the transcript's own. */
  cwd?: string;
  /** The title. Default: that of a deleted conversation that had the session, else the transcript's own. */
  title?: string;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/export`. */
export interface ConversationExportParams {
  /** The conversation: its id, an upstream id that it ever had, or a prefix of either of 6 characters or more. */
  conversationId: ConversationRef;
  /** What to write. Default: `json`. */
  format?: ExportFormat;
  /**
   * The file to create: an absolute path of a file that does not exist. Default: with `json` none, the answer
   * contains the messages; with `bundle` a file in the folder `exports` of the daemon's data.
   */
  path?: string;
  /** Whether to include the values of MCP servers' `env` and `headers`. Default: false; `missingValues` names them. */
  secrets?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `conversation/import`. */
export interface ConversationImportParams {
  /** The bundle: an absolute path. */
  path: string;
  /**
   * The folder to run in: the absolute path of an existing folder. A session of a folder below the bundle's own runs
   * in the same folder below this one, if that exists. Default: none, `sameFolders` has to be true.
   */
  cwd?: string;
  /**
   * Whether to use the folders that the bundle names; they have to exist. Only for a bundle of your own. Default:
   * false.
   */
  sameFolders?: boolean;
  /**
   * Whether to give the conversation and its sessions new ids. Default: false, and ids that exist here are a
   * conflict.
   */
  newIds?: boolean;
  /** Whether to take all of its settings. Default: false, only the model. */
  trustSettings?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Methods of the group `conversation`. */
export interface ConversationMethods {
  /** Creates a conversation. Its upstream session is opened at the first prompt or resume. */
  "new"(params: ConversationNewParams, options?: CallOptions): Promise<ConversationAnswer>;
  /** Lists conversations, newest first. */
  list(params?: ConversationListParams, options?: CallOptions): Promise<ConversationPage>;
  /** Returns one conversation. */
  get(params: ConversationGetParams, options?: CallOptions): Promise<ConversationAnswer>;
  /** Finds the conversation that a user means by what they typed. */
  resolve(params: ConversationResolveParams, options?: CallOptions): Promise<ConversationAnswer>;
  /** Returns the conversations that are related by forks: the first ancestor, and everything that branched off it. */
  tree(params: ConversationTreeParams, options?: CallOptions): Promise<TreeAnswer>;
  /**
   * Changes the title or the settings. Model, mode and options apply to an open session at once. An agent takes a
   * system prompt, MCP servers and folders when it opens a session: the session is reopened before the next turn,
   * unless the agent cannot reopen sessions, a background command runs, or other conversations use the same Codex
   * process.
   */
  update(params: ConversationUpdateParams, options?: CallOptions): Promise<ConversationAnswer>;
  /** Sends a prompt, and answers when its turn has ended. */
  prompt(params: ConversationPromptParams, options?: CallOptions): Promise<TurnResult>;
  /**
   * Schedules the conversation to continue what a limit, a crash or a stop interrupted. If the agent's transcript
   * does not contain the interrupted prompt, that prompt is sent again. If it does, `text` is sent, or a short text
   * of the daemon's. If no prompt was interrupted, `text` is sent.
   */
  continue(params: ConversationContinueParams, options?: CallOptions): Promise<ContinueAnswer>;
  /** Cancels a turn, and answers when it has ended. */
  cancel(params: ConversationCancelParams, options?: CallOptions): Promise<CancelAnswer>;
  /** Opens the conversation's session without sending a prompt. */
  resume(params: ConversationResumeParams, options?: CallOptions): Promise<ResumeAnswer>;
  /** Forks a conversation: into a new one, or in place, as a new head of the same one. */
  fork(params: ConversationForkParams, options?: CallOptions): Promise<ForkAnswer>;
  /**
   * Replaces the prompt of a turn, finished or not: the history before that turn continues with the new prompt.
   * Answers when the new turn has ended.
   */
  edit(params: ConversationEditParams, options?: CallOptions): Promise<EditAnswer>;
  /** Undoes the last edit, fork in place, move or reset, then the one before it. */
  undo(params: ConversationUndoParams, options?: CallOptions): Promise<UndoAnswer>;
  /**
   * Moves a conversation to another folder: its transcripts and side files are moved to where the agent looks for
   * them there, and name the new folder. Files that differ are never replaced. Refused as busy while a turn runs or
   * another program writes.
   */
  move(params: ConversationMoveParams, options?: CallOptions): Promise<MoveAnswer>;
  /** Lists the upstream sessions that can be resumed, oldest first; the last is the head. */
  chain(params: ConversationChainParams, options?: CallOptions): Promise<ChainAnswer>;
  /** Lists everything that ever happened to the chain, oldest first. */
  lineage(params: ConversationLineageParams, options?: CallOptions): Promise<LineagePage>;
  /** Lists the checkpoints of the current history, newest first. Each stands after a turn. */
  checkpoints(params: ConversationCheckpointsParams, options?: CallOptions): Promise<CheckpointPage>;
  /**
   * Returns the messages of the current history, over all of its sessions, oldest first: from the beginning, from
   * `cursor`, or the `last` ones. With `last` and `limit` the page is the beginning of those, and `nextCursor` leads
   * to the rest.
   */
  history(params: ConversationHistoryParams, options?: CallOptions): Promise<HistoryPage>;
  /** Answers a question of the agent. The first answer wins. */
  respond(params: ConversationRespondParams, options?: CallOptions): Promise<RespondAnswer>;
  /** Closes the session. The next prompt reopens it. */
  close(params: ConversationCloseParams, options?: CallOptions): Promise<Empty>;
  /** Starts an empty session in the same conversation: the chain is empty until the next prompt, the lineage stays. */
  reset(params: ConversationResetParams, options?: CallOptions): Promise<ConversationAnswer>;
  /**
   * Deletes a conversation for good; its id is never used again. The answer lists the transcripts that remain, and
   * why. Transcripts of sessions that were adopted along with another always remain.
   */
  delete(params: ConversationDeleteParams, options?: CallOptions): Promise<DeleteAnswer>;
  /**
   * Makes a conversation of a transcript that another program made; the next prompt resumes it. If a conversation
   * already has the session, returns that conversation. The sessions that it came from, as far as the files say, join
   * the chain unless another conversation has them.
   */
  adopt(params: ConversationAdoptParams, options?: CallOptions): Promise<AdoptAnswer>;
  /**
   * Writes a conversation to one file that only its owner may read. As `json`: the messages, for other programs;
   * without a `path` the answer itself contains them, as far as an answer can. As `bundle`: what
   * `conversation/import` reads, with the agents' transcripts, as of the call. If the daemon is killed before it
   * answers, the file may be there already: a repetition with the same `requestId` and `path` is then refused with
   * `conflict`.
   */
  export(params: ConversationExportParams, options?: CallOptions): Promise<ExportAnswer>;
  /**
   * Imports the conversation of a bundle: its transcripts are put where the agents of this machine look for them, and
   * the next prompt resumes it. The whole file is checked before anything is put in place. Of its settings only the
   * model is taken, since another person may have made the file; `leftOut` names the others.
   *
   * The bundle names the folders in which the conversation and its sessions ran: give `cwd` or `sameFolders`.
   */
  import(params: ConversationImportParams, options?: CallOptions): Promise<ImportAnswer>;
}

/** Parameters of `transcript/list`. */
export interface TranscriptListParams {
  /** Only those of this agent. Default: all agents whose transcripts can be listed. */
  agent?: AgentName;
  /** Only those of this absolute folder. Default: any folder. */
  cwd?: string;
  /** Words, each of which must be in the title, the folder, the path or the id, in any case. Default: all. */
  query?: string;
  /** The `nextCursor` of the previous page. Default: the first page. */
  cursor?: Cursor;
  /** The most entries to return, up to 500. Default: 50. */
  limit?: number;
}

/** Parameters of `transcript/check`. */
export interface TranscriptCheckParams {
  /**
   * The session, by the agent's own id, or the first 6 or more characters of it if no other session's id starts so.
   * Either this or `conversationId`.
   */
  upstreamId?: UpstreamId;
  /** The conversation. Either this or `upstreamId`. */
  conversationId?: ConversationRef;
  /** The agent of `upstreamId`. Needed where several agents have a session with this id. */
  agent?: AgentName;
  /** Whether to write a repaired copy. Default: false. */
  repair?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `transcript/keep`. */
export interface TranscriptKeepParams {
  /**
   * The session, by the agent's own id, or the first 6 or more characters of it if no other session's id starts so.
   * Either this or `conversationId`.
   */
  upstreamId?: UpstreamId;
  /** The conversation. Either this or `upstreamId`. */
  conversationId?: ConversationRef;
  /** The agent of `upstreamId`. Needed where several agents have a session with this id. */
  agent?: AgentName;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `transcript/restore`. */
export interface TranscriptRestoreParams {
  /**
   * The session, by the agent's own id, or the first 6 or more characters of it if no other session's id starts so.
   * Either this or `conversationId`.
   */
  upstreamId?: UpstreamId;
  /** The conversation. Either this or `upstreamId`. */
  conversationId?: ConversationRef;
  /** The agent of `upstreamId`. Needed where several agents have a session with this id. */
  agent?: AgentName;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `transcript/forget`. */
export interface TranscriptForgetParams {
  /** The session, by the agent's own id. */
  upstreamId: UpstreamId;
  /** The agent of the session. Needed where copies of several agents' sessions with this id are kept. */
  agent?: AgentName;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `transcript/move`. */
export interface TranscriptMoveParams {
  /** The folder's old absolute path. */
  from: string;
  /** The folder's new absolute path, which exists. */
  to: string;
  /** Whether to return the plan and change nothing. Default: false. */
  dryRun?: boolean;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `transcript/undo`. */
export interface TranscriptUndoParams {
  /** The move: its `undoId`, as its answer and `transcript/moves` report it. */
  undoId: string;
  /**
   * The caller's own id of this call: the same id with the same content joins the running call or returns its result,
   * for 7 days or 1,000 calls. A call that changes nothing, such as a dry run, is not remembered. 1 to 256 bytes.
   * Default: each call is carried out.
   */
  requestId?: string;
}

/** Parameters of `transcript/moves`. */
export interface TranscriptMovesParams {
}

/** Methods of the group `transcript`. */
export interface TranscriptMethods {
  /**
   * Lists the transcripts that the agents keep on this machine, whichever program made them, newest first. Covers
   * Claude Code, Codex, Qwen Code and `loopback`. The first page shows the files as they are now; later pages show
   * the same moment.
   */
  list(params?: TranscriptListParams, options?: CallOptions): Promise<TranscriptPage>;
  /**
   * Checks a transcript, or that of a conversation's head, for damage, and says what the damage means for a resume.
   * Never changes the transcript itself. If the transcript is missing, its kept copy is checked; a repair restores
   * that copy first.
   *
   * With `repair`, writes a sound copy under a new id: lines that are not records are left out, records whose parents
   * are missing are attached to the record before them, and tool calls without results get the result that the agent
   * itself would fill in. The answer names the copy as `repaired` and, as `fidelity`, how much of the session it has;
   * there is no copy where nothing needs repair. A conversation whose head is repaired continues with the copy: its
   * session is closed and the copy joins the chain as `rebuilt`; during a turn or an open question that is `busy`. A
   * session in the past of a conversation is refused with `conflict`. The copy of a session that no conversation has
   * belongs to none until it is adopted.
   */
  check(params?: TranscriptCheckParams, options?: CallOptions): Promise<CheckAnswer>;
  /**
   * Copies the transcripts of a conversation's sessions, or of one session, with their side files into the daemon's
   * data folder, as far as they are not copied yet, and returns the size of each copy. If no conversation and no
   * session is named, nothing is copied, and the size of all copies together is returned. Works even where `[keep]`
   * is disabled.
   */
  keep(params?: TranscriptKeepParams, options?: CallOptions): Promise<KeepAnswer>;
  /**
   * Restores the kept copies of a conversation's sessions, or of one session, to where the agent looks for them.
   * Existing files are never replaced; a transcript that does not contain its kept copy is a conflict. While the
   * session is open, its missing transcript is not restored; that is `busy`.
   */
  restore(params?: TranscriptRestoreParams, options?: CallOptions): Promise<RestoreAnswer>;
  /**
   * Deletes the kept copies of a session that no conversation has, as `transcript/keep` lists them in `unclaimed`.
   * The agent's own transcript stays. The copies of a conversation's session are deleted with the conversation, by
   * `conversation/delete` with `transcripts`; here they are a conflict.
   */
  forget(params: TranscriptForgetParams, options?: CallOptions): Promise<ForgetAnswer>;
  /**
   * Follows a project folder that was renamed: everything that ran in the old folder or below it now runs in the new
   * one, which has to exist. Covers conversations and transcripts that no conversation has, with their side files.
   * Files that differ are never replaced. Moves all or nothing, also when the daemon is killed meanwhile.
   */
  move(params: TranscriptMoveParams, options?: CallOptions): Promise<TreeMoveAnswer>;
  /** Undoes a folder's move, for 30 days. What was said since stays. */
  undo(params: TranscriptUndoParams, options?: CallOptions): Promise<TreeMoveAnswer>;
  /**
   * Lists the folder moves that were not undone, for as long as an undo is possible. Whether one can be undone is
   * known when that is tried: its files may have been moved again since.
   */
  moves(params?: TranscriptMovesParams, options?: CallOptions): Promise<TreeMoveList>;
}

/** Parameters of `checkpoint/get`. */
export interface CheckpointGetParams {
  /**
   * The checkpoint. With `conversationId` also a turn of that conversation's current history as a user names it: `3`
   * (the third), `-1` (the last), or the id of a message of it.
   */
  checkpointId: CheckpointId;
  /** The conversation whose lineage has to contain it. Default: any. */
  conversationId?: ConversationRef;
}

/** Methods of the group `checkpoint`. */
export interface CheckpointMethods {
  /** Returns a checkpoint and the messages of its turn. */
  get(params: CheckpointGetParams, options?: CallOptions): Promise<CheckpointAnswer>;
}

/** The methods, by the first part of their names. */
export interface Methods {
  readonly daemon: DaemonMethods;
  readonly rpc: RpcMethods;
  readonly agent: AgentMethods;
  readonly conversation: ConversationMethods;
  readonly transcript: TranscriptMethods;
  readonly checkpoint: CheckpointMethods;
}
