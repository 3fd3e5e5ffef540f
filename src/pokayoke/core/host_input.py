"""Checks of values that the host program passes in.

In: an argument of a public function, of any type.
Out: the value with its declared type, or a UsageError (from `check_hooks` a ConfigurationError) that says what to pass.
Never: an AttributeError or a stored value that no store can keep, further on.
"""

from __future__ import annotations

import hashlib
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast, get_args

from pokayoke.core.call import StopReason, ToolCall
from pokayoke.core.json.values import read_field
from pokayoke.errors import ConfigurationError, UsageError

_MAX_ID_CHARS = 500  # PostgreSQL indexes up to 2,704 bytes
# Characters that databases do not take, and the one that separates a tenant from an id.
_FORBIDDEN_CHARACTERS = re.compile("[\x00\x1f\ud800-\udfff]")


def expect(given: object, kinds: type | tuple[type, ...], what: str, advice: str = "") -> Any:
    """Return a value of an expected type.

    Args:
        given: the value.
        kinds: its type, or several.
        what: the expectation, such as `run_id is a text`.
        advice: what to pass instead, with the separator in front.

    Raises:
        UsageError: the value has another type; the text is `<what>, got <type><advice>`.
    """
    if isinstance(given, kinds):
        return given
    raise UsageError(f"{what}, got {type(given).__name__}{advice}")


def as_call(given: object) -> ToolCall:
    """Return a tool call.

    Raises:
        UsageError: the value is no `ToolCall`.
    """
    advice = "; calls(reply, run) of the adapters and read_calls(text) make them out of what a model wrote"
    return cast("ToolCall", expect(given, ToolCall, "a call is a ToolCall(id, name, arguments)", advice))


def as_calls(calls: object) -> tuple[ToolCall, ...]:
    """Return the calls of one message.

    Raises:
        UsageError: the value is no list, or one of its items is no `ToolCall`.
    """
    if isinstance(calls, ToolCall) or not isinstance(calls, Iterable):
        raise UsageError(f"call_batch takes the list of a message's calls, got {type(calls).__name__}; see call()")
    return tuple(map(as_call, cast("Iterable[object]", calls)))


def as_history(messages: object) -> list[Any]:
    """Return the messages of a history as a list; its items are not checked.

    Raises:
        UsageError: the value is a text, a single message or no list.
    """
    what = 'a history is a list of messages such as [{"role": "user", "content": "..."}]'
    if isinstance(messages, (str, bytes, Mapping)):
        raise UsageError(f"{what}, got {type(cast('object', messages)).__name__}")
    return list(expect(messages, Iterable, what))


def as_prompt(text: Any) -> Any:
    """Return what a user said: a text, or the blocks of one message.

    Raises:
        UsageError: the value is anything else, or a whole history.
    """
    blocks = expect(text, (str, list, tuple), "what the user said is a text")
    if not isinstance(blocks, str) and any(read_field(block, "role") is not None for block in blocks):
        raise UsageError("what the user said is a text, got messages: a loop takes a history as messages=")
    return blocks


def as_answer(text: object) -> str | None:
    """Return a model's last text.

    Raises:
        UsageError: the value is neither a text nor None.
    """
    advice = ": take the text of its message"
    return cast("str | None", expect(text, (str, type(None)), "the model's answer is a text or None", advice))


def as_function(given: Any, what: str) -> Any:
    """Return a callable.

    Args:
        given: the value.
        what: the name of its parameter.

    Raises:
        UsageError: the value cannot be called.
    """
    if callable(given):
        return given
    raise UsageError(f"{what} is a function, or None; not {given!a:.40}")


def as_whole_number(given: object, what: str) -> int:
    """Return a whole number.

    Args:
        given: the value.
        what: what it counts.

    Raises:
        UsageError: the value is no int, or a bool.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    raise UsageError(f"{what} is a whole number, got {given!a:.40}")


def as_token_count(given: Any) -> int:
    """Return a number of tokens that a host reports.

    Raises:
        UsageError: the value is no whole number.
    """
    whole: Any = int(given) if isinstance(given, float) and given.is_integer() else given
    try:
        return operator.index(whole)
    except TypeError:
        raise UsageError(f"a number of tokens is a whole number, got {given!a:.40}") from None


def as_stop_reason(given: StopReason) -> StopReason:
    """Return a reason to stop a run.

    Raises:
        UsageError: the value is none of `StopReason`.
    """
    if given not in get_args(StopReason):
        raise UsageError(f"{given!a:.40} is no stop reason: take one of {', '.join(get_args(StopReason))}")
    return given


def as_text_id(value: object, what: str, *, empty: bool = False) -> str:
    """Return an id that every store can keep.

    Args:
        value: the id.
        what: the name of its argument.
        empty: True allows the empty text. As a scope it would be shared by all.

    Raises:
        UsageError: it is no text, empty, longer than 500 characters, or holds NUL, U+001F or a lone surrogate.
    """
    text = str.__str__(expect(value, str, f"{what} is a text", ": pass str() of it"))
    if not text and not empty:
        raise UsageError(f"{what} is empty, so it would be the same for all: pass None if there is none")
    if len(text) > _MAX_ID_CHARS:
        raise UsageError(f"{what} has at most {_MAX_ID_CHARS} characters, got {len(text):,}: pass a hash of it")
    if _FORBIDDEN_CHARACTERS.search(text):
        raise UsageError(f"{what} {text[:40]!a} holds NUL, U+001F or a lone surrogate: pass another id")
    return text


def as_storable_id(given: object) -> str:
    """Return an id of a framework in a form that every store can keep; an id that none can keep becomes its hash.

    The host cannot change such an id, so it is no error.
    """
    ident = str(given)
    if len(ident) <= _MAX_ID_CHARS and not _FORBIDDEN_CHARACTERS.search(ident):
        return ident
    return f"sha256:{hashlib.sha256(ident.encode(errors='surrogatepass')).hexdigest()}"


def check_hooks(arguments: int = 1, /, **hooks: object) -> None:
    """Refuse hooks that cannot be called later.

    Args:
        arguments: the number of arguments they are called with.
        hooks: the hooks by the names of their parameters; None is no hook.

    Raises:
        ConfigurationError: a hook is no function, or takes another number of arguments.
    """
    for name, hook in hooks.items():
        if hook is None:
            continue
        if not callable(hook):
            raise ConfigurationError(f"{name} is a function, or None; not {hook!r}")
        if not _may_take(hook, arguments):
            number = "one argument" if arguments == 1 else f"{arguments} arguments"
            raise ConfigurationError(f"{name} is called with {number}, which {hook!r} does not take")


def _may_take(function: Callable[..., Any], number: int) -> bool:
    """Return whether a function may take this many arguments; True if its signature is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return True
    try:
        signature.bind(*(None,) * number)
    except TypeError:
        return False
    return True
