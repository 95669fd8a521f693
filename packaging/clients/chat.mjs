// A turn with an agent: node chat.mjs SOCKET FOLDER PROMPT
// Lists the newest conversations, makes one in FOLDER, streams the answer, and allows once what is asked.
// A lost connection begins it all again: under its requestId a call happens once, events go on at the cursor.
import net from "node:net";
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";

const [path, cwd, prompt] = process.argv.slice(2);
if (process.argv.length !== 5) quit("usage: chat.mjs SOCKET FOLDER PROMPT");
const [newId, promptId] = [randomUUID(), randomUUID()];
// Another client's answer was first; the daemon is about to hang up.
const passing = ["interruptResolved", "shuttingDown"];
let [calls, tries] = [0, 0];
let socket, lines, listed, conversationId, cursor;

class Lost extends Error {}

function quit(reason) {
  console.error(reason);
  process.exit(1);
}

// Not readline: from Node 24 on that also breaks lines at U+2028, which may stand within JSON.
async function* linesOf(socket) {
  let rest = "";
  for await (const chunk of socket.setEncoding("utf8")) {
    const whole = (rest + chunk).split("\n");
    rest = whole.pop();
    yield* whole;
  }
  throw new Lost("it hung up");
}

function send(method, params) {
  socket.write(JSON.stringify({ jsonrpc: "2.0", id: ++calls, method, params }) + "\n");
  return calls;
}

async function call(method, params) {
  const sent = send(method, params);
  for (;;) {
    const { id, params: told, result, error } = JSON.parse((await lines.next()).value);
    if (told) tell(told.result);
    else if (result && id === sent) return result;
    else if (error && !passing.includes(error.data.kind)) quit(`${error.code}: ${error.message}`);
  }
}

function tell({ cursor: now, event: { type, update, interrupt } }) {
  cursor = now;
  if (update?.sessionUpdate === "agent_message_chunk") process.stdout.write(update.content.text ?? "");
  else if (type === "interruptRaised") answer(interrupt);
  else if (type === "lagged") throw new Lost("events came too fast");
}

function answer({ id: interruptId, kind, options }) {
  if (kind !== "permission") return;
  const once = options.find((option) => option.kind === "allow_once");
  const outcome = once ? { outcome: "selected", optionId: once.optionId } : { outcome: "cancelled" };
  send("conversation/respond", { conversationId, interruptId, outcome });
}

for (;;) {
  try {
    socket = net.connect(path);
    lines = linesOf(socket);
    if (!listed) {
      listed = (await call("conversation/list", { limit: 5 })).conversations;
      for (const { id, title } of listed) console.log(id, title);
    }
    conversationId = (await call("conversation/new", { cwd, requestId: newId })).conversation.id;
    await call("conversation/subscribe", { conversationId, after: cursor });
    const { conversation } = await call("conversation/get", { conversationId });
    conversation.interrupts.forEach(answer); // An answer may have been lost too.
    tries = 0;
    const turn = await call("conversation/prompt", { conversationId, prompt, requestId: promptId });
    console.log(`\n${turn.stopReason}`);
    turn.failure ? quit(turn.failure.message) : process.exit();
  } catch (error) {
    if (!(error instanceof Lost || error.syscall)) throw error;
    socket.destroy();
    if (tries === 30) quit(`no daemon answers at ${path}: ${error.message}`);
    await pause(Math.min(tries++, 1) * 1000); // The daemon may just be starting again.
  }
}
