"""A turn with an agent on the terminal: python3 chat.py FOLDER PROMPT
Lists the newest conversations, creates one in FOLDER, streams the answer, and passes your answers to the agent's questions."""

import asyncio, sys, threading
from types import SimpleNamespace
from session_bridge import BridgeError, Client

now = SimpleNamespace(shown="", questions=[], has_gap=False, was_lost=False)

async def chat(folder, prompt):
    async with await Client.connect(on_connection=note) as client:
        for known in (await client.conversation.list(limit=5))["conversations"]:
            print(known["id"], known["title"])
        conversation = (await client.conversation.new(cwd=folder))["conversation"]["id"]
        following = asyncio.create_task(follow(client.subscribe(conversation)))
        threading.Thread(target=read, args=[client, conversation, asyncio.get_running_loop()], daemon=True).start()
        turn = await client.conversation.prompt(conversationId=conversation, prompt=prompt)
        if now.has_gap or now.was_lost:  # The rest of the answer, if not all of its events arrived.
            history = await client.conversation.history(conversationId=conversation, limit=1000)
            parts = [part for said in history["messages"] if said["role"] == "assistant" for part in said["content"]]
            show("".join(part["text"] for part in parts if part["type"] == "text"))
    await following
    print("\n" + turn["stopReason"])
    return turn.get("failure", {}).get("message")

def note(is_up):
    now.was_lost = True
    print("(connected again)" if is_up else "\n(waiting for the daemon)", file=sys.stderr)

async def follow(events):
    async for envelope in events:
        event, update = envelope["event"], envelope["event"].get("update", {})
        if event["type"] == "snapshot":
            now.has_gap, now.questions = event["gap"], []
            if now.has_gap:
                print("(events were missed)", file=sys.stderr)
            ask(event["conversation"]["interrupts"])
        elif event["type"] == "interruptRaised":
            ask([event["interrupt"]])
        elif event["type"] == "interruptResolved":
            now.questions = [question for question in now.questions if question["id"] != event["interruptId"]]
        elif update.get("sessionUpdate") == "agent_message_chunk" and not now.has_gap:
            show(now.shown + update["content"].get("text", ""))

def show(answer):
    print(answer[len(now.shown) :] if answer.startswith(now.shown) else "\n" + answer, end="", flush=True)
    now.shown = answer

def ask(questions):
    for question in [question for question in questions if question["kind"] == "permission"]:
        now.questions.append(question)
        options = [f"{number} {option['name']}" for number, option in enumerate(question["options"], 1)]
        print(f"\n{question['toolCall']['title']} ({', '.join(options)})", flush=True)

def read(client, conversation, loop):
    for line in open(0):
        for question in now.questions[:1]:
            numbered = {str(number): option["optionId"] for number, option in enumerate(question["options"], 1)}
            outcome = {"outcome": "selected", "optionId": numbered.get(line.strip())}
            if outcome["optionId"]:
                answer = client.conversation.respond(conversationId=conversation, interruptId=question["id"], outcome=outcome)
                asyncio.run_coroutine_threadsafe(answer, loop)

if len(sys.argv) != 3:
    sys.exit("usage: chat.py FOLDER PROMPT")
try:
    sys.exit(asyncio.run(chat(*sys.argv[1:])))
except (BridgeError, OSError) as error:
    sys.exit(f"{getattr(error, 'code', type(error).__name__)}: {error}")
