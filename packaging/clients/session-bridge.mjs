// A client of sessiond for Node 18 or newer, without dependencies. Copy this file and session-bridge-contract.mjs into your
// project; for TypeScript also the two .d.mts files beside them.
import { randomUUID } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { methods } from "./session-bridge-contract.mjs";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 2000;
// A subscription that is read more slowly than events arrive stops here, and continues after these were read.
const BUFFERED_EVENTS = 16384;

/** An error that the daemon returned. */
export class BridgeError extends Error {
  name = "BridgeError";
  constructor({ code, message, data = {} }) {
    super(message);
    Object.assign(this, { code, kind: data.kind, retryable: data.retryable ?? false, data });
  }
}

/** There is no connection: no daemon listens, another user does, or the client was closed. */
export class ConnectionError extends Error {
  name = "ConnectionError";
  /** Whether the socket belongs to another user. */
  isForeign = false;
}

/** A queued prompt was not sent after a lost connection, because its conversation is cut short. */
export class CutShortError extends Error {
  name = "CutShortError";
  constructor(requestId) {
    super("the prompt was not sent, because its conversation was cut short: continue it, then send the prompt with this request id");
    /** The prompt's request id. */
    this.requestId = requestId;
  }
}

/** The sockets on which the daemon may listen, the most likely first. `sessionctl` finds them in the same way. */
export function socketPaths({ socket, home } = {}) {
  const given = (name, value) => {
    if (value && !path.isAbsolute(value)) throw new ConnectionError(`${name} is a relative path: ${value}`);
    return value || undefined;
  };
  const { SESSIOND_SOCKET, SESSIOND_HOME, XDG_DATA_HOME, XDG_RUNTIME_DIR } = process.env;
  const named = given("socket", socket) ?? (home ? undefined : given("SESSIOND_SOCKET", SESSIOND_SOCKET));
  if (named) return [named];
  const below = given("home", home) ?? given("SESSIOND_HOME", SESSIOND_HOME);
  const isMac = process.platform === "darwin";
  // A relative folder of XDG counts as not set.
  const xdg = (value) => (!isMac && value && path.isAbsolute(value) ? value : undefined);
  const shared = xdg(XDG_DATA_HOME) ?? path.join(os.homedir(), isMac ? "Library/Application Support" : ".local/share");
  const data = below ? path.join(below, "data") : path.join(shared, "sessiond");
  const runtime = xdg(XDG_RUNTIME_DIR);
  const run = below ? path.join(below, "run") : runtime ? path.join(runtime, "sessiond") : path.join(data, "run");
  const paths = [path.join(run, "sessiond.sock")];
  try {
    const lock = path.join(data, "sessiond.lock");
    const { socket } = JSON.parse(readFileSync(lock, "utf8"));
    if (statSync(lock).uid === process.getuid() && path.isAbsolute(socket)) paths.unshift(socket);
  } catch {
    // No daemon has run here yet.
  }
  return [...new Set(paths)];
}

/** Whether a call sends a prompt that may wait for other turns. */
const mayQueue = ({ method, params }) => method === "conversation/prompt" && params.onBusy === "queue";

function dial(socketPath) {
  return new Promise((resolve, reject) => {
    const absent = (cause) =>
      reject(new ConnectionError(`no daemon answers at ${socketPath}: ${cause.message}`, { cause }));
    try {
      const { uid } = statSync(socketPath);
      if (uid !== process.getuid()) {
        const words = `refusing the socket ${socketPath}: it belongs to user ${uid}, and you are user ${process.getuid()}`;
        return reject(Object.assign(new ConnectionError(words), { isForeign: true }));
      }
    } catch (error) {
      return absent(error);
    }
    const socket = net.connect(socketPath);
    socket.once("connect", () => resolve(socket)).on("error", absent);
  });
}

/**
 * A connection that is made again whenever it is lost. Each subscription then continues after its last event, and each
 * unanswered call is sent again: calls that change something have a `requestId`, so the daemon carries them out once.
 */
export class Client {
  #options;
  #socket;
  #pauseMs = FIRST_PAUSE_MS;
  #lastId = 0;
  #calls = new Map();
  // Conversations whose calls wait until it is known whether queued prompts are sent again.
  #held = new Set();
  #subscriptions = new Set();
  #byId = new Map();
  #ended;
  #ending = new AbortController();

  constructor(options) {
    this.#options = options;
    for (const method of Object.keys(methods)) {
      const [group, name] = method.split(/[/.]/);
      this[group] ??= {};
      this[group][name] = (params, callOptions) => this.call(method, params, callOptions);
    }
  }

  /** Connects to the daemon, or rejects with a `ConnectionError` if none answers. */
  static async connect(options = {}) {
    const client = new Client(options);
    await client.#connect();
    return client;
  }

  /** Calls a method by its name on the wire. */
  call(method, params = {}, { signal } = {}) {
    if (methods[method]) params = { ...params, requestId: params.requestId ?? randomUUID() };
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const abort = () => this.#calls.delete(id) && reject(signal.reason);
      // Not at once: a reader of events that does not pause between them first takes all that came before the answer.
      const settle = (settler) => (value) => {
        signal?.removeEventListener("abort", abort);
        setImmediate(settler, value);
      };
      const call = { method, params, resolve: settle(resolve), reject: settle(reject) };
      // The daemon that was asked to stop has ended. The next one must not be asked.
      if (method === "daemon/shutdown") call.onLost = () => call.resolve({});
      signal?.addEventListener("abort", abort, { once: true });
      const id = this.#send(call);
    });
  }

  /** The events of one conversation or of all conversations, from now on. */
  subscribe({ conversationId, after } = {}) {
    const nothing = () => {};
    const subscription = { conversationId, after, queue: [], isFull: false, isOver: false, wake: nothing };
    if (this.#ended) subscription.isOver = true;
    this.#subscriptions.add(subscription);
    this.#begin(subscription);
    return {
      [Symbol.asyncIterator]() {
        return this;
      },
      next: async () => {
        for (;;) {
          const value = subscription.queue.shift();
          if (value) return { value, done: false };
          if (subscription.error) throw subscription.error;
          if (subscription.isOver) return { value, done: true };
          if (subscription.isFull) {
            subscription.isFull = false;
            this.#begin(subscription);
          }
          await new Promise((wake) => (subscription.wake = wake));
          subscription.wake = nothing;
        }
      },
      return: async () => {
        subscription.queue = [];
        this.#stop(subscription);
        return { value: undefined, done: true };
      },
    };
  }

  /** Ends the connection, all subscriptions and, with a `ConnectionError`, all calls. */
  close() {
    this.#end(new ConnectionError("the client was closed"));
  }

  async #connect() {
    const problems = [];
    for (const socketPath of socketPaths(this.#options)) {
      try {
        return this.#opened(await dial(socketPath));
      } catch (error) {
        problems.push(error);
      }
    }
    throw problems.find((error) => error.isForeign) ?? problems[0];
  }

  #opened(socket) {
    if (this.#ended) return socket.destroy();
    this.#socket = socket;
    let parts = [];
    // Not readline: since Node 24 it also ends a line at U+2028, which JSON may contain.
    socket.setEncoding("utf8").on("data", (text) => {
      const [first, ...others] = text.split("\n");
      parts.push(first);
      for (const next of others) {
        this.#hear(parts.join(""));
        parts = [next];
      }
    });
    socket.on("close", () => this.#lost());
    // Subscriptions come first, so that the events of a turn precede its answer.
    const unanswered = [...this.#calls];
    for (const subscription of this.#subscriptions) this.#begin(subscription);
    for (const [, call] of unanswered) if (mayQueue(call)) this.#held.add(call.params.conversationId);
    for (const [id, call] of unanswered) if (!this.#held.has(call.params.conversationId)) this.#write(id, call);
    for (const conversationId of this.#held) this.#repeat(conversationId);
  }

  /**
   * Sends the unanswered calls of a conversation again, and then those that were made in the meantime. If it is cut short,
   * queued prompts are rejected instead: the first would begin at once, in place of the turn that was interrupted before it.
   */
  #repeat(conversationId) {
    const repeat = (isCutShort) => {
      this.#held.delete(conversationId);
      for (const [id, call] of this.#calls) {
        // A call with `onLost` was not held.
        if (call.onLost || call.params.conversationId !== conversationId) continue;
        if (!isCutShort || !mayQueue(call)) this.#write(id, call);
        else if (this.#calls.delete(id)) call.reject(new CutShortError(call.params.requestId));
      }
    };
    this.#send({
      method: "conversation/get",
      params: { conversationId },
      resolve: ({ conversation }) => repeat(conversation.cutShort),
      // The prompt itself gets the error.
      reject: () => this.#ended || repeat(false),
      // The next connection looks again.
      onLost() {},
    });
  }

  async #lost() {
    this.#socket = undefined;
    if (this.#ended) return;
    this.#byId.clear();
    this.#held.clear();
    for (const [id, { onLost }] of this.#calls) {
      if (onLost && this.#calls.delete(id)) onLost();
    }
    this.#options.onConnection?.(false);
    while (!this.#socket && !this.#ended) {
      try {
        // Also before the first attempt: a daemon with too many clients hangs up at once.
        await pause(this.#pauseMs, undefined, { signal: this.#ending.signal });
        this.#pauseMs = Math.min(2 * this.#pauseMs, LONGEST_PAUSE_MS);
        await this.#connect();
        if (this.#socket) this.#options.onConnection?.(true);
      } catch (error) {
        if (error.isForeign) this.#end(error);
      }
    }
  }

  #hear(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return this.#socket.destroy();
    }
    this.#pauseMs = FIRST_PAUSE_MS;
    const { id, params, result, error } = message;
    if (params) return this.#take(params.subscription, params.result);
    const call = this.#calls.get(id);
    // A daemon that is stopping is about to hang up. The call is for the next one.
    if (!call || error?.data?.kind === "shuttingDown") return;
    this.#calls.delete(id);
    if (error) call.reject(new BridgeError(error));
    else call.resolve(result);
  }

  #begin(subscription) {
    const { conversationId, after, isFull, isOver } = subscription;
    if (!this.#socket || isFull || isOver) return;
    this.#send({
      method: "conversation/subscribe",
      params: { conversationId, after },
      resolve: (id) => {
        subscription.id = id;
        this.#byId.set(id, subscription);
        if (subscription.isOver) this.#leave(subscription);
      },
      reject: (error) => {
        subscription.error = error;
        this.#subscriptions.delete(subscription);
        subscription.wake();
      },
      // The next connection begins with it anyway.
      onLost() {},
    });
  }

  #take(id, envelope) {
    const subscription = this.#byId.get(id);
    if (!subscription) return;
    if (envelope.event.type === "lagged") {
      this.#byId.delete(id);
      subscription.after = envelope.event.cursor;
      return this.#begin(subscription);
    }
    if (subscription.queue.length >= BUFFERED_EVENTS) {
      subscription.isFull = true;
      return this.#leave(subscription);
    }
    subscription.after = envelope.cursor;
    subscription.queue.push(envelope);
    if (envelope.event.type === "deleted" && subscription.conversationId) this.#stop(subscription);
    else subscription.wake();
  }

  /** Ends a subscription after the events that it has. */
  #stop(subscription) {
    subscription.isOver = true;
    this.#subscriptions.delete(subscription);
    this.#leave(subscription);
    subscription.wake();
  }

  #leave({ id }) {
    if (!this.#byId.delete(id)) return;
    const ignored = () => {};
    this.#send({ method: "conversation/unsubscribe", params: [id], resolve: ignored, reject: ignored, onLost: ignored });
  }

  #send(call) {
    const id = ++this.#lastId;
    if (this.#ended) call.reject(this.#ended);
    else if (!this.#socket && call.onLost) call.onLost();
    else {
      this.#calls.set(id, call);
      const isHeld = !call.onLost && this.#held.has(call.params.conversationId);
      if (this.#socket && !isHeld) this.#write(id, call);
    }
    return id;
  }

  #write(id, { method, params }) {
    this.#socket.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
  }

  #end(error) {
    if (this.#ended) return;
    this.#ended = error;
    this.#ending.abort();
    this.#socket?.destroySoon();
    for (const call of this.#calls.values()) call.reject(error);
    this.#calls.clear();
    for (const subscription of this.#subscriptions) {
      subscription.isOver = true;
      if (error.isForeign) subscription.error = error;
      subscription.wake();
    }
  }
}
