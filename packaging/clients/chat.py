"""A turn with an agent: python3 chat.py SOCKET FOLDER PROMPT

Lists the newest conversations, makes one in FOLDER, streams the answer, allows once what the agent asks for, and goes on
where it was when the connection is lost.
"""

import itertools, json, socket, sys, uuid

path, folder, prompt = sys.argv[1:]
ids, cursor = itertools.count(1), None


def connect():
    global bridge, lines
    bridge = socket.socket(socket.AF_UNIX)
    bridge.connect(path)
    lines = bridge.makefile(encoding="utf-8")


def send(method, **params):
    request = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": params}
    bridge.sendall(json.dumps(request).encode() + b"\n")
    return request["id"]


def call(method, **params):
    sent = send(method, **params)
    for message in map(json.loads, lines):
        if "params" in message:
            tell(message["params"]["result"])
        elif message["id"] == sent:
            if "error" in message:
                sys.exit(f"{message['error']['code']}: {message['error']['message']}")
            return message["result"]
    raise ConnectionError("the connection was lost")


def tell(envelope):
    global cursor
    cursor, event = envelope["cursor"], envelope["event"]
    if event["type"] == "update" and event["update"]["sessionUpdate"] == "agent_message_chunk":
        print(event["update"]["content"].get("text", ""), end="", flush=True)
    elif event["type"] == "interruptRaised" and event["interrupt"]["kind"] == "permission":
        options = event["interrupt"]["request"]["options"]
        option = next(option["optionId"] for option in options if option["kind"] == "allow_once")
        outcome = {"outcome": "selected", "optionId": option}
        send("conversation/respond", conversationId=envelope["conversationId"], interruptId=event["interrupt"]["id"], outcome=outcome)


connect()
for conversation in call("conversation/list", limit=5)["conversations"]:
    print(conversation["id"], conversation["title"])
conversation = call("conversation/new", cwd=folder)["conversation"]["id"]
request = str(uuid.uuid4())  # The same call again, and not a second turn.
turn = None
while turn is None:
    try:
        call("conversation/subscribe", conversationId=conversation, **({"after": cursor} if cursor else {}))
        turn = call("conversation/prompt", conversationId=conversation, prompt=prompt, requestId=request)
    except ConnectionError:
        connect()
print(f"\n{turn['stopReason']}")
