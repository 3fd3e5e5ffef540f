"""Tools that fail as real ones do, on the calls you choose.

`faulty(tool, faults)` wraps a function or a contract. The first call gets the first fault, the second call the
second, and so on; calls beyond the list succeed. A fault is a name from `FAULTS`, or the result of one of the
functions here if it takes options.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast, overload

import msgspec

from pokayoke.core.call import Raw
from pokayoke.core.contract.contract import Contract

Effect = Literal["first", "last", "never"]

MAINTENANCE_PAGE = (
    "<!doctype html>\n<html><head><title>Maintenance</title></head>\n<body><h1>We will be back soon</h1></body></html>"
)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One way to fail.

    Args:
        name: its name in the log.
        effect: when the wrapped tool runs: `first` (before anything goes wrong), `last` (after the
            pause: a late effect) or `never`.
        seconds: how long the call pauses.
        error: returns the exception the call ends with, if it ends with one.
        change: turns the tool's return value (None if it never ran) into what the caller gets.
    """

    name: str
    effect: Effect = "first"
    seconds: float = 0.0
    error: Callable[[], BaseException] | None = None
    change: Callable[[Any], Any] | None = None


OK = Fault(name="ok")
"""The call succeeds unchanged."""


def html_page(page: str = MAINTENANCE_PAGE, *, status: int = 200, effect: Effect = "first") -> Fault:
    """The answer is a web page, with the status of a success."""
    return Fault(name="html_page", effect=effect, change=lambda _: Raw(page, "text/html; charset=utf-8", status))


def html_field(field: str | None = None, *, page: str = MAINTENANCE_PAGE) -> Fault:
    """A field of a valid answer holds a web page; the first text field unless one is named."""
    return Fault(name="html_field", change=lambda result: _set_field(result, field, str, page))


def truncated_json(keep: float = 0.6) -> Fault:
    """The JSON text of the answer breaks off after a share `keep` (0 to 1) of its characters."""
    return Fault(name="truncated_json", change=lambda result: _cut_text(result, keep))


def empty_body() -> Fault:
    """The answer is a success without a body."""
    return Fault(name="empty_body", change=lambda _: Raw("", "application/json", 200))


def error_inside_success(message: str = "upstream timed out") -> Fault:
    """The answer says `ok` and carries an error next to its data."""
    return Fault(
        name="error_inside_success",
        change=lambda result: {**_answer_fields(result), "ok": True, "error": message},
    )


def drifted_schema(rename: Mapping[str, str] | None = None) -> Fault:
    """The answer has another schema: fields renamed as given, or all of it one level deeper."""
    if rename is None:
        return Fault(name="drifted_schema", change=lambda result: {"api_version": 2, "data": _wire_value(result)})
    names = dict(rename)
    return Fault(
        name="drifted_schema",
        change=lambda result: {names.get(name, name): value for name, value in _answer_fields(result).items()},
    )


def oversized(chars: int = 1_000_000) -> Fault:
    """The answer is a JSON text of at least `chars` characters."""
    return Fault(
        name="oversized",
        change=lambda result: Raw(
            json.dumps({"result": _wire_value(result), "padding": "x" * chars}), "application/json", 200
        ),
    )


def hang(seconds: float = 60.0, *, effect: Effect = "first") -> Fault:
    """The call pauses for `seconds`, or until `Faults.release()`; then it goes on normally."""
    return Fault(name="hang", effect=effect, seconds=seconds)


def raise_before(error: Callable[[], BaseException] = lambda: ConnectionError("connection refused")) -> Fault:
    """The call raises and the tool never ran."""
    return Fault(name="raise_before", effect="never", error=error)


def raise_after(error: Callable[[], BaseException] = lambda: ConnectionError("connection reset by peer")) -> Fault:
    """The tool does its work, and then the call raises: the answer is lost."""
    return Fault(name="raise_after", error=error)


def exits(code: int = 1, *, effect: Effect = "never") -> Fault:
    """The call raises SystemExit, as code written for a command line does."""
    return Fault(name="exits", effect=effect, error=lambda: SystemExit(code))


def generator() -> Fault:
    """The answer is a generator."""
    return Fault(name="generator", change=lambda result: (item for item in [result]))


def plain_object() -> Fault:
    """The answer is an object without any rule for serialising it."""
    return Fault(name="plain_object", change=lambda _: object())


def cyclic() -> Fault:
    """The answer contains itself."""
    return Fault(name="cyclic", change=_add_cycle)


def nan(field: str | None = None) -> Fault:
    """A number of the answer is NaN; the first number unless a field is named."""
    return Fault(name="nan", change=lambda result: _set_field(result, field, (int, float), float("nan")))


FAULTS: Mapping[str, Callable[[], Fault]] = {
    "cyclic": cyclic,
    "drifted_schema": drifted_schema,
    "empty_body": empty_body,
    "error_inside_success": error_inside_success,
    "exits": exits,
    "generator": generator,
    "hang": hang,
    "html_field": html_field,
    "html_page": html_page,
    "nan": nan,
    "oversized": oversized,
    "plain_object": plain_object,
    "raise_after": raise_after,
    "raise_before": raise_before,
    "truncated_json": truncated_json,
}
"""Every fault by its name, without options: ready for `pytest.mark.parametrize`."""


class Happening(msgspec.Struct, frozen=True):
    """One call of a faulty tool.

    Args:
        arguments: its arguments.
        fault: name of its fault, or `ok`.
        effect: True if the wrapped tool ran to its end.
    """

    arguments: dict[str, Any]
    fault: str
    effect: bool


class Faults:
    """The plan of a faulty tool, and the log of its calls.

    Args:
        faults: names or values, in the order of the calls; `ok` lets a call succeed.
        then: the fault of every later call.

    Attributes:
        log: one `Happening` per finished call, in the order in which they ended.
        started: how many calls started.

    Raises:
        ValueError: a name that is not in `FAULTS`.
        TypeError: the faults are one text, whose letters would be the names.
    """

    def __init__(self, faults: Iterable[str | Fault], *, then: str | Fault = OK) -> None:
        if isinstance(faults, str):
            raise TypeError(f"faults are a list, one per call, such as [{faults!r}], not a text")
        self.log: list[Happening] = []
        self.started = 0
        self._plan = [_to_fault(fault) for fault in faults]
        self._then = _to_fault(then)
        self._released = threading.Event()
        self._lock = threading.Lock()

    @property
    def effects(self) -> int:
        """How often the wrapped tool ran to its end."""
        return sum(happening.effect for happening in self.log)

    def release(self) -> None:
        """Let every hanging call of a sync tool go on, now and later."""
        self._released.set()

    def next(self) -> Fault:
        """Return the fault of the call that starts now."""
        with self._lock:
            self.started += 1
            return self._plan[self.started - 1] if self.started <= len(self._plan) else self._then

    def pause(self, seconds: float) -> None:
        """Pause for `seconds`, or until `release()`."""
        self._released.wait(seconds)


@overload
def faulty(tool: Contract, faults: Faults | Iterable[str | Fault]) -> Contract: ...
@overload
def faulty(tool: Callable[..., Any], faults: Faults | Iterable[str | Fault]) -> Callable[..., Any]: ...
def faulty(tool: Any, faults: Faults | Iterable[str | Fault]) -> Any:
    """Wrap a tool so that its calls fail as planned.

    Args:
        tool: a sync or async function, or a contract with a handler.
        faults: the faults in the order of the calls, or a `Faults` to read the log from later.

    Returns:
        The same kind of thing with the same name, signature and documentation.

    Raises:
        ValueError: the name of a fault is unknown, or the contract has no handler.
    """
    plan = faults if isinstance(faults, Faults) else Faults(faults)
    if isinstance(tool, Contract):
        if tool.handler is None:
            raise ValueError(f"{tool.id} has no handler that could fail; wrap the function that is invoked")
        # Next to a handler that converts, this function is what a direct call of the contract runs.
        function = tool.function and faulty(tool.function, plan)
        return dataclasses.replace(tool, handler=faulty(tool.handler, plan), function=function)
    return _async_tool(tool, plan) if inspect.iscoroutinefunction(tool) else _sync_tool(tool, plan)


def _sync_tool(tool: Callable[..., Any], plan: Faults) -> Callable[..., Any]:
    @functools.wraps(tool)
    def call_with_fault(*args: Any, **kwargs: Any) -> Any:
        fault, result, ran = plan.next(), None, False
        try:
            if fault.effect == "first":
                result, ran = tool(*args, **kwargs), True
            plan.pause(fault.seconds)
            if fault.effect == "last":
                result, ran = tool(*args, **kwargs), True
            return _end_call(fault, result)
        finally:
            plan.log.append(Happening(_bind_arguments(tool, args, kwargs), fault.name, ran))

    return call_with_fault


def _async_tool(tool: Callable[..., Any], plan: Faults) -> Callable[..., Any]:
    @functools.wraps(tool)
    async def call_with_fault(*args: Any, **kwargs: Any) -> Any:
        fault, result, ran = plan.next(), None, False
        try:
            if fault.effect == "first":
                result, ran = await tool(*args, **kwargs), True
            await asyncio.sleep(fault.seconds)
            if fault.effect == "last":
                result, ran = await tool(*args, **kwargs), True
            return _end_call(fault, result)
        finally:
            plan.log.append(Happening(_bind_arguments(tool, args, kwargs), fault.name, ran))

    return call_with_fault


def _end_call(fault: Fault, result: Any) -> Any:
    if fault.error is not None:
        raise fault.error()
    return fault.change(result) if fault.change is not None else result


def _to_fault(fault: str | Fault) -> Fault:
    if isinstance(fault, Fault):
        return fault
    if fault == "ok":
        return OK
    if fault not in FAULTS:
        raise ValueError(f"no fault is called {fault!r}; there are: ok, {', '.join(FAULTS)}")
    return FAULTS[fault]()


def _bind_arguments(tool: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(inspect.signature(tool).bind_partial(*args, **kwargs).arguments) if args else dict(kwargs)


def _wire_value(result: Any) -> Any:
    """Return an answer as it would be on the wire before it is encoded."""
    if isinstance(result, Raw):
        return result.body if isinstance(result.body, str) else result.body.decode("utf-8", "replace")
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return dataclasses.asdict(result)
    dump = getattr(result, "model_dump", None)
    return dump(mode="json") if callable(dump) else result


def _cut_text(result: Any, keep: float) -> Raw:
    plain = _wire_value(result)
    text = plain if isinstance(plain, str) else json.dumps(plain, default=str)
    return Raw(text[: max(1, int(len(text) * keep))], "application/json", 200)


def _answer_fields(result: Any) -> dict[str, Any]:
    plain = _wire_value(result)
    return cast("dict[str, Any]", plain) if isinstance(plain, dict) else {}


def _set_field(result: Any, field: str | None, kinds: Any, value: Any) -> Any:
    if not (fields := _answer_fields(result)):
        return value
    fitting = [name for name, old in fields.items() if isinstance(old, kinds) and not isinstance(old, bool)]
    return {**fields, field or (fitting[0] if fitting else "value"): value}


def _add_cycle(result: Any) -> Any:
    answer: dict[str, Any] = {"result": result}
    answer["self"] = answer
    return answer
