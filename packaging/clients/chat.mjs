// A turn with an agent on the terminal: node chat.mjs FOLDER PROMPT
// Lists the newest conversations, creates one in FOLDER, streams the answer, and passes your answers to the agent's questions.
import { createInterface } from "node:readline";
import { Client } from "./session-bridge.mjs";

process.on("uncaughtException", ({ code, name, message }) => {
  console.error(`${code ?? name}: ${message}`);
  process.exit(1);
});
const [cwd, prompt] = process.argv.slice(2);
if (!prompt) throw new Error("usage: chat.mjs FOLDER PROMPT");
let [shown, questions, hasGap] = ["", [], false];

const client = await Client.connect({
  onConnection: (isUp) => console.error(isUp ? "(connected again)" : "\n(waiting for the daemon)"),
});
const newest = await client.conversation.list({ limit: 5 });
for (const { id, title } of newest.conversations) console.log(id, title);
const conversationId = (await client.conversation.new({ cwd })).conversation.id;
follow(client.subscribe({ conversationId }));
createInterface({ input: process.stdin }).on("line", answer);
const turn = await client.conversation.prompt({ conversationId, prompt });
if (hasGap || turn.failure) {
  // The rest of the answer: not all of its events arrived, or the daemon was killed during the turn.
  const { messages } = await client.conversation.history({ conversationId, limit: 1000 });
  const parts = messages.filter(({ role }) => role === "assistant").flatMap(({ content }) => content);
  show(parts.map(({ type, text }) => (type === "text" ? text : "")).join(""));
}
console.log(`\n${turn.stopReason}`);
if (turn.failure) console.error(turn.failure.message);
process.exit(turn.failure ? 1 : 0);

async function follow(events) {
  for await (const { event } of events) {
    if (event.type === "snapshot") {
      [hasGap, questions] = [event.gap, []];
      if (hasGap) console.error("(events were missed)");
      event.conversation.interrupts.forEach(ask);
    } else if (event.type === "interruptRaised") ask(event.interrupt);
    else if (event.type === "interruptResolved") questions = questions.filter(({ id }) => id !== event.interruptId);
    else if (event.update?.sessionUpdate === "agent_message_chunk" && !hasGap) show(shown + (event.update.content.text ?? ""));
  }
}
function show(answer) {
  process.stdout.write(answer.startsWith(shown) ? answer.slice(shown.length) : `\n${answer}`);
  shown = answer;
}
function ask(question) {
  if (question.kind !== "permission") return;
  questions.push(question);
  const options = question.options.map(({ name }, index) => `${index + 1} ${name}`);
  console.log(`\n${question.toolCall.title} (${options.join(", ")})`);
}
function answer(line) {
  const [interruptId, option] = [questions[0]?.id, questions[0]?.options[line - 1]];
  const outcome = { outcome: "selected", optionId: option?.optionId };
  if (option) client.conversation.respond({ conversationId, interruptId, outcome }).catch(console.error);
}
