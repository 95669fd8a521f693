"""A client of sessiond for Python 3.9 or newer, which needs only the standard library.

Copy this file and session_bridge_contract.py into your project.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections import deque
from typing import Any, Callable, Optional

from session_bridge_contract import EventEnvelope, Methods

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
LINE_LIMIT_BYTES = 64 * 1024 * 1024
# A subscription that is read more slowly than events arrive stops here, and continues after these were read.
BUFFERED_EVENTS = 16384


class BridgeError(Exception):
    """An error that the daemon returned."""

    def __init__(self, code: int, message: str, data: Optional[dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data or {}
        self.kind: str = self.data.get("kind", "")
        self.retryable: bool = self.data.get("retryable", False)


class CutShortError(Exception):
    """A queued prompt was not sent after a lost connection, because its conversation is cut short.

    Call `conversation/continue`, then repeat the prompt with this `requestId`. Without `continue`, it takes the interrupted
    turn's place.
    """

    def __init__(self, requestId: str) -> None:
        super().__init__(
            "the prompt was not sent, because its conversation was cut short: continue it, then send the prompt "
            "with this request id"
        )
        self.requestId = requestId


def socket_paths(socket: Optional[str] = None, home: Optional[str] = None) -> list[str]:
    """The sockets on which the daemon may listen, the most likely first. `sessionctl` finds them in the same way."""

    def given(name: str, value: Optional[str]) -> Optional[str]:
        if value and not os.path.isabs(value):
            raise ValueError(f"{name} is a relative path: {value}")
        return value or None

    def xdg(name: str) -> Optional[str]:
        value = os.environ.get(name, "")
        # A relative folder of XDG counts as not set.
        return value if os.path.isabs(value) and not is_mac else None

    is_mac = sys.platform == "darwin"
    named = given("socket", socket)
    if not named and not home:
        named = given("SESSIOND_SOCKET", os.environ.get("SESSIOND_SOCKET"))
    if named:
        return [named]
    below = given("home", home) or given("SESSIOND_HOME", os.environ.get("SESSIOND_HOME"))
    shared = xdg("XDG_DATA_HOME") or os.path.expanduser("~/Library/Application Support" if is_mac else "~/.local/share")
    data = os.path.join(below, "data") if below else os.path.join(shared, "sessiond")
    runtime = xdg("XDG_RUNTIME_DIR")
    run = os.path.join(runtime, "sessiond") if runtime and not below else os.path.join(below or data, "run")
    paths = [os.path.join(run, "sessiond.sock")]
    try:
        with open(os.path.join(data, "sessiond.lock"), encoding="utf-8") as lock:
            locked = json.load(lock)["socket"]
            if os.fstat(lock.fileno()).st_uid == os.getuid() and locked not in paths:
                paths.insert(0, locked)
    except (OSError, ValueError, KeyError):
        pass  # No daemon has run here yet.
    return paths


async def dial(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        owner = os.stat(path).st_uid
        if owner == os.getuid():
            return await asyncio.open_unix_connection(path, limit=LINE_LIMIT_BYTES)
    except OSError as error:
        raise ConnectionError(f"no daemon answers at {path}: {error}") from error
    raise PermissionError(f"refusing the socket {path}: it belongs to user {owner}, and you are user {os.getuid()}")


class _Call:
    def __init__(
        self,
        method: str,
        params: Any,
        resolve: Callable[[Any], None],
        reject: Callable[[Exception], None],
        on_lost: Optional[Callable[[], None]] = None,
    ) -> None:
        self.method, self.params = method, params
        self.resolve, self.reject, self.on_lost = resolve, reject, on_lost

    def may_queue(self) -> bool:
        """Whether it sends a prompt that may wait for other turns."""
        return self.method == "conversation/prompt" and self.params.get("onBusy") == "queue"


class Client(Methods):
    """A connection that is made again whenever it is lost. Use `await Client.connect()`.

    Each subscription then continues after its last event, and each unanswered call is sent again: calls that change
    something have a `requestId`, so the daemon carries them out once. To limit the time of a call, use `asyncio.wait_for`.
    """

    def __init__(
        self,
        socket: Optional[str] = None,
        home: Optional[str] = None,
        on_connection: Optional[Callable[[bool], None]] = None,
    ) -> None:
        super().__init__(self.call)
        self._socket, self._home = socket, home
        self._on_connection = on_connection or (lambda is_up: None)
        self._writer: Optional[asyncio.StreamWriter] = None
        self._pause = FIRST_PAUSE_SECONDS
        self._last_id = 0
        self._calls: dict[int, _Call] = {}
        # Conversations whose calls wait until it is known whether queued prompts are sent again.
        self._held: set[Any] = set()
        self._subscriptions: dict[Subscription, None] = {}
        self._by_id: dict[Any, Subscription] = {}
        self._ended: Optional[Exception] = None
        self._task: Optional[asyncio.Task[None]] = None

    @classmethod
    async def connect(
        cls,
        socket: Optional[str] = None,
        home: Optional[str] = None,
        on_connection: Optional[Callable[[bool], None]] = None,
    ) -> Client:
        """Connects to the daemon.

        `on_connection` is called with `False` when the connection is lost, and with `True` when there is one again.
        Raises `ConnectionError` if no daemon answers, and `PermissionError` if the socket belongs to another user.
        """
        client = cls(socket, home, on_connection)
        reader = await client._connect()
        client._task = asyncio.get_running_loop().create_task(client._run(reader))
        return client

    async def call(self, method: str, params: dict[str, Any], once: bool = False) -> Any:
        """Calls a method by its name on the wire; `once` adds a `requestId` if there is none."""
        params = {name: value for name, value in params.items() if value is not None}
        if once:
            params.setdefault("requestId", str(uuid.uuid4()))
        answer = asyncio.get_running_loop().create_future()

        def resolve(result: Any) -> None:
            if not answer.done():
                answer.set_result(result)

        def reject(error: Exception) -> None:
            if not answer.done():
                answer.set_exception(error)

        # The daemon that was asked to stop has ended. The next one must not be asked.
        on_lost = (lambda: resolve({})) if method == "daemon/shutdown" else None
        call_id = self._send(_Call(method, params, resolve, reject, on_lost))
        try:
            return await answer
        finally:
            self._calls.pop(call_id, None)

    def subscribe(self, conversationId: Optional[str] = None, after: Optional[str] = None) -> Subscription:
        """The events of one conversation or of all conversations: from now on, or after a cursor."""
        subscription = Subscription(self, conversationId, after)
        self._subscriptions[subscription] = None
        if self._ended:
            subscription._end(None)
        self._begin(subscription)
        return subscription

    async def close(self) -> None:
        """Ends the connection, all subscriptions and, with a `ConnectionError`, all calls."""
        self._end(ConnectionError("the client was closed"))
        if self._task:
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def _connect(self) -> asyncio.StreamReader:
        problems = []
        for path in socket_paths(self._socket, self._home):
            try:
                reader, self._writer = await dial(path)
                break
            except OSError as error:
                problems.append(error)
        else:
            foreign = [error for error in problems if isinstance(error, PermissionError)]
            raise (foreign or problems)[0]
        # Subscriptions come first, so that the events of a turn precede its answer.
        unanswered = list(self._calls.items())
        for subscription in list(self._subscriptions):
            self._begin(subscription)
        self._held = {call.params.get("conversationId") for _, call in unanswered if call.may_queue()}
        for call_id, call in unanswered:
            if call.params.get("conversationId") not in self._held:
                self._write(call_id, call)
        for conversation_id in self._held:
            self._repeat(conversation_id)
        return reader

    def _repeat(self, conversation_id: Any) -> None:
        """Sends the unanswered calls of a conversation again, and then those that were made in the meantime.

        If it is cut short, queued prompts are rejected instead: the first would begin at once, in place of the turn that was
        interrupted before it.
        """

        def repeat(is_cut_short: bool) -> None:
            self._held.discard(conversation_id)
            for call_id, call in list(self._calls.items()):
                # A call with `on_lost` was not held.
                if call.on_lost or call.params.get("conversationId") != conversation_id:
                    continue
                if is_cut_short and call.may_queue():
                    del self._calls[call_id]
                    call.reject(CutShortError(call.params["requestId"]))
                else:
                    self._write(call_id, call)

        def resolve(answer: Any) -> None:
            repeat(answer["conversation"].get("cutShort", False))

        def reject(_: Exception) -> None:
            # The prompt itself gets the error.
            if not self._ended:
                repeat(False)

        # The next connection looks again.
        self._send(_Call("conversation/get", {"conversationId": conversation_id}, resolve, reject, lambda: None))

    async def _run(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                async for line in reader:
                    self._hear(json.loads(line))
            except (OSError, ValueError):
                pass  # The connection was lost, perhaps within a line.
            self._lost()
            while not self._writer:
                # Also before the first attempt: a daemon with too many clients hangs up at once.
                await asyncio.sleep(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
                try:
                    reader = await self._connect()
                except PermissionError as error:
                    return self._end(error)
                except ConnectionError:
                    pass
            self._on_connection(True)

    def _lost(self) -> None:
        if self._writer:
            self._writer.close()
        self._writer = None
        self._by_id.clear()
        self._held.clear()
        for call_id, call in list(self._calls.items()):
            if call.on_lost:
                del self._calls[call_id]
                call.on_lost()
        self._on_connection(False)

    def _hear(self, message: dict[str, Any]) -> None:
        self._pause = FIRST_PAUSE_SECONDS
        if "params" in message:
            return self._take(message["params"]["subscription"], message["params"]["result"])
        error = message.get("error")
        # A daemon that is stopping is about to hang up. The call is for the next one.
        if error and error.get("data", {}).get("kind") == "shuttingDown":
            return
        call = self._calls.pop(message["id"], None)
        if call and error:
            call.reject(BridgeError(error["code"], error["message"], error.get("data")))
        elif call:
            call.resolve(message["result"])

    def _begin(self, subscription: Subscription) -> None:
        if not self._writer or subscription._is_full or subscription._is_over:
            return

        def resolve(subscription_id: Any) -> None:
            subscription._id = subscription_id
            self._by_id[subscription_id] = subscription
            if subscription._is_over:
                self._leave(subscription)

        def reject(error: Exception) -> None:
            self._subscriptions.pop(subscription, None)
            subscription._end(error)

        # The next connection begins with it anyway: its loss needs no care.
        params = {"conversationId": subscription.conversationId, "after": subscription.after}
        self._send(_Call("conversation/subscribe", params, resolve, reject, lambda: None))

    def _take(self, subscription_id: Any, envelope: EventEnvelope) -> None:
        subscription = self._by_id.get(subscription_id)
        if not subscription:
            return
        if envelope["event"]["type"] == "lagged":
            del self._by_id[subscription_id]
            subscription.after = envelope["event"]["cursor"]
            self._begin(subscription)
        elif len(subscription._queue) >= BUFFERED_EVENTS:
            subscription._is_full = True
            self._leave(subscription)
        else:
            subscription.after = envelope["cursor"]
            subscription._queue.append(envelope)
            if envelope["event"]["type"] == "deleted" and subscription.conversationId:
                self._stop(subscription)
            else:
                subscription._wake()

    def _stop(self, subscription: Subscription) -> None:
        """Ends a subscription after the events that it has."""
        self._subscriptions.pop(subscription, None)
        subscription._end(None)
        self._leave(subscription)

    def _leave(self, subscription: Subscription) -> None:
        if self._by_id.pop(subscription._id, None):
            call = _Call("conversation/unsubscribe", [subscription._id], lambda _: None, lambda _: None, lambda: None)
            self._send(call)

    def _send(self, call: _Call) -> int:
        self._last_id += 1
        if self._ended:
            call.reject(self._ended)
        elif not self._writer and call.on_lost:
            call.on_lost()
        else:
            self._calls[self._last_id] = call
            if call.on_lost or call.params.get("conversationId") not in self._held:
                self._write(self._last_id, call)
        return self._last_id

    def _write(self, call_id: int, call: _Call) -> None:
        if self._writer:
            message = {"jsonrpc": "2.0", "id": call_id, "method": call.method, "params": call.params}
            self._writer.write(json.dumps(message).encode() + b"\n")

    def _end(self, error: Exception) -> None:
        if self._ended:
            return
        self._ended = error
        if self._task and isinstance(error, ConnectionError):
            self._task.cancel()
        if self._writer:
            self._writer.close()
        for call in list(self._calls.values()):
            call.reject(error)
        for subscription in list(self._subscriptions):
            subscription._end(error if isinstance(error, PermissionError) else None)


class Subscription:
    """The events of a subscription, as an asynchronous iterator. Call `close` to stop before its end.

    `after` is the cursor of the last event that arrived. If the daemon no longer has the events since then, the next
    event after a lost connection is a `snapshot` whose `gap` is true. The events of one conversation end after `deleted`.
    """

    def __init__(self, client: Client, conversationId: Optional[str], after: Optional[str]) -> None:
        self._client, self.conversationId, self.after = client, conversationId, after
        self._id: Any = None
        self._queue: deque[EventEnvelope] = deque()
        self._is_full = self._is_over = False
        self._error: Optional[Exception] = None
        self._arrived: Optional[asyncio.Future[None]] = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> EventEnvelope:
        while not self._queue:
            if self._error:
                raise self._error
            if self._is_over:
                raise StopAsyncIteration
            if self._is_full:
                self._is_full = False
                self._client._begin(self)
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        return self._queue.popleft()

    def close(self) -> None:
        """Ends the subscription."""
        self._queue.clear()
        self._client._stop(self)

    def _end(self, error: Optional[Exception]) -> None:
        self._is_over, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._arrived and not self._arrived.done():
            self._arrived.set_result(None)
