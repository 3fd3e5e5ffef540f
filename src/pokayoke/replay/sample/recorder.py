"""A sample of real calls that can be shared: whole runs, one in a hundred, with pseudonyms.

In: recorded calls.
Out: lines of plain JSON Lines.
Never: a call whose contract judges it otherwise than the original. Replay of the sample finds what replay of the
    original would; calls for which that cannot be achieved are counted and not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.correctors import Correctors
from pokayoke.core.json.strict import StrictError, parse
from pokayoke.core.json.values import is_array, is_object, properties_of
from pokayoke.core.output.content_blocks import as_blocks
from pokayoke.core.output.html_pages import is_page
from pokayoke.core.policy import Policy
from pokayoke.core.redaction.keyed_digest import keyed_digest
from pokayoke.core.schema.schema import Schema
from pokayoke.replay.learn.stated_failures import error_prefix
from pokayoke.replay.recording import Recording
from pokayoke.replay.sample.pseudonyms import Pseudonyms
from pokayoke.replay.score.evaluate import CallVerdict, Judge

_SCALE: Final = 2**64
_PAGE: Final = "<!doctype html>"
_STRUCTURED: Final = ("structuredContent", "structured_content")


class Recorder:
    """Writes a sample of calls as plain JSON Lines, which `pokayoke replay` and `learn` read without a mapping.

    Args:
        write: takes one line, with its end.
        key: at least 16 random bytes; the same key gives the same pseudonyms and the same sample.
        share: of the runs that are kept whole, 0 to 1.
        contracts: they distinguish words of a schema from personal data, and say what has to stay valid. Of a
            call of any other tool only the shape is kept.
        policy: caps, corrections and thresholds to judge the calls by; None is the safe default.

    Attributes:
        seen: calls that were offered.
        written: lines written.
        withheld: sampled calls that were not written: secret tools, and calls whose pseudonyms would be judged
            otherwise than the originals.

    Raises:
        ValueError: the share is not between 0 and 1, or the key too short.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        key: bytes,
        share: float = 0.01,
        contracts: Iterable[Contract] = (),
        policy: Policy | None = None,
    ) -> None:
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"a share lies between 0 and 1, got {share}")
        self._write = write
        self._key = key
        self._limit = int(share * _SCALE)
        self._pseudonyms = Pseudonyms(key)
        self._contracts = {one.name: one for one in contracts}
        self._judge = Judge(self._contracts.values(), policy)
        self.seen = 0
        self.written = 0
        self.withheld = 0

    def is_sampled(self, run: str) -> bool:
        """Return whether a run is in the sample; cheap, and the same every time."""
        drawn = keyed_digest(self._key, f"run:{run}")
        return int.from_bytes(drawn[:8], "big") < self._limit

    def record_call(self, call: Recording) -> bool:
        """Add one call; True if a line was written.

        Args:
            call: the original call. One without a run is sampled by its line.
        """
        self.seen += 1
        if not self.is_sampled(call.run or f"line {call.line}"):
            return False
        before = self._judge.judge_call(call)
        contract = self._contracts.get(before.tool)
        made = (
            None if contract is not None and contract.secret else self._pseudonymise_call(call, before.tool, contract)
        )
        if made is None or not _is_same_verdict(before, self._judge.judge_call(made)):
            self.withheld += 1
            return False
        self._write(msgspec.json.encode(_to_line(made)) + b"\n")
        self.written += 1
        return True

    def _pseudonymise_call(self, call: Recording, tool: str, contract: Contract | None) -> Recording:
        made = self._pseudonyms
        schema = None if contract is None else contract.input
        correctors = None if contract is None else contract.ready_correctors
        output = None if contract is None else contract.output
        return Recording(
            tool=made.replace_text(tool) if contract is None else tool,
            arguments=self._replace_arguments(call.arguments, schema, correctors),
            output=UNSET if call.output is UNSET else self._replace_output(call.output, output),
            is_error=call.is_error,
            run=made.replace_label(call.run) if call.run else "",
            truth=UNSET if call.truth is UNSET else self._replace_truth(call.truth, schema),
            stop_reason=call.stop_reason,
            contract=None if contract is None else call.contract,
        )

    def _replace_arguments(
        self, given: str | dict[str, Any], schema: Schema | None, correctors: Correctors | None
    ) -> str | dict[str, Any]:
        if not isinstance(given, str):
            made: dict[str, Any] = self._pseudonyms.replace_value(given, schema, correctors)
            return made
        value = _parse_json(given)
        if is_object(value):
            return msgspec.json.encode(self._pseudonyms.replace_value(value, schema, correctors)).decode()
        return self._pseudonyms.replace_raw(given, frozenset(properties_of(_raw_schema(schema))), correctors)

    def _replace_truth(self, given: Any, schema: Schema | None) -> Any:
        value = _parse_json(given) if isinstance(given, str) else given
        return self._pseudonyms.replace_value(value, schema) if is_object(value) else None

    def _replace_output(self, given: Any, schema: Schema | None) -> Any:
        if not isinstance(given, str):
            made = self._pseudonyms.replace_value(given, schema)
            return {**made, **self._replace_blocks(given, schema)} if _has_blocks(given, schema) else made
        value = _parse_json(given)
        if value is not None and not isinstance(value, str):
            return msgspec.json.encode(self._pseudonyms.replace_value(value, schema)).decode()
        if is_page(given):
            return _PAGE + self._pseudonyms.replace_value(given, schema)
        prefix = error_prefix(given)
        rest: str = self._pseudonyms.replace_value(given[len(prefix) :], schema)
        return prefix + rest

    def _replace_blocks(self, result: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
        """Return the content blocks of a result: their types are words of the protocol, their texts are outputs."""
        parts: dict[str, Any] = {
            name: self._pseudonyms.replace_value(result[name], schema) for name in _STRUCTURED if name in result
        }
        for block in result["content"]:
            made = {**self._pseudonyms.replace_value(block), "type": block["type"]}
            if block["type"] == "text":
                made["text"] = self._replace_output(block["text"], schema)
            parts.setdefault("content", []).append(made)
        return parts


def _raw_schema(schema: Schema | None) -> Any:
    return None if schema is None else schema.raw


def _has_blocks(result: Any, schema: Schema | None) -> bool:
    found = result.get("content") if is_object(result) else None
    return is_array(found) and all(map(is_object, found)) and as_blocks(result, _raw_schema(schema)) is not None


def _parse_json(text: str) -> Any:
    try:
        return parse(text)[0]
    except StrictError:
        return None


def _to_line(call: Recording) -> dict[str, Any]:
    parts: dict[str, Any] = {"run": call.run, "tool": call.tool, "arguments": call.arguments}
    for name in ("output", "truth"):
        value = getattr(call, name)
        if value is not UNSET:
            parts[name] = value
    for name in ("is_error", "stop_reason", "contract"):
        value = getattr(call, name)
        if value is not None:
            parts[name] = value
    return parts


def _is_same_verdict(before: CallVerdict, after: CallVerdict) -> bool:
    """True if two calls are judged alike: read, corrected, refused and answered in the same way."""
    return _verdict_key(before) == _verdict_key(after)


def _verdict_key(judged: CallVerdict) -> tuple[Any, ...]:
    return (
        judged.contract,
        judged.reading.grade,
        judged.reading.reason,
        judged.reading.repairs,
        None if judged.refusal is None else (judged.refusal.code, judged.refusal.at),
        tuple(sorted((change.at, change.rule) for change in judged.corrections)),
        judged.output,
        None if judged.fault is None else (judged.fault.code, judged.fault.at),
    )
