"""The guard behind the conversations of clients with servers: what becomes of a listing, and of a call.

In: the parameters of `tools/call` requests, and what the servers answer.
Out: parameters for the server, and results for the client.
Never: a call that runs without its claim, an answer that is not checked, or a repetition that nobody has asked for.

A transport calls `begin` with a request. If the call has an answer by then, it goes to the client; else `params` go to
the server, and what comes back goes through `finish`, `finish_error` or `abandon`, whose result is the client's.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from pokayoke.core.call import Outcome, ToolCall
from pokayoke.core.flow.steps import Returned, ToolNotStarted
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_array, is_object
from pokayoke.core.state.words import say
from pokayoke.errors import StoreError, ToolError
from pokayoke.gateway.listing import ListingSettings, ToolListing
from pokayoke.gateway.messages.results import LEDGER_KEY, Era, build_result, error_result, mark_result
from pokayoke.gateway.runs import Caller, GatewayRuns
from pokayoke.runtime.driver.late_result import record_late_result
from pokayoke.runtime.guard.guard import Guard
from pokayoke.runtime.run.run import Run
from pokayoke.runtime.run.ticket import Ticket

Interim = Literal["input", "task"]

_PROTOCOL_CODES: Final = range(-32099, -32019)
"""Errors after which clients send the call once more, such as a URL that a person has to open first."""
_TEXT_BLOCK: Final = {"type", "text"}
_AMBIGUOUS: Final = frozenset(("body", "content", "structuredContent", "isError", "type"))
_NO_RESULT: Final = "its server answered with something that is no result of a tool"


class ServerGoneError(Exception):
    """What becomes of a call whose server ended, hung or answered in no readable way: nobody knows what it did."""


@dataclass(slots=True)
class PendingCall:
    """A call between the client's request and its result.

    Attributes:
        params: what the server gets; the client's own object where nothing has changed. None if it gets nothing.
        answer: the client's result, if the call has ended.
        approval: id of a question that a person has to answer before the call may run.
        tool: name of the tool.
        era: the client's.
    """

    run: Run | None
    call: ToolCall
    given: Mapping[str, Any]
    caller: Caller
    era: Era
    tool: str
    structured: bool = False
    ticket: Ticket | None = None
    params: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    approval: str | None = None
    outcome: Outcome | None = field(default=None, repr=False)

    @property
    def is_write(self) -> bool:
        """True if the call has a claim in the ledger."""
        return self.ticket is not None and self.ticket.ok and self.ticket.admitted.claim is not None


class Interceptor:
    """Guards the tools of one or several servers; thread-safe.

    Args:
        guard: gets its contracts from the listings.
        listing: how these are made.
        scope: id of the run of calls that belong to no other, see `GatewayRuns`.
        untrusted: names of tools whose texts are framed as data for the model; other results stay as they are.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        listing: ListingSettings | None = None,
        scope: str | None = None,
        untrusted: Collection[str] = (),
    ) -> None:
        self.guard = guard
        self.tools = ToolListing(guard, listing or ListingSettings())
        self.runs = GatewayRuns(guard, scope=scope)
        self._untrusted = frozenset(untrusted)

    def report_server(self, name: str, *, is_up: bool, reason: str) -> None:
        """Write to the trace that a server runs, or does not.

        Args:
            name: of the server.
            is_up: whether it runs.
            reason: why, or what it offers.
        """
        event = {"ts": self.guard.clock.now(), "event": "server", "tool": name, "ok": is_up, "reason": reason}
        self.guard.trace.record(event)

    # -- listings ---------------------------------------------------------------------------------

    def take_listing(self, result: Mapping[str, Any], caller: Caller, era: Era) -> Mapping[str, Any]:
        """Take a `tools/list` result; return what the client is shown, the same object if nothing has to change.

        Args:
            result: the server's.
            caller: who asks.
            era: the client's. A listing of the older one is empty while a run may only answer.
        """
        given = result.get("tools")
        listed: list[Any] = given if is_array(given) else []
        shown = self.tools.take(listed)
        if era == "legacy" and self.is_final(caller):
            shown = []
        if len(shown) == len(listed) and all(one is other for one, other in zip(shown, listed, strict=True)):
            return result
        return {**result, "tools": shown}

    def is_final(self, caller: Caller) -> bool:
        """Return whether the caller's run may only answer, so that none of its calls runs."""
        run = self.runs.peek_run({}, caller)
        return run is not None and run.mode in ("final_answer", "stopped")

    # -- calls ------------------------------------------------------------------------------------

    def begin(
        self, params: Mapping[str, Any], caller: Caller, *, era: Era = "legacy", request_id: str = ""
    ) -> PendingCall:
        """Take a `tools/call` request up to the server's door.

        Args:
            params: of the request; its `arguments` may be anything.
            caller: who calls.
            era: the client's.
            request_id: of the request, for the trace.
        """
        pending = self._open_call(params, caller, era, request_id)
        if pending.run is not None:
            self._admit(pending, pending.run.begin(pending.call))
        return pending

    async def abegin(
        self, params: Mapping[str, Any], caller: Caller, *, era: Era = "legacy", request_id: str = ""
    ) -> PendingCall:
        """`begin` for asynchronous code."""
        pending = self._open_call(params, caller, era, request_id)
        if pending.run is not None:
            self._admit(pending, await pending.run.abegin(pending.call))
        return pending

    def finish(self, pending: PendingCall, result: Any) -> dict[str, Any]:
        """Judge the server's result; return the client's. One of `interim_kind` is no result yet.

        Args:
            pending: from `begin`.
            result: of the server's answer, whatever it is.
        """
        run, ticket = _require_open(pending)
        if interim_kind(result) == "input":
            # By the protocol the exchange ends here, and the client calls again with what the server wants to know.
            run.finish(ticket, error=ToolNotStarted("its server asks for something first"))
            return cast("dict[str, Any]", result)
        if not is_tool_result(result):
            return self._conclude(pending, run.finish(ticket, error=_no_result()), None)
        return self._conclude(pending, run.finish(ticket, result=_checked_parts(ticket, result)), result)

    async def afinish(self, pending: PendingCall, result: Any) -> dict[str, Any]:
        """`finish` for asynchronous code."""
        run, ticket = _require_open(pending)
        if interim_kind(result) == "input":
            await run.afinish(ticket, error=ToolNotStarted("its server asks for something first"))
            return cast("dict[str, Any]", result)
        if not is_tool_result(result):
            return self._conclude(pending, await run.afinish(ticket, error=_no_result()), None)
        return self._conclude(pending, await run.afinish(ticket, result=_checked_parts(ticket, result)), result)

    def finish_error(self, pending: PendingCall, error: Any) -> dict[str, Any] | None:
        """Settle a call that the server has answered with a JSON-RPC error.

        Returns:
            The client's result, as clients show it to the model, which they do not do with an error. None if the error
            is one of the protocol that clients handle: it goes to the client as it is.
        """
        run, ticket = _require_open(pending)
        reason, passes = read_error(error)
        answer = self._conclude(pending, run.finish(ticket, error=reason), None)
        return None if passes else answer

    async def afinish_error(self, pending: PendingCall, error: Any) -> dict[str, Any] | None:
        """`finish_error` for asynchronous code."""
        run, ticket = _require_open(pending)
        reason, passes = read_error(error)
        answer = self._conclude(pending, await run.afinish(ticket, error=reason), None)
        return None if passes else answer

    def abandon(self, pending: PendingCall, error: Exception) -> dict[str, Any]:
        """Settle a call that gets no answer.

        Args:
            pending: from `begin`.
            error: `ToolNotStarted` if the server never got the request; else `ServerGoneError`: a write is in doubt.
        """
        run, ticket = _require_open(pending)
        return self._conclude(pending, run.finish(ticket, error=error), None)

    async def aabandon(self, pending: PendingCall, error: Exception) -> dict[str, Any]:
        """`abandon` for asynchronous code."""
        run, ticket = _require_open(pending)
        return self._conclude(pending, await run.afinish(ticket, error=error), None)

    def record_late(self, pending: PendingCall, result: Any) -> None:
        """Note what comes back of a call that was abandoned: its doubt is settled, and nothing is delivered."""
        run, ticket = _require_open(pending)
        if is_tool_result(result):
            admitted = ticket.admitted
            record_late_result(run, admitted.plan.contract, admitted.claim, Returned(_checked_parts(ticket, result)))

    def is_write(self, name: Any) -> bool:
        """Return whether a call of this name may have to claim its effect, so that it waits for the ledger's disk."""
        contract = self.guard.snapshot.find_contract(name) if isinstance(name, str) else None
        return contract is not None and contract.effect != "read"

    def knows_tool(self, name: Any) -> bool:
        """Return whether a name leads to a tool that was listed, approved or not."""
        if not isinstance(name, str):
            return True
        return self.guard.snapshot.find_contract(name) is not None or self.tools.find_refusal(name) is not None

    # -- questions to a person ----------------------------------------------------------------------

    def question(self, pending: PendingCall) -> dict[str, Any] | None:
        """Return the parameters of the `elicitation/create` request that asks a person about a call; None if none.

        The client's own window asks, and the model sees neither the question nor the answer.
        """
        if pending.approval is None or pending.run is None:
            return None
        arguments = clip_json(pending.given.get("arguments"))
        return {
            "message": f"{say(self.guard.policy.words, 'may_run', tool=pending.tool)}\n{arguments}",
            "requestedSchema": {
                "type": "object",
                "properties": {"allow": {"type": "boolean", "title": f"Run {pending.tool}?"}},
                "required": ["allow"],
            },
        }

    def answer_question(self, pending: PendingCall, said: Any) -> PendingCall:
        """Take a person's answer, and begin the call once more; a question that stays open leaves it as it is.

        Args:
            pending: a call with a question.
            said: the client's `elicitation/create` result; what accepts nothing and declines nothing leaves it open.
        """
        decision = read_elicited(said)
        if pending.approval is None or pending.run is None or decision is None:
            return pending
        with contextlib.suppress(StoreError):  # answered elsewhere meanwhile; the call finds that answer
            self.guard.approvals.answer(pending.approval, approved=decision, by="client", reason="asked by elicitation")
        return self.begin(pending.given, pending.caller, era=pending.era, request_id=pending.call.id)

    # -- parts ----------------------------------------------------------------------------------------

    def _open_call(self, params: Mapping[str, Any], caller: Caller, era: Era, request_id: str) -> PendingCall:
        name = params.get("name")
        called = name if isinstance(name, str) else ""
        call = ToolCall(request_id or f"call-{uuid.uuid4().hex[:12]}", called, _read_arguments(params.get("arguments")))
        contract = self.guard.snapshot.find_contract(called)
        tool = called if contract is None else contract.name
        reason = self.tools.find_refusal(tool)  # first, as it takes over what was approved meanwhile
        pending = PendingCall(None, call, params, caller, era, tool, self.tools.promises_structure(tool))
        if reason is not None:
            pending.answer = error_result(reason, era=era)
            return pending
        pending.run = run = self.runs.find_run(params, caller)
        run.rounds.clear()  # no user's turn is known here, so nothing else would end a streak of failures
        return pending

    def _admit(self, pending: PendingCall, ticket: Ticket) -> None:
        if ticket.outcome is not None:
            pending.outcome = ticket.outcome
            pending.approval = ticket.outcome.approval if ticket.outcome.status == "pending" else None
            pending.answer = build_result(ticket.outcome, era=pending.era, structured=pending.structured)
            return
        pending.ticket = ticket
        given, params = pending.given, dict(pending.given)
        if pending.tool != given.get("name"):
            params["name"] = pending.tool
        arguments = cast("dict[str, Any]", ticket.arguments)
        if arguments != given.get("arguments", {}):
            params["arguments"] = arguments
        if (claim := ticket.admitted.claim) is not None:
            meta = given.get("_meta")
            known = meta if is_object(meta) else {}
            params["_meta"] = {**known, LEDGER_KEY: claim.key}
        pending.params = cast("dict[str, Any]", given) if params == given else params

    def _conclude(self, pending: PendingCall, outcome: Outcome, result: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the client's result for an outcome: the server's own where it may be used, or says why it failed."""
        pending.outcome = outcome
        own_failure = outcome.status in ("failed", "in_doubt") and result is not None and result.get("isError") is True
        if result is not None and (outcome.status == "ok" or own_failure):
            answer = mark_result(result, outcome)
            if pending.tool in self._untrusted:
                answer["content"] = [{"type": "text", "text": outcome.text}, *outcome.content]
        else:
            answer = build_result(outcome, era=pending.era, structured=pending.structured)
        pending.answer = answer
        return answer


def interim_kind(result: Any) -> Interim | None:
    """Return what a result is that ends no call: a question to the client, or a task that goes on; else None."""
    if not is_object(result):
        return None
    kind = result.get("resultType", "complete")
    if kind == "input_required":
        return "input"
    if kind == "task" or (is_object(result.get("task")) and "content" not in result):
        return "task"
    return None


def is_tool_result(result: Any) -> bool:
    """Return whether a value has the shape of a `CallToolResult`."""
    if not is_object(result) or result.get("resultType", "complete") != "complete":
        return False
    content = result.get("content", [] if "structuredContent" in result else None)
    return is_array(content) and all(is_object(one) and isinstance(one.get("type"), str) for one in content)


def read_error(error: Any) -> tuple[Exception, bool]:
    """Return what a server's JSON-RPC error says of a call, and whether clients handle it by themselves."""
    known = error if is_object(error) else {}
    code, said = known.get("code"), known.get("message")
    text = said if isinstance(said, str) and said else "its server gave no reason"
    passes = isinstance(code, int) and code in _PROTOCOL_CODES
    if passes:
        return ToolNotStarted(text[:300], blame="model"), True
    # No code proves that nothing has happened: the body of a tool may raise each of them.
    return ToolError(text[:1_000], effect="unknown"), False


def read_elicited(said: Any) -> bool | None:
    """Return a person's decision in an `elicitation/create` result; None if the person made none."""
    known = said if is_object(said) else {}
    if known.get("action") == "decline":
        return False
    content = known.get("content")
    if known.get("action") != "accept" or not is_object(content):
        return None
    allowed = content.get("allow")
    return allowed if isinstance(allowed, bool) else None


def clip_json(value: Any, most: int = 1_000) -> str:
    """Return a value as JSON for a person, in printable characters, at most so many."""
    text = dump_compact(value).decode()
    shown = "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text[:most])
    return shown if len(text) <= most else f"{shown}... ({len(text)} characters)"


def _read_arguments(arguments: Any) -> Any:
    """Return arguments as the guard takes them: an object or a text; anything else as its JSON text."""
    if arguments is None:
        return {}
    return arguments if isinstance(arguments, str) or is_object(arguments) else dump_compact(arguments).decode()


class ResultParts:
    """What is checked of a result. No dict: the core would have to guess whether `content` is the tool's own field."""

    __slots__ = ("content", "isError", "structuredContent")

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.content, self.isError = result.get("content", []), result.get("isError")
        self.structuredContent = result.get("structuredContent")


def _checked_parts(ticket: Ticket, result: Mapping[str, Any]) -> Any:
    """Return what is checked of a result, in a shape that the core knows."""
    content, structure = result.get("content", []), result.get("structuredContent")
    promises = ticket.admitted.plan.contract.output is not None
    is_usual = promises and is_object(structure) and len(content) == 1 and not result.get("isError")
    if is_usual and _says(content[0], structure):
        return structure  # a value, and its JSON as a text
    return ResultParts(result)


def _says(block: Any, value: Any) -> bool:
    """Return whether a block is the JSON text of an object that cannot be taken for a response or for blocks."""
    if block.keys() != _TEXT_BLOCK or not _AMBIGUOUS.isdisjoint(value):
        return False
    try:
        return bool(parse(block["text"])[0] == value)
    except (StrictError, TypeError):
        return False


def _no_result() -> ToolError:
    return ToolError(_NO_RESULT, effect="unknown")


def _require_open(pending: PendingCall) -> tuple[Run, Ticket]:
    assert pending.run is not None, "a call that has ended has its answer"
    assert pending.ticket is not None, "a call that has ended has its answer"
    return pending.run, pending.ticket
