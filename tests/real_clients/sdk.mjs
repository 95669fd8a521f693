// The official TypeScript SDK between an editor and an agent: node sdk.mjs LIBRARY COMMAND...
// Each line of JSON-RPC on stdin becomes a call of the SDK. The agent's answers, updates and requests, as the SDK
// returns them, go to stdout in the same form. Exits with the code of COMMAND.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [library, command, ...args] = process.argv.slice(2);
const acp = await import(pathToFileURL(library).href);
const { session, fs, terminal } = acp.methods.client;

const send = (message) => console.log(JSON.stringify({ jsonrpc: "2.0", ...message }));
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
child.once("close", (code) => process.exit(code));

const asked = new Map();
let client = acp.client({ name: "sdk-client" }).onNotification(session.update, ({ params }) => {
  send({ method: session.update, params });
});
for (const method of [session.requestPermission, fs.readTextFile, terminal.create, terminal.waitForExit]) {
  client = client.onRequest(method, ({ params }) => {
    const id = `asked ${asked.size}`;
    send({ id, method, params });
    return new Promise((resolve) => asked.set(id, resolve));
  });
}

const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
const served = client.connectWith(stream, async (agent) => {
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, method, params, result } = JSON.parse(line);
    if (!method) {
      asked.get(id)(result);
    } else if (id === undefined) {
      await agent.notify(method, params);
    } else {
      agent.request(method, params).then(
        (result) => send({ id, result }),
        // An error without a code means that the connection was lost.
        ({ code, message, data }) => code && send({ id, error: { code, message, data } }),
      );
    }
  }
});
// If the agent ends first, this is an error; the agent's exit code says more.
await served.catch(() => {});
child.stdin.end();
