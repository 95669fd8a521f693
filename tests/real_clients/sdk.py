"""An editor made with the official Python SDK, in front of a command:
python sdk.py FOLDER TOOL HANG RECALL COMMAND...

TOOL is a prompt that asks, uses a tool and says "read"; HANG one that begins and does not end; RECALL one that says "first
words".

Prints "done" and the sessions that are left if each step of a session's life does what the protocol says.
"""

import asyncio
import sys

import acp
from acp.schema import AllowedOutcome, RequestPermissionResponse


class Editor(acp.Client):
    def __init__(self):
        self.updates = []
        self.updated = asyncio.Condition()

    async def session_update(self, session_id, update, **_):
        async with self.updated:
            self.updates.append((session_id, update))
            self.updated.notify_all()

    async def request_permission(self, options, session_id, tool_call, **_):
        chosen = next(option for option in options if option.kind == "allow_once")
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    def said(self, kind="agent_message_chunk", since=0):
        chunks = [update for _, update in self.updates[since:] if update.session_update == kind]
        return "".join(getattr(chunk.content, "text", "") for chunk in chunks)


def check(holds, what):
    if not holds:
        raise AssertionError(what)


async def main(folder, tool, hang, recall, command):
    editor = Editor()

    async def with_connection(run):
        async with acp.spawn_agent_process(
            editor, *command, use_unstable_protocol=True, transport_kwargs={"limit": 1 << 20}
        ) as (agent, _):
            about = await agent.initialize(protocol_version=1)
            check(about.protocol_version == 1, about)
            check(about.agent_capabilities.load_session is True, about)
            return await run(agent)

    async def first(agent):
        session = (await agent.new_session(cwd=folder, mcp_servers=[])).session_id
        answer = await agent.prompt(session_id=session, prompt=[acp.text_block("first words")])
        check(answer.stop_reason == "end_turn", answer)
        check("first words" in editor.said(), editor.updates)
        start = len(editor.updates)
        answer = await agent.prompt(session_id=session, prompt=[acp.text_block(tool)])
        check(answer.stop_reason == "end_turn" and "read" in editor.said(since=start), editor.updates[start:])
        check(any(update.session_update == "tool_call" for _, update in editor.updates[start:]), "no tool call")
        start = len(editor.updates)
        running = asyncio.ensure_future(agent.prompt(session_id=session, prompt=[acp.text_block(hang)]))
        async with editor.updated:
            await editor.updated.wait_for(lambda: editor.said(since=start))
        await agent.cancel(session_id=session)
        check((await running).stop_reason == "cancelled", "not cancelled")
        await agent.close_session(session_id=session)
        check(all(owner == session for owner, _ in editor.updates), "an update of another session")
        return session

    async def second(agent):
        start = len(editor.updates)
        await agent.load_session(cwd=folder, mcp_servers=[], session_id=session)
        check("first words" in editor.said("user_message_chunk", start), editor.updates[start:])
        check("first words" in editor.said(since=start), editor.updates[start:])
        await agent.resume_session(cwd=folder, mcp_servers=[], session_id=session)
        fork = (await agent.fork_session(cwd=folder, mcp_servers=[], session_id=session)).session_id
        check(fork != session, fork)
        start = len(editor.updates)
        answer = await agent.prompt(session_id=fork, prompt=[acp.text_block(recall)])
        check(answer.stop_reason == "end_turn" and "first words" in editor.said(since=start), editor.updates[start:])
        listed = {each.session_id for each in (await agent.list_sessions(cwd=folder)).sessions}
        check({session, fork} <= listed, listed)
        return fork

    session = await with_connection(first)
    fork = await with_connection(second)
    print("done", session, fork)


asyncio.run(main(*sys.argv[1:5], sys.argv[5:]))
