"""Configuration: a file, a mapping or nothing becomes a `Policy`, as a whole or not at all.

`core/policy.py` declares the keys; `make reference` generates `config.schema.json` (for editors) from them.

In: a path, a mapping, a policy or nothing.
Out: a checked `Policy`.
Never: an unknown key ignored, or half a changed file in force.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args, get_origin

import msgspec

from pokayoke.core.contract.limits import limit_problems
from pokayoke.core.policy import WEBHOOK_URL, Policy, TracePolicy
from pokayoke.core.state.words import find_word_problems
from pokayoke.core.text.regex import compile_pattern
from pokayoke.errors import PolicyError
from pokayoke.runtime.config.yaml_reader import Document, DocumentError, read_document
from pokayoke.runtime.files.atomic_file import read_followed
from pokayoke.runtime.threads.forks import on_fork

SCHEMA_FILE: Final = Path(__file__).parents[2] / "config.schema.json"

KeyPath = tuple[str | int, ...]
Source = str | os.PathLike[str] | Mapping[str, Any] | Policy | None

# A file that changed less than this many seconds ago may still be half-written.
_QUIET: Final = 0.2
_END_MARKERS: Final = (
    (re.compile(rb"\n[ \t]*\Z"), "the line feed at the end"),
    (re.compile(rb"^\.\.\.\s*\Z", re.MULTILINE), "the end marker `...`"),
)
_LONGEST_VALUE: Final = 60
_TRACE_FILES: Final = ("path", "redact_key_path", "sample_path", "sample_key_path")


def load_policy(source: Source = None) -> Policy:
    """Return the policy that a source describes.

    Args:
        source: None for the safe default; the path of a YAML or JSON file; a mapping with the same keys; or a policy,
            which is checked in the same way. A relative path below `trace` is resolved against the folder of the file,
            or against the working directory for a mapping.

    Raises:
        PolicyError: the file cannot be read or parsed, a key is unknown or stands twice, a value has the wrong type or
            range, or two values contradict each other. The message names the file, the line, the key, the value and
            what was expected.
    """
    if source is None:
        return Policy()
    if isinstance(source, Policy):
        return _build_policy(Document(_policy_to_builtins(source), {}, "configuration"))
    if isinstance(source, Mapping):
        return _build_policy(Document(dict(source), {}, "configuration"))
    if not isinstance(cast("object", source), (str, os.PathLike)):
        raise PolicyError(f"config is the path of a file, a mapping, a Policy or None; not {source!r}")
    return _parse_policy(Path(source), _read_file(Path(source)))


def _policy_to_builtins(policy: Policy) -> Any:
    """Return a policy as a file would hold it: a policy built in code was not checked before."""
    try:
        return msgspec.to_builtins(policy)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"configuration: the policy holds what no file could say: {error}.") from None


def _read_file(path: Path, how: Callable[[Path], bytes] = Path.read_bytes) -> bytes:
    try:
        return how(path)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise PolicyError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def _parse_policy(path: Path, data: bytes) -> Policy:
    try:
        document = read_document(data, name=str(path))
    except DocumentError as error:
        raise PolicyError(str(error)) from None
    policy = _build_policy(document)
    placed = {
        name: str(path.absolute().parent / Path(given).expanduser())
        for name in _TRACE_FILES
        if (given := getattr(policy.trace, name)) is not None
    }
    return msgspec.structs.replace(policy, trace=msgspec.structs.replace(policy.trace, **placed)) if placed else policy


def _build_policy(document: Document) -> Policy:
    value: Any = document.value
    if not isinstance(value, dict):
        raise PolicyError(f"{document.location_of(())}: got {_clip_repr(value)}, expected keys such as `validation:`.")
    if unknown := list(_unknown_keys(document.value, Policy, (), document)):
        raise PolicyError("\n".join(unknown))
    try:
        policy = msgspec.convert(document.value, Policy)
    except msgspec.ValidationError as error:
        raise PolicyError(_type_problem(str(error), document)) from None
    _refuse_contradictions(policy, document)
    return policy


# -- unknown keys ----------------------------------------------------------------------------------


def _unknown_keys(value: Any, kind: Any, path: KeyPath, document: Document) -> Iterator[str]:
    """Yield all unknown keys, each with the nearest that exists."""
    struct = _struct_in(kind)
    if struct is None:
        return
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _unknown_keys(item, struct, (*path, index), document)
        return
    if not isinstance(value, dict):
        return
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for key, item in cast("Mapping[Any, Any]", value).items():
        here = (*path, key)
        if key in fields:
            yield from _unknown_keys(item, fields[key], here, document)
        else:
            yield (
                f"{document.location_of(here)}: unknown key `{dotted_path(here)}`. "
                f"{_suggest_key(str(key), fields, path)}"
            )


def _suggest_key(key: str, fields: dict[str, Any], path: KeyPath) -> str:
    import difflib  # noqa: PLC0415 - only for a key that is wrong

    near = difflib.get_close_matches(key.lower(), fields, n=1, cutoff=0.6)
    if near:
        return f"Did you mean `{dotted_path((*path, near[0]))}`?"
    elsewhere = [option for option in _option_paths(Policy, ()) if option[-1] == key]
    if elsewhere:
        return f"Did you mean {' or '.join(f'`{dotted_path(option)}`' for option in elsewhere)}?"
    return f"Keys here: {', '.join(fields)}."


def _option_paths(struct: type[msgspec.Struct], path: KeyPath) -> Iterator[KeyPath]:
    for field in msgspec.structs.fields(struct):
        yield (*path, field.encode_name)
        inner = _struct_in(field.type)
        if inner is not None:
            yield from _option_paths(inner, (*path, field.encode_name))


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the option structure of a field, alone or as the items of a list."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    if get_origin(kind) is tuple:
        return _struct_in(get_args(kind)[0])
    return None


# -- wrong values ----------------------------------------------------------------------------------

_STEP: Final = r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]"  # the last one is any key of a mapping


def _type_problem(message: str, document: Document) -> str:
    """Translate msgspec's message: place, value, and what was expected."""
    message, of_key, place = message.removesuffix("`").partition(" - at `key` in `$")
    if not of_key:
        message, _, place = message.partition(" - at `$")
    steps = [int(index) if index else name for name, index in compile_pattern(_STEP).findall(place)]
    path, kind, got = _resolve_steps(Policy, document.value, steps)
    if of_key:
        return f"{document.location_of(path)}: `{dotted_path(path)}` has a key that is no text."
    said = [one for one in (kind, *get_args(kind)) if get_origin(one) is Literal]
    choices = ", ".join(repr(choice) for one in said for choice in get_args(one))
    words = f"one of {choices}" if kind in said else f"a list, or {choices}"
    expected = words if choices else _expected_text(message)
    return f"{document.location_of(path)}: `{dotted_path(path)}` is {_clip_repr(got)}; expected {expected}."


def _expected_text(message: str) -> str:
    words = re.sub(r", got `[^`]*`$", "", message).removeprefix("Expected ").replace("`", "")
    return words.replace("array", "list").replace("object", "mapping").replace("str", "text")


def _resolve_steps(kind: Any, value: Any, steps: Iterable[str | int]) -> tuple[KeyPath, Any, Any]:
    """Return the path of the steps, the declared type there and the value; an empty step is the invalid key."""
    path: KeyPath = ()
    for step in steps:
        struct, inner = _struct_in(kind), get_args(kind)
        key = step if step != "" else next(key for key, item in value.items() if not _is_convertible(item, inner[1]))
        if isinstance(step, int):
            kind = inner[0]
        elif struct is not None:
            kind = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}.get(step)
        else:
            kind = inner[1]
        path, value = (*path, key), value[key]
    return path, kind, value


def _is_convertible(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _clip_repr(value: Any) -> str:
    text = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def dotted_path(path: KeyPath) -> str:
    """Return a path as messages write it: `limits[0].tool`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".") or "the whole"


# -- contradictions --------------------------------------------------------------------------------


def _refuse_contradictions(policy: Policy, document: Document) -> None:
    from pokayoke.core.redaction.redactor import Redactor  # noqa: PLC0415 - with its patterns, 8 ms of import

    found = [
        f"{document.location_of(path)}: `{dotted_path(path)}` {text}" for path, text in _find_contradictions(policy)
    ]
    try:
        Redactor(policy.trace.redact_fields, policy.trace.redact_patterns)
    except PolicyError as error:
        found.append(f"{document.location_of(('trace', 'redact_patterns'))}: {error}")
    if found:
        raise PolicyError("\n".join(found))


def _find_contradictions(policy: Policy) -> Iterator[tuple[KeyPath, str]]:
    for index, limit in enumerate(policy.limits):
        yield from ((("limits", index), problem) for problem in limit_problems(limit))
    both = sorted(set(policy.access.allow) & set(policy.access.deny))
    if both:
        yield ("access", "deny"), f"also names what `access.allow` names: {', '.join(both)}. Keep one."
    if policy.retry.initial > policy.retry.cap:
        yield ("retry", "initial"), f"({policy.retry.initial}) is above `retry.cap` ({policy.retry.cap})."
    if policy.context.preview_chars > policy.context.offload_chars:
        yield ("context", "preview_chars"), "is above `context.offload_chars`: the preview would be the whole."
    media = policy.validation.tool_output.require_content_type
    if not re.fullmatch(r"[\w.+-]+/[\w.+*-]+", media):
        yield ("validation", "tool_output", "require_content_type"), "is no media type such as application/json."
    webhook = policy.approvals.webhook.url
    if webhook is not None and not WEBHOOK_URL.fullmatch(webhook):
        yield ("approvals", "webhook", "url"), "is neither https:// nor http:// to this machine, without a password."
    yield from ((("words", key), f"{problem}.") for key, problem in find_word_problems(policy.words))
    yield from _trace_contradictions(policy.trace)


def _trace_contradictions(trace: TracePolicy) -> Iterator[tuple[KeyPath, str]]:
    for name in _TRACE_FILES:
        given = getattr(trace, name)
        if given == "":
            yield ("trace", name), "is empty. Leave it out if no file shall be written."
        elif given is not None and _is_no_path(given):
            yield (
                ("trace", name),
                "is not a valid path: it holds a character that no path can, or the home of an unknown user.",
            )
    if trace.sample_path is not None and trace.sample_path == trace.path:
        yield ("trace", "sample_path"), "is also `trace.path`. The sample is a file of its own."
    if trace.sample_key_path is not None and trace.sample_path is None:
        yield ("trace", "sample_key_path"), "is of no use without `trace.sample_path`."
    if trace.sample_share != TracePolicy().sample_share and trace.sample_path is None:
        yield ("trace", "sample_share"), "is of no use without `trace.sample_path`."


def _is_no_path(text: str) -> bool:
    try:
        return b"\0" in os.fsencode(Path(text).expanduser())
    except (RuntimeError, UnicodeEncodeError):
        return True


# -- reload ----------------------------------------------------------------------------------------


class PolicyFile:
    """A configuration file that is watched while the program runs.

    A changed file is taken over as a whole or not at all: if it cannot be read, parsed or validated, the old policy
    stays in force and `take_problem` says why. A change younger than 0.2 s waits, because it may be half-written. A
    truncated file is not always recognisable, so a file must keep its ending: a last line feed, and YAML's end
    marker `...`. With that marker, or when it is written to another name and renamed, half of it is never taken for
    the whole.

    Args:
        path: of the file.

    Raises:
        PolicyError: the file is invalid now; see `load_policy`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        on_fork(self, PolicyFile.reset_after_fork)
        self._problem: str | None = None
        self._waiting: tuple[Any, float] = (None, 0.0)
        self._known = self._file_signature()
        self._data = _read_file(self.path)
        self._policy = _parse_policy(self.path, self._data)

    def current_policy(self) -> Policy:
        """Return the policy in force, after a check of the file (one system call if nothing changed).

        It is the same object until the content changes.
        """
        found = self._file_signature()
        if found != self._known and self._lock.acquire(blocking=False):
            try:
                self._take_over(found)
            finally:
                self._lock.release()
        return self._policy

    def take_problem(self) -> str | None:
        """Return, once, why the latest change was not taken over; None if there is nothing to report."""
        problem, self._problem = self._problem, None
        return problem

    def reload(self) -> Policy:
        """Take over the file in its present state, without waiting for it to settle.

        Raises:
            PolicyError: it is invalid; the old policy stays in force.
        """
        with self._lock:
            self._known = self._file_signature()
            self._adopt_content(_read_file(self.path, read_followed))
            return self._policy

    def reset_after_fork(self) -> None:
        """Start anew in a child process, whose parent may have held the lock."""
        self._lock = threading.Lock()

    def _file_signature(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except (OSError, ValueError):
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def _take_over(self, found: tuple[int, ...] | None) -> None:
        if not self._is_settled(found):
            return
        try:
            data = _read_file(self.path, read_followed)
            if self._file_signature() != found:
                return  # it changed while it was read: check again next time
            self._known = found
            self._adopt_content(data)
        except PolicyError as error:
            self._known = found
            self._problem = str(error)

    def _is_settled(self, found: tuple[int, ...] | None) -> bool:
        """True if the file has been unchanged for a while, by its own times or by ours."""
        if found is not None and time.time() - max(found[2:]) / 1e9 >= _QUIET:
            return True
        now = time.monotonic()
        if self._waiting[0] != found:
            self._waiting = (found, now)
        return now - self._waiting[1] >= _QUIET

    def _adopt_content(self, data: bytes) -> None:
        if data != self._data:
            for end, name in _END_MARKERS:
                if end.search(self._data) and not end.search(data):
                    raise PolicyError(f"{self.path}: {name} is gone, as if the file were half-written.")
            self._policy = _parse_policy(self.path, data)
            self._data = data
