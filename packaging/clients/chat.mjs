// A turn with an agent: node chat.mjs SOCKET FOLDER PROMPT
// Lists the newest conversations, makes one in FOLDER, streams the answer, allows once what the agent asks for, and goes on
// where it was when the connection is lost.
import net from "node:net";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [path, cwd, prompt] = process.argv.slice(2);
if (prompt === undefined) {
  console.error("usage: chat.mjs SOCKET FOLDER PROMPT");
  process.exit(1);
}
let socket, cursor, conversationId, calls = 0;
const waiting = new Map(), answers = new Map();

function call(method, params) {
  return new Promise((done, failed) => {
    if (socket.destroyed) return failed({ lost: true });
    waiting.set(++calls, { done, failed });
    socket.write(JSON.stringify({ jsonrpc: "2.0", id: calls, method, params }) + "\n");
  });
}

function hear(line) {
  let message;
  try { message = JSON.parse(line); } catch { return socket.destroy(); } // It was cut off.
  if (message.params) return tell(message.params.result);
  if (!waiting.has(message.id)) return console.error(message.error?.message ?? line); // It answers no call of ours.
  const { done, failed } = waiting.get(message.id);
  waiting.delete(message.id);
  message.error ? failed(message.error) : done(message.result);
}

function tell({ cursor: now, event }) {
  cursor = now;
  if (event.update?.sessionUpdate === "agent_message_chunk") process.stdout.write(event.update.content.text ?? "");
  else if (event.type === "interruptRaised") answer(event.interrupt);
  else if (event.type === "snapshot") event.conversation.interrupts?.forEach(answer); // Also where some events are missed.
  else if (event.type === "interruptResolved") answers.delete(event.interruptId);
  else if (event.type === "lagged") socket.destroy(); // Events came too fast.
}

function answer({ id: interruptId, kind, request }) {
  if (kind !== "permission" || answers.has(interruptId)) return;
  const once = request.options.find((option) => option.kind === "allow_once");
  const outcome = once ? { outcome: "selected", optionId: once.optionId } : { outcome: "cancelled" };
  answers.set(interruptId, { conversationId, interruptId, outcome });
  respond(answers.get(interruptId));
}

function respond(answer) {
  call("conversation/respond", answer).catch((error) => { if (!error.lost) console.error(error.message); });
}

async function connect() {
  for (let tries = 0; ; tries++) {
    socket = net.connect(path);
    if (await new Promise((done) => socket.once("connect", () => done(true)).once("error", () => done(false)))) break;
    if (tries === 30) throw new Error(`no daemon answers at ${path}`);
    await pause(1000); // The daemon may just be starting again.
  }
  socket.on("error", () => {}); // It closes then.
  socket.on("close", () => { for (const { failed } of waiting.values()) failed({ lost: true }); waiting.clear(); });
  createInterface({ input: socket }).on("line", hear).on("error", () => {});
}

// A call that is made again when the connection was lost; under its requestId it happens once.
async function steady(method, params) {
  for (let first = true; ; first = false) {
    try {
      if (!first && conversationId) {
        await call("conversation/subscribe", { conversationId, after: cursor });
        answers.forEach(respond); // What may have been lost on the way.
      }
      return await call(method, params);
    } catch (error) {
      if (!error.lost) throw new Error(`${error.code}: ${error.message}`);
      await connect();
    }
  }
}

await connect();
for (const { id, title } of (await steady("conversation/list", { limit: 5 })).conversations) console.log(id, title);
conversationId = (await steady("conversation/new", { cwd, requestId: randomUUID() })).conversation.id;
await steady("conversation/subscribe", { conversationId });
const turn = await steady("conversation/prompt", { conversationId, prompt, requestId: randomUUID() });
console.log(`\n${turn.stopReason}`);
if (turn.failure) {
  console.error(`${turn.failure.kind}: ${turn.failure.message}`);
  process.exitCode = 1;
}
socket.end();
