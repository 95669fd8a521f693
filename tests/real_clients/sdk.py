"""The official Python SDK between an editor and an agent: python sdk.py COMMAND...

Each line of JSON-RPC on stdin becomes a call of the SDK. The agent's answers, updates and requests, as the SDK returns
them, go to stdout in the same form. Exits with the code of COMMAND.
"""

import asyncio
import json
import sys

import acp
from acp import schema

LINE_BYTES = 1 << 20

CALLS = {
    "initialize": (schema.InitializeRequest, "initialize"),
    "session/new": (schema.NewSessionRequest, "new_session"),
    "session/load": (schema.LoadSessionRequest, "load_session"),
    "session/resume": (schema.ResumeSessionRequest, "resume_session"),
    "session/fork": (schema.ForkSessionRequest, "fork_session"),
    "session/list": (schema.ListSessionsRequest, "list_sessions"),
    "session/prompt": (schema.PromptRequest, "prompt"),
    "session/cancel": (schema.CancelNotification, "cancel"),
    "session/close": (schema.CloseSessionRequest, "close_session"),
}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def encoded(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Editor(acp.Client):
    def __init__(self):
        self.asked = {}

    async def session_update(self, session_id, update, **_):
        notification = schema.SessionNotification(session_id=session_id, update=update)
        send(method="session/update", params=encoded(notification))

    async def ask(self, method, request):
        answer = asyncio.get_running_loop().create_future()
        request_id = f"asked {len(self.asked)}"
        self.asked[request_id] = answer
        send(id=request_id, method=method, params=encoded(request))
        return await answer

    async def request_permission(self, **members):
        answer = await self.ask("session/request_permission", schema.RequestPermissionRequest(**members))
        return schema.RequestPermissionResponse.model_validate(answer)

    async def read_text_file(self, **members):
        answer = await self.ask("fs/read_text_file", schema.ReadTextFileRequest(**members))
        return schema.ReadTextFileResponse.model_validate(answer)

    async def create_terminal(self, **members):
        answer = await self.ask("terminal/create", schema.CreateTerminalRequest(**members))
        return schema.CreateTerminalResponse.model_validate(answer)

    async def wait_for_terminal_exit(self, **members):
        answer = await self.ask("terminal/wait_for_exit", schema.WaitForTerminalExitRequest(**members))
        return schema.WaitForTerminalExitResponse.model_validate(answer)


async def call(agent, message):
    model, name = CALLS[message["method"]]
    members = dict(model.model_validate(message["params"]))
    members.pop("field_meta")
    try:
        result = await getattr(agent, name)(**members)
    except acp.RequestError as error:
        send(id=message["id"], error=error.to_error_obj())
    except ConnectionError:
        pass
    else:
        if "id" in message:
            send(id=message["id"], result=encoded(result))


async def serve(agent, editor, calls):
    lines = asyncio.StreamReader(limit=LINE_BYTES)
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await lines.readline():
        message = json.loads(line)
        if "method" in message:
            calls.append(asyncio.ensure_future(call(agent, message)))
        else:
            editor.asked[message["id"]].set_result(message["result"])


async def main(command):
    editor, calls = Editor(), []
    transport = {"limit": LINE_BYTES, "stderr": None}
    connection = acp.spawn_agent_process(editor, *command, use_unstable_protocol=True, transport_kwargs=transport)
    async with connection as (agent, process):
        waited = [serve(agent, editor, calls), process.wait()]
        await asyncio.wait([asyncio.ensure_future(one) for one in waited], return_when=asyncio.FIRST_COMPLETED)
    return process.returncode


sys.exit(asyncio.run(main(sys.argv[1:])))
