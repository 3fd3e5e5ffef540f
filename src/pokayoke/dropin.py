"""Five independent guardrails that need no `Guard`.

In: argument text, a tool name, a result, a path, a history.
Out: the checked value, or what callers of such helpers expect of a bad one; a log line for each repair and refusal.
Never: guess. The names, signatures and exceptions are those of common helpers, which do:

- `safe_parse_args` refuses ambiguous text, as a `json.JSONDecodeError`, instead of completing it.
- `validate_tool_name` is exact.
- `safe_serialize` names the fault of a value without a JSON form instead of passing its `str()` to the model.
- `safe_path` refuses every form that leaves the root on any system, links included.
- `check_context` never separates a tool call from its result.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

from pokayoke.core.call import Finding
from pokayoke.core.check.findings import check_value
from pokayoke.core.context import compacted
from pokayoke.core.correct.whole_numbers import restore_integers
from pokayoke.core.intake import read_arguments, reading_finding
from pokayoke.core.json.serialise import serialise
from pokayoke.core.schema.schema import Schema, compile_schema
from pokayoke.core.text.neutralise import neutralise
from pokayoke.errors import PathEscape, PokayokeError, UsageError
from pokayoke.runtime.files.workspace import confine

__all__ = [
    "ArgumentsRefused",
    "check_context",
    "safe_parse_args",
    "safe_path",
    "safe_serialize",
    "validate_tool_name",
]

_log = logging.getLogger(__name__)


class ArgumentsRefused(PokayokeError, json.JSONDecodeError):  # noqa: N818 - the name says what happened
    """Argument text cannot be read without guessing, or does not fit its schema.

    Handlers of `json.JSONDecodeError` catch it, and find its `msg`, `doc`, `pos`, `lineno` and `colno`.

    Attributes:
        findings: the problems; the message joins their hints, ready for the model.
    """

    def __init__(self, findings: tuple[Finding, ...], doc: str = "", pos: int = 0) -> None:
        """Build the message from the findings' hints.

        Args:
            findings: the problems.
            doc: the text that was refused.
            pos: where reading it ended, in characters.
        """
        said = neutralise(" ".join(finding.hint or finding.message for finding in findings))
        super().__init__(said, doc, pos)
        self.args = (said,)  # without the place, which is nothing to a model
        self.findings = findings

    def __reduce__(self) -> tuple[type[ArgumentsRefused], tuple[tuple[Finding, ...], str, int]]:
        """Pickle with the findings."""
        return type(self), (self.findings, self.doc, self.pos)


def safe_parse_args(
    raw: str | bytes | dict[str, Any], schema: Schema | dict[str, Any] | bool | None = None
) -> dict[str, Any]:
    """Read the argument text of a tool call.

    Args:
        raw: the text as the provider sent it, or the dict a client has parsed from it.
        schema: JSON Schema of the arguments; a `Schema` from `compile_schema` saves compiling it each time.

    Returns:
        the arguments. Only provable repairs are made (a trailing comma, single quotes, a code fence); with a
        schema the arguments also fit it, and 2.0 is 2 where it wants an integer.

    Raises:
        ArgumentsRefused: (a json.JSONDecodeError) the text is ambiguous, cut off, or does not fit the schema.
    """
    doc = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw if isinstance(raw, str) else ""
    compiled = schema if schema is None or isinstance(schema, Schema) else compile_schema(schema)
    reading = read_arguments(raw, schema=compiled)
    value = reading.value
    if value is None or reading.grade not in {"exact", "lossless"}:
        finding = reading_finding(reading, effect="write", tool=None)
        raise ArgumentsRefused((finding,), doc, min(reading.position or 0, len(doc)))
    if compiled is not None and (findings := check_value(value, compiled)):
        raise ArgumentsRefused(findings, doc)
    if reading.repairs:
        _log.info("arguments repaired: %s", ", ".join(reading.repairs))
    return value if compiled is None else restore_integers(value, compiled)[0]


def validate_tool_name(name: str, valid: Collection[str]) -> bool:
    """Return whether a tool has exactly this name.

    Args:
        name: the name the model wrote.
        valid: the names of the existing tools.

    Raises:
        UsageError: `valid` is a text, any part of which would pass.
    """
    if isinstance(valid, str):
        raise UsageError(f"valid must be a set or list of tool names, got the text {valid!r}")
    is_known = isinstance(cast("object", name), str) and name in valid
    if not is_known:
        _log.warning("there is no tool %.100a", name)
    return is_known


def safe_serialize(result: Any) -> str:
    """Return a tool result as JSON text.

    Args:
        result: the tool's result; dataclasses, dates, decimals and the like are written exactly.

    Returns:
        the text. For a result with a function, a generator, NaN, a cycle or the like it is `{"error": ...}` with what
        has no JSON form, and where; a warning is logged.
    """
    done = serialise(result)
    if isinstance(done, Finding):
        _log.warning("%s at %s: %s", done.code, done.at or "/", done.message)
        return json.dumps({"error": neutralise(f"The result has no JSON form: {done.message}")})
    return done.data.decode()


def safe_path(path: str | Path, root: str | Path | Sequence[str | Path]) -> Path:
    """Resolve a path inside a workspace.

    The result is a plain `Path` and true only at this moment. Where others may change the workspace, use
    `pokayoke.open_beneath(root, relative, mode)` instead, which checks and opens in one step.

    Args:
        path: the path as the model sent it.
        root: the workspace, an existing folder; or several. A relative path belongs to the one in which it exists,
            to the first if it exists in none.

    Returns:
        the absolute path, with links resolved.

    Raises:
        PathEscape: (a ValueError) the path is malformed, leaves the root, is no ordinary file, or exists in several
            roots.
        ConfigurationError: the root does not exist.
    """
    confined = confine(path, str(root) if isinstance(root, (str, Path)) else tuple(map(str, root)))
    resolved = Path(confined).resolve()
    if not resolved.is_relative_to(confined.root):
        raise PathEscape(f"path {confined.relative!a} was led out of the workspace while it was resolved")
    return resolved


def check_context(messages: Sequence[Any], max_tokens: int, threshold: float = 0.7) -> list[Any]:
    """Shorten a history that exceeds a share of its window.

    Args:
        messages: the history; not changed.
        max_tokens: size of the window, in tokens.
        threshold: share of the window above which the history is shortened.

    Returns:
        a new list with the system prompt, the first user message, a note about the left-out messages, and the
        last ten messages. If even these exceed the window, a warning is logged.

    Raises:
        UsageError: an argument is out of range.
    """
    result = compacted(messages, max_tokens, threshold=threshold)
    if result.shortened:
        _log.info("context shortened: %d to %d tokens (estimated)", result.before, result.after)
    if result.finding is not None:
        _log.warning("%s: %s", result.finding.code, result.finding.message)
    return result.messages
