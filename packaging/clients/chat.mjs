// A turn with an agent: node chat.mjs SOCKET FOLDER PROMPT
// Lists the newest conversations, makes one in FOLDER, streams the answer, allows once what the agent asks for, and goes on
// where it was when the connection is lost.
import net from "node:net";
import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";

const [path, cwd, prompt] = process.argv.slice(2);
let socket, cursor, waiting = new Map(), calls = 0;

function call(method, params) {
  return new Promise((done, failed) => {
    waiting.set(++calls, { done, failed });
    socket.write(JSON.stringify({ jsonrpc: "2.0", id: calls, method, params }) + "\n");
  });
}

function hear(line) {
  const { id, result, error, params } = JSON.parse(line);
  if (params) return tell(params.result);
  const { done, failed } = waiting.get(id);
  waiting.delete(id);
  error ? failed(error) : done(result);
}

function tell({ conversationId, cursor: now, event }) {
  cursor = now;
  if (event.update?.sessionUpdate === "agent_message_chunk") process.stdout.write(event.update.content.text ?? "");
  if (event.type !== "interruptRaised" || event.interrupt.kind !== "permission") return;
  const option = event.interrupt.request.options.find((option) => option.kind === "allow_once");
  const outcome = { outcome: "selected", optionId: option.optionId };
  call("conversation/respond", { conversationId, interruptId: event.interrupt.id, outcome }).catch(console.error);
}

async function connect() {
  socket = net.connect(path);
  createInterface({ input: socket }).on("line", hear);
  const lost = { message: "the connection was lost", lost: true };
  socket.on("close", () => { for (const { failed } of waiting.values()) failed(lost); waiting.clear(); });
  await new Promise((done, failed) => socket.once("connect", done).once("error", failed));
}

await connect();
for (const { id, title } of (await call("conversation/list", { limit: 5 })).conversations) console.log(id, title);
const { id: conversationId } = (await call("conversation/new", { cwd })).conversation;
const requestId = randomUUID(); // The same call again, and not a second turn.
for (let turn; !turn; ) {
  try {
    await call("conversation/subscribe", { conversationId, after: cursor });
    turn = await call("conversation/prompt", { conversationId, prompt, requestId });
    console.log(`\n${turn.stopReason}`);
  } catch (error) {
    if (!error.lost) throw new Error(`${error.code}: ${error.message}`);
    await connect();
  }
}
socket.end();
