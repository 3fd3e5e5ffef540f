"""The tools that servers list: their contracts, and what is done when a server changes one.

In: entries of `tools/list` answers.
Out: contracts, the entries that clients are shown, and why a tool may not be called.
Never: a tool that clients are shown otherwise than they are held to, or a hint that nobody trusts.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pokayoke.core.contract.contract import Contract
from pokayoke.core.json.values import is_object
from pokayoke.core.text.clip import clip
from pokayoke.core.versions.contract_diff import contract_changes
from pokayoke.core.versions.listing_changes import list_changes, promises_of
from pokayoke.errors import ConfigurationError, ContractError
from pokayoke.runtime.guard.guard import Guard

if TYPE_CHECKING:
    from pokayoke.runtime.versions.approved_listings import ApprovedFile

Drift = Literal["refuse", "serve"]

_MOST_TOOLS: Final = 10_000
_MOST_CHANGES: Final = 50
_MOST_CHARACTERS: Final = 1_000
_CHANGED: Final = (
    "{} was not run: its server describes it otherwise by now than when it was approved ({}). An operator has to look "
    "at the change. Try another way, or tell the user."
)
_NOT_APPROVED: Final = "{} was not run: nobody has approved this tool yet. Try another way, or tell the user."
_UNUSABLE: Final = "{} was not run: no contract can be made of what its server lists. {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingSettings:
    """How contracts are made from listings.

    Attributes:
        trust_hints: True to believe `readOnlyHint` and the other hints of servers; otherwise every tool is a write.
        fields: fields of contracts by tool, which win over what its server says, one by one.
        approved: the file of approved entries, followed while the gateway runs; None approves each tool as it is
            first listed.
        drift: what becomes of a tool that is listed otherwise than approved: `refuse` hides it and refuses its calls,
            `serve` goes on with the approved entry.
        deadline: seconds for a call of a tool that has none of its own.
    """

    trust_hints: bool = False
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    approved: ApprovedFile | None = None
    drift: Drift = "refuse"
    deadline: float = 300.0


class ToolListing:
    """The tools of all servers behind one guard; thread-safe.

    Args:
        guard: gets the contracts.
        settings: how they are made.

    Raises:
        ConfigurationError: the file of approved entries cannot be used.
    """

    def __init__(self, guard: Guard, settings: ListingSettings) -> None:
        self._guard, self._settings = guard, settings
        self._lock = threading.Lock()
        self._pinned: dict[str, Mapping[str, Any]] = {}
        self._contracts: dict[str, Contract] = {one.name: one for one in guard.tools}
        self._refused: dict[str, str] = {}
        self._waiting: dict[str, dict[str, Any]] = {}
        self._problem = ""
        if settings.approved is not None:
            for entry in settings.approved.read_entries().values():
                self._pin(entry)
            self._guard.replace(self._contracts.values())

    def take(self, tools: Iterable[Any]) -> list[Any]:
        """Take one page of a listing; return the entries that clients are shown, those of the page that changed only.

        Args:
            tools: the entries as the server sent them; what is no entry of a tool is left out.
        """
        shown: list[Any] = []
        listed: dict[str, dict[str, Any] | None] = {}
        with self._lock:
            self._follow_approved()
            added = False
            for entry in tools:
                if not is_object(entry) or not isinstance(entry.get("name"), str):
                    continue
                before = len(self._contracts)
                one = self._take_entry(entry)
                listed[entry["name"]] = self._waiting.get(entry["name"])
                added = added or len(self._contracts) != before
                if one is not None:
                    shown.append(one)
            if added:
                self._guard.replace(self._contracts.values())
        self._note_listed(listed)
        return shown

    def find_refusal(self, name: str) -> str | None:
        """Return why a tool may not be called, in words for the model; None if it may.

        Before it refuses, it looks whether somebody has approved the tool meanwhile.
        """
        why, file = self._refused.get(name), self._settings.approved
        if why is not None and file is not None and file.has_changed():
            with self._lock:
                self._follow_approved()
            why = self._refused.get(name)
        return why

    def promises_structure(self, name: str) -> bool:
        """Return whether a tool's entry has an output schema, so that clients refuse a result without structure."""
        entry = self._pinned.get(name)
        return entry is not None and entry.get("outputSchema") is not None

    @property
    def entries(self) -> list[Mapping[str, Any]]:
        """The approved entries."""
        with self._lock:
            return list(self._pinned.values())

    def _follow_approved(self) -> None:
        """Take over what was approved since the file was read; a file that cannot be used changes nothing."""
        file = self._settings.approved
        if file is None or not file.has_changed():
            return
        try:
            entries = file.read_entries()
        except ConfigurationError as error:
            self._tell_problem(error)
            return
        for name in self._pinned.keys() - entries.keys():
            del self._pinned[name], self._contracts[name]
            self._refuse(name, _NOT_APPROVED.format(name))
        for name, entry in entries.items():
            if name not in self._pinned or promises_of(self._pinned[name]) != promises_of(entry):
                self._try_to_pin(entry)
        for entry in list(self._waiting.values()):
            self._take_entry(entry)
        self._guard.replace(self._contracts.values())

    def _note_listed(self, listed: Mapping[str, dict[str, Any] | None]) -> None:
        """Note beside the file what waits for an approval, so that a person can look at it."""
        file = self._settings.approved
        try:
            if file is not None:
                file.note_listed(listed, self._guard.clock.now())
        except (ConfigurationError, ValueError) as error:  # ValueError: a text in an entry that no encoding has
            self._tell_problem(error)

    def _take_entry(self, entry: dict[str, Any]) -> Mapping[str, Any] | None:
        name = entry["name"]
        pinned = self._pinned.get(name)
        self._waiting.pop(name, None)
        if pinned is None:
            if self._settings.approved is not None or len(self._pinned) >= _MOST_TOOLS:
                self._keep_waiting(entry)
                self._refuse(name, _NOT_APPROVED.format(name))
                return entry if self._is_lenient else None
            self._try_to_pin(entry)
            return entry
        if promises_of(pinned) == promises_of(entry):
            self._refused.pop(name, None)
            return entry
        self._keep_waiting(entry)
        changes = list_changes(pinned, entry, longest=_MOST_CHARACTERS, most=_MOST_CHANGES)
        self._refuse(name, _CHANGED.format(name, describe_drift(pinned, entry)), changes=changes)
        if self._settings.drift == "serve" and not self._is_lenient:
            self._refused.pop(name, None)
            return pinned
        return entry if self._is_lenient else None

    def _keep_waiting(self, entry: dict[str, Any]) -> None:
        if self._settings.approved is not None and len(self._waiting) < _MOST_TOOLS:
            self._waiting[entry["name"]] = entry

    def _try_to_pin(self, entry: Mapping[str, Any]) -> None:
        try:
            self._pin(entry)
        except (ContractError, ConfigurationError) as error:
            self._refuse(entry["name"], _UNUSABLE.format(entry["name"], clip(str(error), 300)))

    @property
    def _is_lenient(self) -> bool:
        return self._guard.policy.mode == "monitor"

    def _refuse(self, name: str, why: str, *, changes: list[dict[str, str]] | None = None) -> None:
        if self._refused.get(name) != why or changes is not None:
            self._record(name, ok=False, reason=why, changes=changes)
        if self._is_lenient and name in self._pinned:
            return  # the call runs, and the trace says that it would not have
        self._refused[name] = why

    def _pin(self, entry: Mapping[str, Any]) -> None:
        name = entry["name"]
        own = dict(self._settings.fields.get(name, {}))
        fields = {"timeout": self._settings.deadline, **own}
        contract = Contract.from_mcp(entry, trusted_hints=self._settings.trust_hints, **fields)
        hints = entry.get("annotations")
        claims_read = is_object(hints) and hints.get("readOnlyHint") is True and "effect" not in own
        if contract.effect != "read" and contract.repeats is None and (claims_read or self._is_lenient):
            # A word that is not trusted lifts no protection; but what says that it only reads may be read once more.
            contract = replace(contract, repeats="each")
        self._contracts[name] = contract
        self._pinned[name] = entry
        self._refused.pop(name, None)
        if own:
            said = ", ".join(f"{key}={value!r}" for key, value in sorted(own.items()))
            self._record(name, ok=True, reason=f"by the operator: {clip(said, 200)}; the server's hints are overridden")

    def _tell_problem(self, error: Exception) -> None:
        """Say once what keeps the file of approved entries from being used."""
        if str(error) != self._problem:
            self._problem = str(error)
            self._record("*", ok=False, reason=clip(str(error), 400))

    def _record(self, name: str, *, ok: bool, reason: str, changes: list[dict[str, str]] | None = None) -> None:
        event: dict[str, Any] = {"ts": self._guard.clock.now(), "event": "contracts", "tool": name}
        if changes is not None:
            event["changes"] = changes
        self._guard.trace.record({**event, "ok": ok, "reason": reason})


def describe_drift(approved: Mapping[str, Any], listed: Mapping[str, Any]) -> str:
    """Return the difference of two entries of a tool in words, at most a few hundred characters."""
    try:
        old, new = (Contract.from_mcp(one, trusted_hints=True) for one in (approved, listed))
        said = [f"{one.at}: {one.what}" for one in contract_changes(old, new)]
    except ContractError as error:
        said = [str(error)]
    said += [
        f"{key}: {approved.get(key)!r} -> {listed.get(key)!r}"
        for key in ("title", "annotations")
        if approved.get(key) != listed.get(key)
    ]
    return clip("; ".join(said) or "the same in other words", 400)


def read_fields(names: Mapping[str, Collection[str]]) -> dict[str, dict[str, Any]]:
    """Return contract fields for tools that an operator has named by their effect (`read`, `destructive`, `write`)."""
    return {name: {"effect": effect} for effect, tools in names.items() for name in tools}
