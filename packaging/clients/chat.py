"""A turn with an agent on the terminal: python3 chat.py FOLDER PROMPT
Lists the newest conversations, creates one in FOLDER, streams the answer, and passes your answers to the agent's questions."""
import asyncio, sys, threading, types
from session_bridge import BridgeError, Client

now = types.SimpleNamespace(shown="", has_gap=False, answers={})

async def chat(folder, prompt):
    states = {True: "(connected again)", False: "\n(waiting for the daemon)"}
    async with await Client.connect(on_connection=lambda is_up: print(states[is_up], file=sys.stderr)) as client:
        for known in (await client.conversation.list(limit=5))["conversations"]:
            print(known["id"], known["title"])
        conversation = (await client.conversation.new(cwd=folder))["conversation"]["id"]
        following = asyncio.create_task(follow(client.subscribe(conversation)))
        threading.Thread(target=read, args=[client, conversation, asyncio.get_running_loop()], daemon=True).start()
        turn = await client.conversation.prompt(conversationId=conversation, prompt=prompt)
        if now.has_gap or "failure" in turn:  # Not all events arrived, or the daemon was killed during the turn.
            history = await client.conversation.history(conversationId=conversation, limit=1000)
            parts = [part for said in history["messages"] if said["role"] == "assistant" for part in said["content"]]
            show("".join(part["text"] for part in parts if part["type"] == "text"))
    await following
    print("\n" + turn["stopReason"])
    return turn.get("failure", {}).get("message")

async def follow(events):
    async for envelope in events:
        event, update = envelope["event"], envelope["event"].get("update", {})
        if event["type"] == "snapshot":
            now.has_gap = event["gap"]
            if now.has_gap:
                print("(events were missed)", file=sys.stderr)
            ask(event["conversation"]["interrupts"])
        elif event["type"] == "interruptRaised":
            ask([event["interrupt"]])
        elif update.get("sessionUpdate") == "agent_message_chunk" and not now.has_gap:
            show(now.shown + update["content"].get("text", ""))

def show(answer):
    print(answer[len(now.shown) :] if answer.startswith(now.shown) else "\n" + answer, end="", flush=True)
    now.shown = answer

def ask(questions):
    for question in [question for question in questions if question["kind"] == "permission"]:
        print("\n" + question["toolCall"]["title"], end=" ")
        for option in question["options"]:  # Their numbers go on, so that each belongs to one question.
            number, outcome = str(len(now.answers) + 1), {"outcome": "selected", "optionId": option["optionId"]}
            now.answers[number] = {"interruptId": question["id"], "outcome": outcome}
            print(f"({number} {option['name']})", flush=True)

def read(client, conversation, loop):
    for line in open(0):
        if line.strip() in now.answers:
            answer = client.conversation.respond(conversationId=conversation, **now.answers[line.strip()])
            asyncio.run_coroutine_threadsafe(answer, loop)

folder, prompt = sys.argv[1:] if len(sys.argv) == 3 else sys.exit("usage: chat.py FOLDER PROMPT")
try:
    sys.exit(asyncio.run(chat(folder, prompt)))
except (BridgeError, OSError) as error:
    sys.exit(f"{getattr(error, 'code', type(error).__name__)}: {error}")
