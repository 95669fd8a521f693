// Types of session-bridge.mjs. Those of the methods, results and events are in session-bridge-contract.d.mts.
import type { CallOptions, Cursor, ConversationRef, ErrorKind, EventEnvelope, Methods } from "./session-bridge-contract.mjs";

/** An error that the daemon returned. */
export class BridgeError extends Error {
  /** JSON-RPC's code of the kind. */
  readonly code: number;
  /** Decide by this; for a kind that you do not know, by `retryable`. */
  readonly kind: ErrorKind;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  /** `kind`, `retryable` and the members that depend on the kind. */
  readonly data: Record<string, any>;
}

/** There is no connection: no daemon listens, another user does, or the client was closed. */
export class ConnectionError extends Error {
  /** Whether the socket belongs to another user. */
  readonly isForeign: boolean;
}

/**
 * A queued prompt was not sent after a lost connection, because its conversation is cut short. Call
 * `conversation/continue`, then repeat the prompt with this `requestId`. Without `continue`, it takes the interrupted turn's place.
 */
export class CutShortError extends Error {
  /** The prompt's request id. */
  readonly requestId: string;
}

export interface SocketOptions {
  /** The daemon's socket, as an absolute path. Default: the one that `sessionctl` would use. */
  socket?: string;
  /** The folder that everything of the daemon is below, as with `sessionctl --home`. */
  home?: string;
}

export interface ClientOptions extends SocketOptions {
  /** Called with `false` when the connection is lost, and with `true` when there is one again. */
  onConnection?(isUp: boolean): void;
}

/** The sockets on which the daemon may listen, the most likely first. `sessionctl` finds them in the same way. */
export function socketPaths(options?: SocketOptions): string[];

/**
 * The events of a subscription. After a lost connection or a restart of the daemon it continues after the last event that
 * arrived. If the daemon no longer has the events since then, the next event is a `snapshot` with `gap: true`. The events of
 * one conversation end after `deleted`.
 */
export interface Subscription extends AsyncIterableIterator<EventEnvelope> {
  return(): Promise<IteratorResult<EventEnvelope, undefined>>;
}

export interface Client extends Methods {}

/**
 * A connection that is made again whenever it is lost. Each subscription then continues after its last event, and each
 * unanswered call is sent again: calls that change something have a `requestId`, so the daemon carries them out once.
 */
export class Client {
  private constructor();
  /** Connects to the daemon, or rejects with a `ConnectionError` if none answers. */
  static connect(options?: ClientOptions): Promise<Client>;
  /** Calls a method by its name on the wire. */
  call(method: string, params?: Record<string, any>, options?: CallOptions): Promise<any>;
  /** The events of one conversation or of all conversations: from now on, or after a cursor. */
  subscribe(params?: { conversationId?: ConversationRef; after?: Cursor }): Subscription;
  /** Ends the connection, all subscriptions and, with a `ConnectionError`, all calls. */
  close(): void;
}
