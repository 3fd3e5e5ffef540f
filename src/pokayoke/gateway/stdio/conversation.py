"""One client's conversation with one server, line by line.

In: lines of both, and what becomes of the server.
Out: lines for both.
Never: a request that is left waiting, a request that is answered twice, or an answer that nobody has asked for.

Every line passes as it came, except what the guard changes: `tools/list` results, `tools/call` requests, and their
results wherever the protocol delivers them.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.json.values import is_object
from pokayoke.gateway.interceptor import Interceptor, PendingCall, ServerGoneError, interim_kind
from pokayoke.gateway.messages.json_rpc import (
    CAPABILITIES_KEY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    BadLine,
    Id,
    Message,
    can_elicit,
    dump_message,
    era_of,
    error_line,
    guess_id,
    plain_id,
    read_id,
    read_line,
    result_line,
    splice_result,
)
from pokayoke.gateway.messages.questions import asking_result, split_answer
from pokayoke.gateway.messages.results import Era, error_result
from pokayoke.gateway.runs import Caller
from pokayoke.gateway.stdio.exchange import Exchange
from pokayoke.gateway.stdio.line_streams import LongLine
from pokayoke.gateway.stdio.own_listing import OwnListing
from pokayoke.gateway.tasks import TaskResults, task_id
from pokayoke.runtime.driver.sync import CallerGoneError

_MOST_OPEN: Final = 10_000
_MOST_LATE: Final = 1_000
_WORKERS: Final = 8
_ASKING_SECONDS: Final = 600.0
_GONE: Final = "its server {}"
_UNREADABLE: Final = "its server sent an answer that cannot be read"


class Server(Protocol):
    """The server, as the conversation needs it."""

    def send_line(self, line: bytes, exchange: Exchange | None = None) -> bool:
        """Send a line now, or once the server is there again; False if it will not be. Sets `sent_at`."""
        ...

    def restart(self, reason: str) -> None:
        """End the server's process; the next line starts another one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSettings:
    """Limits of a conversation.

    Attributes:
        deadline: seconds within which a request is answered. Progress, and a question to the client, begin it anew.
        longest_line: bytes of the longest line.
    """

    deadline: float = 300.0
    longest_line: int = 32 << 20


class Conversation:
    """The state of one conversation; thread-safe.

    Args:
        interceptor: the guard.
        settings: the limits.
        to_client: writes a line.
        note: tells the operator something.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        settings: ConversationSettings,
        to_client: Callable[[bytes], None],
        note: Callable[[str], None],
    ) -> None:
        self._guard, self._settings = interceptor, settings
        self._to_client, self._note = to_client, note
        self._server: Server
        self._lock = threading.RLock()
        self._open: dict[Id, Exchange] = {}
        self._late: OrderedDict[Id, PendingCall | None] = OrderedDict()
        self._server_asks: set[Id] = set()
        self._asks: dict[Id, Exchange] = {}
        self._own: dict[Id, Callable[[Message], None]] = {}
        self._tasks = TaskResults(interceptor)
        self._listing = OwnListing(interceptor, self._ask_own, self._take_call)
        self._mark, self._numbers = secrets.token_hex(4), itertools.count()
        self._workers: ThreadPoolExecutor | None = None
        self._can_ask = False
        self._era: Era = "legacy"
        self._told_final = False
        self._heard_at = self._asked_at = 0.0
        self.handshake: tuple[bytes, bytes | None] | None = None

    def connect(self, server: Server) -> None:
        """Take the server; before any line."""
        self._server = server

    # -- the client ---------------------------------------------------------------------------------

    def take_client_line(self, line: bytes | LongLine) -> None:
        """Take one line of the client."""
        if isinstance(line, LongLine):
            ident = guess_id(line.head) or guess_id(line.tail)
            problem = f"a line of {line.size} bytes is longer than {self._settings.longest_line}"
            self._to_client(error_line(plain_id(ident), INVALID_REQUEST, problem))
            return
        if not line.strip():
            return
        read = read_line(line)
        if isinstance(read, list):
            self._refuse_batch(read)
        elif isinstance(read, BadLine):
            self._to_client(error_line(plain_id(read.id), read.code, read.problem))
        elif read.kind == "request":
            self._take_request(read, line)
        elif read.kind == "notification":
            self._take_client_notification(read, line)
        else:
            self._take_client_answer(read, line)

    def client_left(self) -> None:
        """Settle what the client no longer waits for."""
        with self._lock:
            left = list(self._open.values())
            self._open.clear()
        for one in left:
            self._abandon(one, CallerGoneError())
        self._tasks.abandon_all(CallerGoneError())
        if self._workers is not None:
            self._workers.shutdown(wait=True)
        self._guard.runs.close()

    @property
    def is_busy(self) -> bool:
        """True while a request is on its way to the server, or the server works on a call with a claim."""
        with self._lock:
            return any(
                one.sent_at is None or (one.pending is not None and one.pending.is_write) for one in self._open.values()
            )

    # -- the server ---------------------------------------------------------------------------------

    def take_server_line(self, line: bytes | LongLine) -> None:
        """Take one line of the server."""
        self._heard_at = time.monotonic()
        if isinstance(line, LongLine):
            ident = guess_id(line.head) or guess_id(line.tail)
            self._take_unreadable(ident, f"a line of {line.size} bytes", is_message=True)
            return
        if not line.strip():
            return
        read = read_line(line)
        if isinstance(read, list):
            for one in read:
                if isinstance(one, Message):
                    self._take_server_message(one, dump_message(one.value))
        elif isinstance(read, BadLine):
            is_message = line.lstrip().startswith(b"{") and b'"jsonrpc"' in line
            self._take_unreadable(read.id, read.problem, is_message=is_message)
        else:
            self._take_server_message(read, line)

    def server_ended(self, reason: str) -> None:
        """Answer every request that the server got; those that wait for the next one stay."""
        with self._lock:
            lost = [one for one in self._open.values() if one.sent_at is not None]
            for one in lost:
                del self._open[one.id]
            self._server_asks.clear()
            self._late.clear()
            self._own.clear()
        for one in lost:
            self._answer_lost(one, _GONE.format(reason))
        self._tasks.abandon_all(ServerGoneError(reason))
        for one in self._listing.note_change():
            self._listing.take_call(one, self._caller(one))

    def server_failed(self, reason: str) -> None:
        """Answer every request: the server cannot be started again."""
        with self._lock:
            lost = list(self._open.values())
            self._open.clear()
        self._listing.drop(lost)
        for one in lost:
            self._answer_lost(one, _GONE.format(reason))

    def ask_server(self, method: str, params: Mapping[str, Any], then: Callable[[Message], None]) -> bytes:
        """Return the line of a request of our own; its answer goes to `then`, and not to the client."""
        ident = f"pokayoke-{self._mark}-{next(self._numbers)}"
        with self._lock:
            self._own[False, ident] = then
        return dump_message({"jsonrpc": "2.0", "id": ident, "method": method, "params": dict(params)})

    def _ask_own(self, method: str, params: dict[str, Any], then: Callable[[Message], None]) -> bool:
        return self._server.send_line(self.ask_server(method, params, then))

    # -- time ---------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Answer the requests whose time is over, and restart a server that said nothing in all that time."""
        with self._lock:
            if self._server_asks and now - self._asked_at < _ASKING_SECONDS:
                return  # the server waits for the client, which may wait for a person
            over = [one for one in self._open.values() if one.deadline <= now]
            for one in over:
                del self._open[one.id]
                if one.asked is not None:
                    self._asks.pop(one.asked, None)
                if one.sent_at is not None:
                    self._remember_late(one)
        self._listing.drop(over)
        is_silent = any(one.sent_at is not None and self._heard_at < one.sent_at for one in over)
        if is_silent:  # before the answers, so that what the client sends next waits for the new process
            self._server.restart("it answers nothing")
        for one in over:
            if one.asked is not None and one.pending is not None and one.pending.answer is not None:
                self._to_client(result_line(one.plain_id, one.pending.answer))
                continue
            why = "could not be reached" if one.sent_at is None else f"did not answer within {one.seconds:g} s"
            if one.sent_at is not None and not is_silent:
                self._server.send_line(_cancel_line(one.plain_id, "its deadline has passed"))
            self._answer_lost(one, _GONE.format(why))

    # -- requests of the client -----------------------------------------------------------------------

    def _refuse_batch(self, items: list[Message | BadLine]) -> None:
        ids = [plain_id(one.id) for one in items if one.id is not None and not _is_answer(one)]
        problem = "a batch is no message of MCP: send one message on each line"
        for ident in ids or [None]:
            self._to_client(error_line(ident, INVALID_REQUEST, problem))

    def _take_request(self, message: Message, line: bytes) -> None:
        assert message.id is not None, "a request has one"
        era = era_of(message.params)
        now = time.monotonic()
        seconds = self._settings.deadline
        exchange = Exchange(message, line, era, now + seconds, seconds)
        problem = None
        with self._lock:
            self._era = era
            if message.id in self._open or message.id in self._late:
                problem = "a request with this id is still open"
            elif len(self._open) >= _MOST_OPEN:
                problem = f"more than {_MOST_OPEN} requests are open"
            else:
                self._open[message.id] = exchange
        if problem is not None:
            self._to_client(error_line(message.id[1], INVALID_REQUEST, problem))
        elif message.method == "tools/call":
            self._listing.take_call(exchange, self._caller(exchange))
        else:
            if message.method == "initialize":
                self._can_ask = can_elicit(message.params.get("capabilities"))
                self.handshake = (line, None)
            self._send(exchange, line)

    def _take_client_notification(self, message: Message, line: bytes) -> None:
        if message.method == "notifications/cancelled":
            self._cancel(read_id(message.params.get("requestId")))
        elif message.method == "notifications/initialized" and self.handshake is not None:
            self.handshake = (self.handshake[0], line)
        self._server.send_line(line)

    def _take_client_answer(self, message: Message, line: bytes) -> None:
        ident = message.id
        with self._lock:
            asked = None if ident is None else self._asks.pop(ident, None)
            is_awaited = ident is not None and ident in self._server_asks
            if is_awaited:
                self._server_asks -= {ident}
                now = time.monotonic()
                for one in self._open.values():
                    one.deadline = now + one.seconds
        if asked is not None:
            self._run(lambda: self._take_decision(asked, message.value.get("result")))
        elif is_awaited:
            self._server.send_line(line)
        else:
            self._note("the client answered a request that nobody has made")

    def _cancel(self, ident: Id | None) -> None:
        """Take the client's word that it no longer waits: what the server got of a write is then in doubt."""
        with self._lock:
            exchange = None if ident is None else self._open.pop(ident, None)
            if exchange is None:
                return
            exchange.is_cancelled = True
            if exchange.asked is not None:
                self._asks.pop(exchange.asked, None)
            if exchange.sent_at is not None:
                self._remember_late(exchange)
        self._abandon(exchange, CallerGoneError())

    # -- calls ------------------------------------------------------------------------------------------

    def _take_call(self, exchange: Exchange) -> None:
        if self._guard.guard.store.durable and self._guard.is_write(exchange.message.params.get("name")):
            self._run(lambda: self._begin_call(exchange))
        else:
            self._begin_call(exchange)

    def _begin_call(self, exchange: Exchange) -> None:
        params, said = exchange.message.params, None
        if exchange.era == "modern":
            params, said = split_answer(params)
        pending = self._guard.begin(params, self._caller(exchange), era=exchange.era, request_id=str(exchange.plain_id))
        if said is not None and pending.approval == said[0]:
            pending = self._guard.answer_question(pending, said[1])
        self._go_on(exchange, pending)

    def _go_on(self, exchange: Exchange, pending: PendingCall) -> None:
        """Answer a call that has ended, ask about one that a person has to decide, or send it to the server."""
        with self._lock:
            exchange.pending = pending
            is_over = exchange.is_cancelled or exchange.id not in self._open
        if pending.answer is not None:
            if not is_over and not self._ask_person(exchange, pending):
                self._answer(exchange, pending.answer)
            return
        if is_over:
            self._guard.abandon(pending, ToolNotStarted("its client no longer waits"))
            return
        assert pending.params is not None, "a call that goes on has parameters"
        is_same = pending.params is exchange.message.value.get("params")
        line = exchange.line if is_same else dump_message({**exchange.message.value, "params": pending.params})
        self._send(exchange, line)

    def _ask_person(self, exchange: Exchange, pending: PendingCall) -> bool:
        """Put the guard's question to the client's user; False if there is none, or no way to."""
        if pending.approval is None or not self._caller(exchange).can_ask:
            return False
        question = self._guard.question(pending)
        if question is None:
            return False
        if exchange.era == "modern":
            self._answer(exchange, asking_result(question, pending.approval))
            return True
        ident = f"pokayoke-{self._mark}-{next(self._numbers)}"
        with self._lock:
            self._asks[False, ident] = exchange
            exchange.asked = (False, ident)
            exchange.deadline = time.monotonic() + max(_ASKING_SECONDS, exchange.seconds)
        request = {"jsonrpc": "2.0", "id": ident, "method": "elicitation/create", "params": question}
        self._to_client(dump_message(request))
        return True

    def _take_decision(self, exchange: Exchange, said: Any) -> None:
        pending = exchange.pending
        exchange.asked = None
        exchange.deadline = time.monotonic() + exchange.seconds
        if pending is None:
            return
        after = self._guard.answer_question(pending, said)
        if after is pending and pending.answer is not None:
            self._answer(exchange, pending.answer)
        elif after is not pending:
            self._go_on(exchange, after)

    def _finish_call(self, exchange: Exchange, message: Message, line: bytes) -> None:
        pending = exchange.pending
        if pending is None or pending.ticket is None:
            self._to_client(line)
            return
        if "error" in message.value:
            answer = self._guard.finish_error(pending, message.value["error"])
            self._to_client(line if answer is None else result_line(exchange.plain_id, answer))
            return
        result = message.value.get("result")
        kind = interim_kind(result)
        if kind == "task" and (task := task_id(result)) is not None:
            self._tasks.keep(task, pending)
            self._to_client(line)
            return
        answer = self._guard.finish(pending, result)
        self._to_client(line if answer is result else splice_result(line, message, answer))
        self._tell_final(exchange)

    def _tell_final(self, exchange: Exchange) -> None:
        """Say in the legacy era that no tools are left once the run may only answer."""
        if self._told_final or exchange.era == "modern" or not self._guard.is_final(self._caller(exchange)):
            return
        self._told_final = True
        self._to_client(dump_message({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))

    def _take_task_answer(self, exchange: Exchange, message: Message, line: bytes) -> None:
        task, result = exchange.message.params.get("taskId"), message.value.get("result")
        if not is_object(result) or not isinstance(task, str):
            self._to_client(line)
            return
        judge = self._tasks.judge_result if exchange.message.method == "tasks/result" else self._tasks.judge_state
        judged = judge(task, result, exchange.era)
        self._to_client(line if judged is result else splice_result(line, message, judged))

    # -- messages of the server ---------------------------------------------------------------------------

    def _take_server_message(self, message: Message, line: bytes) -> None:
        if message.kind == "response":
            self._take_server_answer(message, line)
        elif message.kind == "request":
            with self._lock:
                is_open = len(self._server_asks) < _MOST_OPEN
                if is_open and message.id is not None:
                    if not self._server_asks:
                        self._asked_at = time.monotonic()
                    self._server_asks.add(message.id)
            if is_open:
                self._to_client(line)
            else:
                self._server.send_line(error_line(plain_id(message.id), INTERNAL_ERROR, "too many requests are open"))
        else:
            self._take_server_notification(message, line)

    def _take_server_notification(self, message: Message, line: bytes) -> None:
        params = message.params
        if message.method == "notifications/tools/list_changed":
            for one in self._listing.note_change():
                self._listing.take_call(one, self._caller(one))
        elif message.method == "notifications/progress":
            self._extend(params.get("progressToken"))
        elif message.method == "notifications/tasks" and isinstance(params.get("taskId"), str):
            judged = self._tasks.judge_state(params["taskId"], params, self._era)
            if judged is not params:
                line = dump_message({**message.value, "params": judged})
        self._to_client(line)

    def _extend(self, token: Any) -> None:
        now = time.monotonic()
        with self._lock:
            for one in self._open.values():
                if token is not None and one.progress_token == token:
                    one.deadline = now + one.seconds

    def _take_server_answer(self, message: Message, line: bytes) -> None:
        ident = message.id
        if ident is None:
            self._note("the server answered a request that it could not read")
            return
        with self._lock:
            own = self._own.pop(ident, None)
            exchange = self._open.get(ident)
            if exchange is not None and exchange.sent_at is not None:
                del self._open[ident]
            else:
                exchange = None
            was_late = own is None and exchange is None and ident in self._late
            late = self._late.pop(ident, None) if was_late else None
        if own is not None:
            own(message)
        elif exchange is not None:
            self._deliver(exchange, message, line)
        elif was_late:
            if late is not None and late.ticket is not None:
                self._run(lambda: self._guard.record_late(late, message.value.get("result")))
        else:
            self._note("the server answered a request that is not open; the answer is dropped")

    def _deliver(self, exchange: Exchange, message: Message, line: bytes) -> None:
        method = exchange.message.method
        if exchange.is_call:
            if exchange.pending is not None and exchange.pending.is_write and self._guard.guard.store.durable:
                self._run(lambda: self._finish_call(exchange, message, line))
            else:
                self._finish_call(exchange, message, line)
        elif method == "tools/list" and is_object(result := message.value.get("result")):
            shown = self._guard.take_listing(result, self._caller(exchange), exchange.era)
            if not result.get("nextCursor"):
                self._listing.note_listed()
            self._to_client(line if shown is result else splice_result(line, message, shown))
        elif method in ("tasks/get", "tasks/result"):
            self._run(lambda: self._take_task_answer(exchange, message, line))
        else:
            self._to_client(line)

    def _take_unreadable(self, ident: Id | None, problem: str, *, is_message: bool) -> None:
        """Answer the request to which an unreadable line belongs beyond doubt; drop it otherwise."""
        with self._lock:
            sent = [one for one in self._open.values() if one.sent_at is not None]
            if ident is None and is_message and len(sent) == 1 and not self._own:
                exchange: Exchange | None = sent[0]
            else:
                exchange = next((one for one in sent if one.id == ident), None)
            if exchange is not None:
                del self._open[exchange.id]
        self._note(f"the server sent what is no message: {problem}")
        if exchange is not None:
            self._answer_lost(exchange, f"{_UNREADABLE}: {problem}")

    # -- answers ------------------------------------------------------------------------------------------

    def _send(self, exchange: Exchange, line: bytes) -> None:
        if not self._server.send_line(line, exchange):
            with self._lock:
                if self._open.pop(exchange.id, None) is None:
                    return
            self._answer_lost(exchange, _GONE.format("cannot be started"))

    def _answer(self, exchange: Exchange, result: Mapping[str, Any]) -> None:
        with self._lock:
            if self._open.pop(exchange.id, None) is None:
                return
        self._to_client(result_line(exchange.plain_id, result))

    def _answer_lost(self, exchange: Exchange, reason: str) -> None:
        """Answer a request that is no longer open and has no answer of its server."""
        if exchange.is_call:
            error = ToolNotStarted(reason) if exchange.sent_at is None else ServerGoneError(reason)
            answer = self._abandon(exchange, error)
            if answer is None:
                name = exchange.message.params.get("name")
                answer = error_result(f"{name} was not run: {reason}.", era=exchange.era, facts={"status": "failed"})
            self._to_client(result_line(exchange.plain_id, answer))
        else:
            self._to_client(error_line(exchange.plain_id, INTERNAL_ERROR, reason))

    def _abandon(self, exchange: Exchange, error: Exception) -> dict[str, Any] | None:
        """Settle the guard's part of a request that gets no answer of its server; return what to tell the client."""
        pending = exchange.pending
        if pending is None:
            return None
        if pending.ticket is None:
            return pending.answer
        if exchange.sent_at is None:
            error = ToolNotStarted("its server did not get it")
        return self._guard.abandon(pending, error)

    def _remember_late(self, exchange: Exchange) -> None:
        self._late[exchange.id] = exchange.pending
        if len(self._late) > _MOST_LATE:
            self._late.popitem(last=False)

    def _caller(self, exchange: Exchange) -> Caller:
        if exchange.era == "legacy":
            return Caller(can_ask=self._can_ask)
        meta = exchange.message.params.get("_meta")
        return Caller(can_ask=is_object(meta) and can_elicit(meta.get(CAPABILITIES_KEY)))

    def _run(self, job: Callable[[], None]) -> None:
        """Run what may wait for a disk, beside the two threads that carry lines."""
        if self._workers is None:
            with self._lock:
                self._workers = self._workers or ThreadPoolExecutor(_WORKERS, thread_name_prefix="pokayoke-call")
        self._workers.submit(self._run_safely, job)

    def _run_safely(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - a worker's exception would be seen by nobody
            self._note(f"a call failed inside the gateway: {type(error).__name__}: {error}")


def _is_answer(one: Message | BadLine) -> bool:
    return isinstance(one, Message) and one.kind == "response"


def _cancel_line(ident: Any, reason: str) -> bytes:
    return dump_message(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ident, "reason": reason}}
    )
