"""A turn with an agent: python3 chat.py SOCKET FOLDER PROMPT

Lists the newest conversations, makes one in FOLDER, streams the answer, allows once what the agent asks for, and goes on
where it was when the connection is lost.
"""

import itertools, json, socket, sys, time, uuid

if len(sys.argv) != 4:
    sys.exit("usage: chat.py SOCKET FOLDER PROMPT")
path, folder, prompt = sys.argv[1:]
ids, cursor, conversation, answers = itertools.count(1), None, None, {}


def connect():
    global bridge, lines
    for _ in range(30):  # The daemon may just be starting again.
        try:
            bridge = socket.socket(socket.AF_UNIX)
            bridge.connect(path)
            lines = bridge.makefile(encoding="utf-8")
            return
        except OSError as error:
            reason = error
            time.sleep(1)
    sys.exit(f"no daemon answers at {path}: {reason}")


def send(method, **params):
    request = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}
    bridge.sendall(json.dumps(request).encode() + b"\n")
    return request["id"]


def call(method, **params):
    sent = send(method, **params)
    for line in lines:
        if not line.endswith("\n"):
            break  # It was cut off.
        message = json.loads(line)
        if "params" in message:
            tell(message["params"]["result"])
        elif message["id"] == sent:
            if "error" in message:
                sys.exit(f"{message['error']['code']}: {message['error']['message']}")
            return message["result"]
    raise ConnectionError("the connection was lost")


def subscribe():
    call("conversation/subscribe", conversationId=conversation, **({"after": cursor} if cursor else {}))
    for answer in answers.values():  # What may have been lost on the way.
        send("conversation/respond", **answer)


def steady(method, **params):
    """A call that is made again when the connection was lost; under its requestId it happens once."""
    while True:
        try:
            return call(method, **params)
        except ConnectionError:
            connect()
        if conversation:
            try:
                subscribe()
            except ConnectionError:
                pass  # The call notices it too.


def tell(envelope):
    global cursor
    cursor, event = envelope["cursor"], envelope["event"]
    if event["type"] == "update" and event["update"]["sessionUpdate"] == "agent_message_chunk":
        print(event["update"]["content"].get("text", ""), end="", flush=True)
    elif event["type"] == "interruptRaised":
        answer(event["interrupt"])
    elif event["type"] == "snapshot":  # Also where some events are missed.
        for interrupt in event["conversation"].get("interrupts", []):
            answer(interrupt)
    elif event["type"] == "interruptResolved":
        answers.pop(event["interruptId"], None)
    elif event["type"] == "lagged":
        raise ConnectionError("events came too fast")


def answer(interrupt):
    if interrupt["kind"] != "permission" or interrupt["id"] in answers:
        return
    once = [option["optionId"] for option in interrupt["request"]["options"] if option["kind"] == "allow_once"]
    outcome = {"outcome": "selected", "optionId": once[0]} if once else {"outcome": "cancelled"}
    answers[interrupt["id"]] = {"conversationId": conversation, "interruptId": interrupt["id"], "outcome": outcome}
    send("conversation/respond", **answers[interrupt["id"]])


connect()
for known in steady("conversation/list", limit=5)["conversations"]:
    print(known["id"], known["title"])
conversation = steady("conversation/new", cwd=folder, requestId=str(uuid.uuid4()))["conversation"]["id"]
steady("conversation/subscribe", conversationId=conversation)
turn = steady("conversation/prompt", conversationId=conversation, prompt=prompt, requestId=str(uuid.uuid4()))
print(f"\n{turn['stopReason']}")
if "failure" in turn:
    sys.exit(f"{turn['failure']['kind']}: {turn['failure']['message']}")
