// An editor made with the official TypeScript SDK, in front of a command:
// node sdk.mjs LIBRARY FOLDER TOOL HANG RECALL COMMAND...
// TOOL is a prompt that asks, uses a tool and says "read"; HANG one that begins and does not end; RECALL one that says "first words".
// Prints "done" and the sessions that are left if each step of a session's life does what the protocol says.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [library, cwd, tool, hang, recall, command, ...args] = process.argv.slice(2);
const acp = await import(pathToFileURL(library).href);
const agent = acp.methods.agent;

async function withConnection(run) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const updates = [];
  let updated = () => {};
  const client = acp
    .client({ name: "sdk-client" })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      updates.push(params);
      updated();
    })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => ({
      outcome: { outcome: "selected", optionId: params.options.find(({ kind }) => kind === "allow_once").optionId },
    }));
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const result = await client.connectWith(stream, async (editor) => {
    const about = await editor.request(agent.initialize, {
      protocolVersion: 1,
      clientCapabilities: {},
      clientInfo: { name: "sdk-client", version: "1" },
    });
    assert.equal(about.protocolVersion, 1);
    assert.equal(about.agentCapabilities.loadSession, true);
    // Waits until the updates from this place on have a text of the agent.
    const untilSaid = (start) =>
      new Promise((resolve) => {
        updated = () => said(updates.slice(start)) && resolve();
        updated();
      });
    return run(editor, updates, untilSaid);
  });
  child.stdin.end();
  await ended;
  return result;
}

const text = (text) => [{ type: "text", text }];
const said = (updates, kind = "agent_message_chunk") =>
  updates
    .filter(({ update }) => update.sessionUpdate === kind)
    .map(({ update }) => update.content.text ?? "")
    .join("");

const sessionId = await withConnection(async (editor, updates, untilSaid) => {
  const { sessionId } = await editor.request(agent.session.new, { cwd, mcpServers: [] });
  let answer = await editor.request(agent.session.prompt, { sessionId, prompt: text("first words") });
  assert.equal(answer.stopReason, "end_turn");
  assert.match(said(updates), /first words/);
  let start = updates.length;
  answer = await editor.request(agent.session.prompt, {
    sessionId,
    prompt: text(tool),
  });
  assert.equal(answer.stopReason, "end_turn");
  assert.match(said(updates.slice(start)), /read/);
  assert.ok(updates.slice(start).some(({ update }) => update.sessionUpdate === "tool_call"));
  start = updates.length;
  const running = editor.request(agent.session.prompt, { sessionId, prompt: text(hang) });
  await untilSaid(start);
  await editor.notify(agent.session.cancel, { sessionId });
  assert.equal((await running).stopReason, "cancelled");
  await editor.request(agent.session.close, { sessionId });
  assert.ok(updates.every((update) => update.sessionId === sessionId));
  return sessionId;
});

await withConnection(async (editor, updates) => {
  await editor.request(agent.session.load, { cwd, mcpServers: [], sessionId });
  assert.match(said(updates, "user_message_chunk"), /first words/);
  assert.match(said(updates), /first words/);
  await editor.request(agent.session.resume, { cwd, mcpServers: [], sessionId });
  const fork = await editor.request(agent.session.fork, { cwd, mcpServers: [], sessionId });
  assert.notEqual(fork.sessionId, sessionId);
  const start = updates.length;
  await editor.request(agent.session.prompt, { sessionId: fork.sessionId, prompt: text(recall) });
  assert.match(said(updates.slice(start)), /first words/);
  const listed = async () => (await editor.request(agent.session.list, { cwd })).sessions.map((each) => each.sessionId);
  assert.ok((await listed()).includes(fork.sessionId));
  await editor.request(agent.session.delete, { sessionId: fork.sessionId });
  assert.ok(!(await listed()).includes(fork.sessionId));
  assert.ok((await listed()).includes(sessionId));
  await assert.rejects(
    editor.request(agent.session.load, { cwd, mcpServers: [], sessionId: "no such session" }),
    ({ code }) => code === -32002,
  );
});
console.log("done", sessionId);
