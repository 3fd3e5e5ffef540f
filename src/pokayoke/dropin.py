"""Five independent guardrails that need no `Guard`.

In: argument text, a tool name, a result, a path, a history.
Out: the checked value, or an exception that says what is wrong.
Never: guess. The names and signatures are those of common helpers, which do:

- `safe_parse_args` refuses ambiguous text instead of completing it.
- `validate_tool_name` is exact.
- `safe_serialize` refuses a value without a JSON form instead of passing its `str()` to the model.
- `safe_path` refuses every form that leaves the root on any system, links included.
- `check_context` never separates a tool call from its result.
"""

from __future__ import annotations

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
    "NotSerialisable",
    "check_context",
    "safe_parse_args",
    "safe_path",
    "safe_serialize",
    "validate_tool_name",
]

_log = logging.getLogger(__name__)


class ArgumentsRefused(PokayokeError, ValueError):  # noqa: N818 - the name says what happened
    """Argument text cannot be read without guessing, or does not fit its schema.

    Attributes:
        findings: the problems; the message joins their hints, ready for the model.
    """

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        """Build the message from the findings' hints."""
        super().__init__(neutralise(" ".join(finding.hint or finding.message for finding in findings)))
        self.findings = findings


class NotSerialisable(PokayokeError, TypeError):  # noqa: N818 - the name says what happened
    """A tool result has no JSON form.

    Attributes:
        finding: the problem and its place.
    """

    def __init__(self, finding: Finding) -> None:
        """Keep the finding; its message is the exception's."""
        super().__init__(finding.message)
        self.finding = finding


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
        ArgumentsRefused: the text is ambiguous, cut off, or does not fit the schema.
    """
    compiled = schema if schema is None or isinstance(schema, Schema) else compile_schema(schema)
    reading = read_arguments(raw, schema=compiled)
    value = reading.value
    if value is None or reading.grade not in {"exact", "lossless"}:
        raise ArgumentsRefused((reading_finding(reading, effect="write", tool=None),))
    if compiled is not None and (findings := check_value(value, compiled)):
        raise ArgumentsRefused(findings)
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
    return isinstance(cast("object", name), str) and name in valid


def safe_serialize(result: Any) -> str:
    """Return a tool result as JSON text.

    Args:
        result: the tool's result; dataclasses, dates, decimals and the like are written exactly.

    Raises:
        NotSerialisable: the result holds a function, a generator, NaN, a cycle or the like.
    """
    done = serialise(result)
    if isinstance(done, Finding):
        raise NotSerialisable(done)
    return done.data.decode()


def safe_path(path: str | Path, root: str | Path) -> Path:
    """Resolve a path inside a workspace.

    The result is a plain `Path` and true only at this moment. Where others may change the workspace, use
    `pokayoke.open_beneath(root, relative, mode)` instead, which checks and opens in one step.

    Args:
        path: the path as the model sent it.
        root: the workspace, an existing folder.

    Returns:
        the absolute path, with links resolved.

    Raises:
        PathEscape: (a ValueError) the path is malformed, leaves the root, or is no ordinary file.
        ConfigurationError: the root does not exist.
    """
    confined = confine(path, str(root))
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
