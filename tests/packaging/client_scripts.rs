//! Small programs that use the client modules of `packaging/clients`: one that deletes what it follows, one that waits in a
//! queue while the daemon is killed, and one that sends prompts before and after it is connected again.

use super::clients::Daemon;
use super::{has, said};

/// Deletes a conversation that it follows, in one subscription of its own and in one to all conversations.
const DELETING_NODE: &str = r#"
import { Client } from "./packaging/clients/session-bridge.mjs";
const client = await Client.connect();
const { id: conversationId } = (await client.conversation.new({ cwd: "/tmp", title: "plans" })).conversation;
const [own, all] = [client.subscribe({ conversationId }), client.subscribe()];
await own.next();
await client.conversation.delete({ conversationId });
for await (const { event } of own) console.log("own", event.type);
await client.conversation.new({ cwd: "/tmp" });
for await (const { event } of all) {
  console.log("all", event.type);
  if (event.type === "snapshot") break;
}
client.close();
"#;

/// The same as [`DELETING_NODE`], in Python.
const DELETING_PYTHON: &str = r#"
import asyncio
from session_bridge import Client

async def main():
    async with await Client.connect() as client:
        id = (await client.conversation.new(cwd="/tmp", title="plans"))["conversation"]["id"]
        own, every = client.subscribe(id), client.subscribe()
        await own.__anext__()
        await client.conversation.delete(conversationId=id)
        async for envelope in own:
            print("own", envelope["event"]["type"])
        await client.conversation.new(cwd="/tmp")
        async for envelope in every:
            print("all", envelope["event"]["type"])
            if envelope["event"]["type"] == "snapshot":
                break

asyncio.run(main())
"#;

#[test]
fn the_events_of_a_conversation_end_with_its_deletion() {
    for (interpreter, script) in [("node", DELETING_NODE), ("python3", DELETING_PYTHON)] {
        if has(interpreter) {
            let daemon = Daemon::start();
            let printed = said(interpreter, &daemon.run_script(interpreter, script).end());
            assert_eq!(
                printed, "own deleted\nall deleted\nall snapshot\n",
                "{interpreter}"
            );
        }
    }
}

/// Queues a prompt after the turn of another client. Once the daemon was killed and started again, finishes the turn, and
/// repeats the prompt.
const QUEUEING_NODE: &str = r#"
import { Client, CutShortError } from "./packaging/clients/session-bridge.mjs";
const [client, other] = [await Client.connect(), await Client.connect()];
const { id: conversationId } = (await client.conversation.new({ cwd: "/tmp" })).conversation;
const events = client.subscribe({ conversationId });
const until = async (holds) => {
  while (!holds((await events.next()).value.event));
};
const running = other.conversation.prompt({ conversationId, prompt: "[[say begun]][[hang]]" });
await until((event) => event.update?.sessionUpdate === "agent_message_chunk");
const params = { conversationId, prompt: "queued", onBusy: "queue" };
const queued = client.conversation.prompt(params).catch((error) => error);
await until((event) => event.type === "updated" && event.conversation.queue);
console.log("queued");
console.log((await running).failure.kind);
const { requestId } = await queued;
console.log((await queued) instanceof CutShortError, requestId.length);
const { cutShort, queue } = (await client.conversation.get({ conversationId })).conversation;
console.log(cutShort, queue.length);
await client.conversation.continue({ conversationId, at: "now" });
console.log((await client.conversation.prompt({ ...params, requestId })).stopReason);
for (const each of [client, other]) each.close();
"#;

/// The same as [`QUEUEING_NODE`], in Python.
const QUEUEING_PYTHON: &str = r#"
import asyncio
from session_bridge import Client, CutShortError

async def main():
    async with await Client.connect() as client, await Client.connect() as other:
        id = (await client.conversation.new(cwd="/tmp"))["conversation"]["id"]
        events = client.subscribe(id)

        async def until(holds):
            while not holds((await events.__anext__())["event"]):
                pass

        running = asyncio.create_task(other.conversation.prompt(conversationId=id, prompt="[[say begun]][[hang]]"))
        await until(lambda event: event.get("update", {}).get("sessionUpdate") == "agent_message_chunk")
        params = {"conversationId": id, "prompt": "queued", "onBusy": "queue"}
        queued = asyncio.create_task(client.conversation.prompt(**params))
        await until(lambda event: event["type"] == "updated" and event["conversation"].get("queue"))
        print("queued", flush=True)
        print((await running)["failure"]["kind"])
        await asyncio.wait([queued])
        error = queued.exception()
        print(str(isinstance(error, CutShortError)).lower(), len(error.requestId))
        conversation = (await client.conversation.get(conversationId=id))["conversation"]
        print(str(conversation["cutShort"]).lower(), len(conversation["queue"]))
        await client.conversation.continue_(conversationId=id, at="now")
        print((await client.conversation.prompt(**params, requestId=error.requestId))["stopReason"])

asyncio.run(main())
"#;

/// A queued prompt that is sent again would begin at once, and the interrupted turn before it could not be continued.
#[test]
fn no_client_repeats_a_queued_prompt_after_an_interrupted_turn() {
    for (interpreter, script) in [("node", QUEUEING_NODE), ("python3", QUEUEING_PYTHON)] {
        if !has(interpreter) {
            continue;
        }
        let daemon = Daemon::start();
        let mut running = daemon.run_script(interpreter, script);
        assert!(running.read_until("queued\n"));
        daemon.kill();
        // The command starts the next daemon.
        daemon.conversations();
        let printed = said(interpreter, &running.end());
        assert_eq!(
            printed, "queued\ndaemonRestarted\ntrue 36\ntrue 1\nend_turn\n",
            "{interpreter}"
        );
        // The turn was continued before the queued prompt ran.
        let prompts = daemon.texts("user");
        assert_eq!(
            (prompts.len(), &*prompts[2]),
            (3, "queued"),
            "{interpreter} {prompts:?}"
        );
    }
}

/// Queues a prompt while the connection is lost, and another one as soon as there is a connection again.
const RECONNECTING_NODE: &str = r#"
import { Client } from "./packaging/clients/session-bridge.mjs";
const sent = new Map();
const onConnection = (isUp) => {
  const prompt = isUp ? "second" : "first";
  if (!sent.has(prompt)) sent.set(prompt, client.conversation.prompt({ conversationId, prompt, onBusy: "queue" }));
  if (isUp) everySent();
};
const client = await Client.connect({ onConnection });
const { id: conversationId } = (await client.conversation.new({ cwd: "/tmp" })).conversation;
let everySent;
const areSent = new Promise((resolve) => (everySent = resolve));
console.log("new");
await areSent;
for (const turn of sent.values()) console.log((await turn).stopReason);
client.close();
"#;

/// The same as [`RECONNECTING_NODE`], in Python.
const RECONNECTING_PYTHON: &str = r#"
import asyncio
from session_bridge import Client

async def main():
    sent, are_sent = {}, asyncio.Event()

    def on_connection(is_up):
        prompt = "second" if is_up else "first"
        if prompt not in sent:
            call = client.conversation.prompt(conversationId=id, prompt=prompt, onBusy="queue")
            sent[prompt] = asyncio.create_task(call)
        if is_up:
            are_sent.set()

    async with await Client.connect(on_connection=on_connection) as client:
        id = (await client.conversation.new(cwd="/tmp"))["conversation"]["id"]
        print("new", flush=True)
        await are_sent.wait()
        for turn in sent.values():
            print((await turn)["stopReason"])

asyncio.run(main())
"#;

/// After a lost connection, a client looks at the conversation before it sends queued prompts again. A prompt that is new then
/// must not arrive first.
#[test]
fn no_client_sends_a_prompt_before_an_earlier_one_that_it_repeats() {
    for (interpreter, script) in [("node", RECONNECTING_NODE), ("python3", RECONNECTING_PYTHON)] {
        if !has(interpreter) {
            continue;
        }
        let daemon = Daemon::start();
        let mut running = daemon.run_script(interpreter, script);
        assert!(running.read_until("new\n"));
        daemon.kill();
        // The command starts the next daemon.
        daemon.conversations();
        let printed = said(interpreter, &running.end());
        assert_eq!(printed, "new\nend_turn\nend_turn\n", "{interpreter}");
        assert_eq!(daemon.texts("user"), ["first", "second"], "{interpreter}");
    }
}
