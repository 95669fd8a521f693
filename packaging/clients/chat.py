"""A turn with an agent: python3 chat.py SOCKET FOLDER PROMPT

Lists the newest conversations, makes one in FOLDER, streams the answer, and allows once what is asked.
A lost connection begins it all again: under its requestId a call happens once, events go on at the cursor.
"""

import itertools, json, socket, sys, time, uuid

if len(sys.argv) != 4:
    sys.exit("usage: chat.py SOCKET FOLDER PROMPT")
path, folder, prompt = sys.argv[1:]
new_id, prompt_id, ids = str(uuid.uuid4()), str(uuid.uuid4()), itertools.count(1)
# Another client's answer was first; the daemon is about to hang up.
passing = "interruptResolved", "shuttingDown"
listed, cursor, tries = None, None, 0
sys.stdout.reconfigure(errors="replace")  # Not every terminal can show every character.


def send(method, **params):
    request = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}
    bridge.sendall(json.dumps(request).encode() + b"\n")
    return request["id"]


def call(method, **params):
    sent = send(method, **params)
    for message in map(json.loads, lines):
        if "params" in message:
            tell(message["params"]["result"])
        elif "error" in message and message["error"]["data"]["kind"] not in passing:
            sys.exit(f"{message['error']['code']}: {message['error']['message']}")
        elif "result" in message and message["id"] == sent:
            return message["result"]
    raise ConnectionError("it hung up")


def tell(envelope):
    global cursor
    cursor, event = envelope["cursor"], envelope["event"]
    if event["type"] == "update" and event["update"]["sessionUpdate"] == "agent_message_chunk":
        print(event["update"]["content"].get("text", ""), end="", flush=True)
    elif event["type"] == "interruptRaised":
        answer(event["interrupt"])
    elif event["type"] == "lagged":
        raise ConnectionError("events came too fast")


def answer(question):
    if question["kind"] == "permission":
        once = [option["optionId"] for option in question["options"] if option["kind"] == "allow_once"]
        outcome = {"outcome": "selected", "optionId": once[0]} if once else {"outcome": "cancelled"}
        send("conversation/respond", conversationId=conversation, interruptId=question["id"], outcome=outcome)


while True:
    try:
        bridge = socket.socket(socket.AF_UNIX)
        bridge.connect(path)
        lines = bridge.makefile("rb")
        if listed is None:
            listed = call("conversation/list", limit=5)["conversations"]
            for known in listed:
                print(known["id"], known["title"])
        conversation = call("conversation/new", cwd=folder, requestId=new_id)["conversation"]["id"]
        call("conversation/subscribe", conversationId=conversation, after=cursor)
        for question in call("conversation/get", conversationId=conversation)["conversation"]["interrupts"]:
            answer(question)  # An answer may have been lost too.
        tries = 0
        turn = call("conversation/prompt", conversationId=conversation, prompt=prompt, requestId=prompt_id)
        print(f"\n{turn['stopReason']}")
        sys.exit(turn.get("failure", {}).get("message"))
    except (OSError, ValueError) as lost:  # There is no connection any more, or half a line came.
        if tries == 30:
            sys.exit(f"no daemon answers at {path}: {lost}")
        time.sleep(min(tries, 1))  # The daemon may just be starting again.
        tries += 1
