//! Small programs that use the client modules of `packaging/clients`: one that deletes what it follows.

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
