"""Where the frame of a result is: in the framework's history, or only in the request that the model reads.

In: outcomes of calls, and results as a framework's history holds them. Out: what the history holds of a call that
ended ok, and the text that the model reads of it. Never: a history whose result would reach the model as another text
than the guard wrote; where the tool's own value cannot be framed again to that very text, the history holds the text.

With `frame="wire"` the frame is made anew for each request, from the history and the contract alone, so that nothing
has to be remembered across a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, get_args

from pokayoke.adapters._host.bounded_cache import BoundedCache
from pokayoke.adapters._host.run import AdapterRun
from pokayoke.core.call import Finding, Outcome
from pokayoke.core.contract.contract import Contract
from pokayoke.core.flow.repetition import REPLAY_WORDS
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.output.model_text import is_framed, result_text
from pokayoke.errors import UsageError

Frame = Literal["history", "wire"]
"""`history`: a result is framed where the framework keeps it. `wire`: there it is the tool's own value."""
_CACHE: Final = "frames"


def require_frame(frame: str, impossible: str = "") -> bool:
    """Return whether the frame is on the wire only.

    Args:
        frame: what the user has given.
        impossible: why a framework has no request whose results the guard could frame, if it has none.

    Raises:
        UsageError: there is no such place, or none in this framework.
    """
    if frame not in get_args(Frame):
        raise UsageError(f"frame={frame!r} is no place of the frame: give one of {', '.join(get_args(Frame))}")
    if frame == "wire" and impossible:
        raise UsageError(f'frame="wire" is impossible here: {impossible}; leave it out')
    return frame == "wire"


def history_form(
    adapter_run: AdapterRun, outcome: Outcome, name: str, forms: Iterable[Any], as_content: Callable[[Any], Any]
) -> Any:
    """Return the first form of a result that the model would read as the outcome's text; the text if there is none.

    Args:
        adapter_run: the run.
        outcome: the call's outcome. Only one that ran and is ok has such a form.
        name: the tool's name in the history.
        forms: what the history could hold, the tool's own value first.
        as_content: returns a form as the history gives it back, also after a restart: a text, or a JSON value. What
            it raises rules a form out.
    """
    if outcome.status != "ok" or outcome.content:
        return outcome.text
    for form in forms:
        try:
            content = as_content(form)
        except Exception:  # noqa: BLE001, S112 - a value that the framework cannot keep
            continue
        if frame_result(adapter_run, name, outcome.call_id, content) == outcome.text:
            return form
    return outcome.text


def value_text(value: Any) -> str:
    """Return a value for a history of texts: a text as it is, any other value as compact JSON."""
    return value if isinstance(value, str) else dump_compact(value).decode()


def frame_result(adapter_run: AdapterRun, name: str, call_id: str, content: Any) -> str | None:
    """Return a result of the history as the model reads it; None if it stays as it is.

    A result of a tool without a contract stays, and so does a text that the guard itself wrote about a call that ended
    well. `trust` is `checked` only if the content fits the contract now: other code may have put it there.

    Args:
        adapter_run: the run.
        name: the tool's name in the history.
        call_id: id of the call.
        content: a text, or a JSON value.
    """
    plan = adapter_run.run.snapshot.find_plan(name)
    if isinstance(plan, Finding):
        return None
    cache: BoundedCache[str, tuple[Any, str, str | None]] = adapter_run.notes.setdefault(_CACHE, BoundedCache())
    known = cache.get(call_id) if isinstance(content, str) else None
    if known is not None and known[0] is plan and known[1] == content:
        return known[2]
    contract = plan.contract
    framed = None
    if not isinstance(content, str) or not _is_guard_text(content, contract.name, call_id):
        value, data = _read_content(contract, content)
        fits = isinstance(value, str) if contract.output is None else contract.output.is_valid(value)
        trust = plan.trust if contract.unchecked or fits else "unchecked"
        framed = result_text(value, tool=contract.name, call_id=call_id, trust=trust, canonical=data)
    if isinstance(content, str):
        cache.put(call_id, (plan, content, framed))
    return framed


def _is_guard_text(text: str, tool: str, call_id: str) -> bool:
    """Return whether the guard wrote a text. A tool's text that looks like one is framed in the history already."""
    return text.startswith(REPLAY_WORDS) or is_framed(text, tool=tool, call_id=call_id)


def _read_content(contract: Contract, content: Any) -> tuple[Any, bytes | None]:
    """Return the value of a content, and its compact JSON; a tool without a schema speaks text."""
    if not isinstance(content, str):
        return content, dump_compact(content)
    if contract.output is not None:
        try:
            return parse(content)
        except StrictError:
            pass
    return content, None
