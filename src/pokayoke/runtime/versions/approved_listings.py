"""The file of approved listings, and the one beside it that says what servers list otherwise by now.

The file is a saved `tools/list` answer, to which approvals add their history. Gateways read it, and note in
`FILE.waiting` what is listed otherwise, exactly as its server sent it.

In: both files, and a person's approval.
Out: approved entries, entries that wait, a new file.
Never: an approval of an entry that its person has not seen, or a damaged file that is overwritten.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_object
from pokayoke.core.versions.listing_changes import find_listed_tools, promises_hash
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.files.atomic_file import atomic_write, read_followed
from pokayoke.runtime.versions.lock_file import file_signature
from pokayoke.system import hold_folder

FORMAT: Final = 1
"""Format of both files; a later one is refused."""
_APPROVED: Final = "approved listings"
_WAITING: Final = "waiting listings"
_MOST_BYTES: Final = 32_000_000
_MOST_WAITING_BYTES: Final = 16_000_000
_MOST_ENTRY_BYTES: Final = 1_000_000
_MOST_WAITING: Final = 1_000
_LONGEST_WORDS: Final = 2_000
_SAVE: Final = "pokayoke learn --mcp --save-listing {} -- COMMAND"


class ListingApproval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One approval.

    Args:
        at: time in UTC, as `2026-11-21T08:00:00Z`.
        by: the person.
        reason: the person's reason.
        tool: name of the tool.
        before: hash of the entry that was approved until then; "" if none was.
        after: hash of the entry that is approved since.
    """

    at: str
    by: str
    reason: str
    tool: str
    before: str
    after: str


class ApprovedListings(msgspec.Struct, frozen=True):
    """The content of the file.

    Args:
        tools: the approved entries by the name of their tool.
        history: who approved them, the first one first; a file that was only saved has none.
    """

    tools: dict[str, dict[str, Any]]
    history: tuple[ListingApproval, ...] = ()


class WaitingListing(msgspec.Struct, frozen=True):
    """How a tool is listed by now.

    Args:
        tool: its name.
        since: when a gateway saw this entry first, in UTC.
        entry: as its server sent it.
        approved: the entry that is approved; None for a tool that is new.
        hash: of what an approval of the entry covers.
    """

    tool: str
    since: str
    entry: dict[str, Any]
    approved: dict[str, Any] | None
    hash: str


class _Note(msgspec.Struct, frozen=True):
    since: str
    entry: dict[str, Any]
    hash: str


def read_approved(path: Path) -> ApprovedListings:
    """Read the file: a saved `tools/list` answer, with or without a history.

    Raises:
        ConfigurationError: it is missing or damaged, or holds no tool; the message says what to do.
    """
    value = _read_document(path, f"Save what is listed with: {_SAVE.format(path)}")
    history: Any = []
    if is_object(value) and "pokayoke" in value:
        _require_format(value, _APPROVED, path)
        history = value.get("history", [])
    entries = find_listed_tools(value)
    if not entries or not all(isinstance(one.get("name"), str) for one in entries):
        raise ConfigurationError(f"{path}: holds no tools, or one without a name. Expected {{'tools': [...]}}")
    try:
        done = msgspec.convert(history, tuple[ListingApproval, ...])
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path}: its history is damaged: {error}. {_describe_repair(path)}") from None
    return ApprovedListings({one["name"]: one for one in entries}, done)


def read_waiting(path: Path) -> list[WaitingListing]:
    """Return what gateways have seen listed otherwise than the file says, by name; empty if nothing was.

    Raises:
        ConfigurationError: the file or the one beside it is damaged.
    """
    approved = read_approved(path).tools
    return [
        WaitingListing(tool, one.since, one.entry, approved.get(tool), one.hash)
        for tool, one in sorted(_read_notes(_beside(path)).items())
        if tool not in approved or promises_hash(approved[tool]) != one.hash
    ]


def approve_listing(path: Path, tool: str, *, seen: str, by: str, reason: str, now: float) -> ListingApproval:
    """Approve how a tool is listed by now; gateways that use the file take it over.

    Args:
        path: the file.
        tool: name of the tool.
        seen: the whole hash of the entry that the person has looked at.
        by: the person.
        reason: why.
        now: wall-clock second.

    Returns:
        What the history keeps of it.

    Raises:
        ConfigurationError: nothing waits for the tool, it is listed otherwise again since it was looked at, no
            contract can be made of its entry, a name or a reason is missing, or a file is damaged.
    """
    _require_words(by, reason)
    with _hold_folder(path):
        approved = read_approved(path)
        one = _find_waiting(path, tool)
        if one.hash != seen.strip():
            raise ConfigurationError(
                f"{tool} is listed otherwise than what was looked at: it has the hash {one.hash} by now. "
                "Look at it once more"
            )
        try:
            Contract.from_mcp(one.entry)
        except ContractError as error:
            raise ConfigurationError(f"no contract can be made of what is listed as {tool}: {error}") from None
        before = promises_hash(one.approved) if one.approved is not None else ""
        done = ListingApproval(_format_second(now), by.strip(), reason.strip(), tool, before, one.hash)
        _write_approved(path, {**approved.tools, tool: one.entry}, (*approved.history, done))
        left = {name: note for name, note in _read_notes(_beside(path)).items() if name != tool}
        _write_notes(_beside(path), left)
    return done


class ApprovedFile:
    """The file as a gateway uses it: followed while the gateway runs, and never written by it.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # the program may change its folder later
        self._notes_path = _beside(self.path)
        self._known: tuple[int, ...] | None = ()
        self._notes_known: tuple[int, ...] | None = ()
        self._noted: dict[str, str] = {}

    def has_changed(self) -> bool:
        """Check the file (one system call); True if it changed since it was last read."""
        return file_signature(self.path) != self._known

    def read_entries(self) -> dict[str, dict[str, Any]]:
        """Return the approved entries by name; the file counts as read until it changes again.

        Raises:
            ConfigurationError: it cannot be used.
        """
        self._known = file_signature(self.path)
        return read_approved(self.path).tools

    def note_listed(self, listed: Mapping[str, dict[str, Any] | None], now: float) -> None:
        """Note which tools wait for an approval. Nothing is written if that is noted already.

        Args:
            listed: tools by name: the entry that waits, or None for one that is listed as approved.
            now: wall-clock second.

        Raises:
            ConfigurationError: what was noted is damaged, and stays as it is; or it cannot be written.
        """
        hashes = {tool: None if entry is None else promises_hash(entry) for tool, entry in listed.items()}
        if file_signature(self._notes_path) != self._notes_known:
            self._noted = self._read_hashes()
        if all(self._noted.get(tool) == found for tool, found in hashes.items()):
            return
        with _hold_folder(self.path):
            notes = _read_notes(self._notes_path)
            for tool, entry in listed.items():
                known = notes.pop(tool, None)
                if entry is not None:
                    same = known is not None and known.hash == hashes[tool]
                    notes[tool] = known if known and same else _Note(_format_second(now), entry, hashes[tool] or "")
            approved = read_approved(self.path).tools
            _write_notes(self._notes_path, _take_what_fits(notes, approved))
            self._read_hashes()
        self._noted |= {tool: found for tool, found in hashes.items() if found is not None}  # also what did not fit

    def _read_hashes(self) -> dict[str, str]:
        self._notes_known = file_signature(self._notes_path)
        self._noted = {tool: one.hash for tool, one in _read_notes(self._notes_path).items()}
        return self._noted


# -- parts -----------------------------------------------------------------------------------------


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.waiting")


@contextmanager
def _hold_folder(path: Path) -> Generator[None]:
    """Keep other processes from changing the files meanwhile."""
    with ExitStack() as held:
        try:
            held.enter_context(hold_folder(path.absolute().parent))
        except OSError as error:
            raise ConfigurationError(f"{path}: its folder cannot be used: {error.strerror}") from None
        yield


def _find_waiting(path: Path, tool: str) -> WaitingListing:
    waiting = {one.tool: one for one in read_waiting(path)}
    if tool not in waiting:
        known = ", ".join(waiting) or "none"
        raise ConfigurationError(
            f"nothing waits for {tool!r} beside {path} (waiting: {known}). A gateway that runs with this file as "
            f"--approved notes what its servers list otherwise, up to {_MOST_ENTRY_BYTES:,} bytes of a tool"
        )
    return waiting[tool]


def _require_words(by: str, reason: str) -> None:
    if not by.strip() or not reason.strip():
        raise ConfigurationError("name and reason are kept in the history: say who and why (--by, --reason)")
    if len(by) + len(reason) > _LONGEST_WORDS:
        raise ConfigurationError(f"name and reason are longer than {_LONGEST_WORDS:,} characters together")
    try:
        f"{by}{reason}".encode()
    except UnicodeEncodeError:
        raise ConfigurationError("name or reason is no Unicode text, and the file holds nothing else") from None


def _describe_repair(path: Path) -> str:
    if path.name.endswith(".waiting"):
        return "Delete it: the gateway notes anew what is listed otherwise"
    return f"Put back a copy, or save what is listed now after looking at it: {_SAVE.format(f'{path} --force')}"


def _read_document(path: Path, missing: str) -> Any:
    try:
        data = read_followed(path)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file. {missing}") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return parse(data, max_depth=200, max_bytes=_MOST_BYTES)[0]
    except StrictError as error:
        raise ConfigurationError(f"{path}: damaged, not JSON: {error}. {_describe_repair(path)}") from None


def _require_format(value: dict[str, Any], mark: str, path: Path) -> None:
    if value.get("pokayoke") != mark:
        raise ConfigurationError(f'{path}: not the file that was expected; one begins with "pokayoke": "{mark}"')
    if isinstance(value.get("format"), int) and value["format"] > FORMAT:
        raise ConfigurationError(f"{path}: of format {value['format']}; this version reads {FORMAT}. Upgrade pokayoke")


def _read_notes(path: Path) -> dict[str, _Note]:
    if not path.exists():
        return {}
    value = _read_document(path, "")
    found = value if is_object(value) else {}
    _require_format(found, _WAITING, path)
    waiting = found.get("waiting")
    notes: dict[str, _Note] = {}
    for tool, one in waiting.items() if is_object(waiting) else ():
        entry = one.get("entry") if is_object(one) else None
        if not is_object(entry) or entry.get("name") != tool:
            raise ConfigurationError(f"{path}: damaged at {tool!r}. {_describe_repair(path)}")
        notes[tool] = _Note(str(one.get("since", "")), entry, promises_hash(entry))
    return notes


def _take_what_fits(notes: Mapping[str, _Note], approved: Mapping[str, Any]) -> dict[str, _Note]:
    """Return the notes that the file takes: known tools go before new ones, of which a server may list any number."""
    kept: dict[str, _Note] = {}
    left = _MOST_WAITING_BYTES
    for tool, one in sorted(notes.items(), key=lambda item: item[0] not in approved):
        size = len(dump_compact(one.entry))
        if size <= min(left, _MOST_ENTRY_BYTES) and len(kept) < _MOST_WAITING:
            kept[tool], left = one, left - size
    return kept


def _write_approved(path: Path, tools: Mapping[str, Any], history: Iterable[ListingApproval]) -> None:
    parts = {
        "tools": ("[", "]", [dump_compact(one).decode() for one in tools.values()]),
        "history": ("[", "]", [msgspec.json.encode(one).decode() for one in history]),
    }
    _write_document(path, _APPROVED, parts)


def _write_notes(path: Path, notes: Mapping[str, _Note]) -> None:
    lines = [
        f"{dump_compact(tool).decode()}: {dump_compact({'since': one.since, 'entry': one.entry}).decode()}"
        for tool, one in sorted(notes.items())
    ]
    _write_document(path, _WAITING, {"waiting": ("{", "}", lines)})


def _write_document(path: Path, mark: str, parts: Mapping[str, tuple[str, str, list[str]]]) -> None:
    """Write a file with one line for each thing, so that a diff shows what was done."""
    members = [f'  "pokayoke": "{mark}"', f'  "format": {FORMAT}']
    for key, (begin, end, lines) in parts.items():
        inner = ",\n".join(f"    {line}" for line in lines)
        members.append(f'  "{key}": {begin}\n{inner}\n  {end}' if lines else f'  "{key}": {begin}{end}')
    text = ("{\n" + ",\n".join(members) + "\n}\n").encode()
    if len(text) > _MOST_BYTES:
        raise ConfigurationError(f"{path} would be longer than {_MOST_BYTES:,} bytes: move its history to another file")
    try:
        with atomic_write(path) as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None


def _format_second(second: float) -> str:
    return dt.datetime.fromtimestamp(second, dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
