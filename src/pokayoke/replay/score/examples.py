"""Calls of a recording as a report shows them: short, and without their secrets.

In: recorded calls and verdicts; a recording need not be a trace, so it may hold every secret in the open.
Out: examples, words of failures, names of unknown tools.
Never: a value that the configuration or the contract of its tool hides in a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from pokayoke.core.call import Finding
from pokayoke.core.redaction.known_secrets import KnownSecrets
from pokayoke.core.redaction.redactor import REDACTION_FAILED, Redactor
from pokayoke.replay.recording import Recording
from pokayoke.replay.score.counts import Example
from pokayoke.replay.score.evaluate import CallVerdict, Judge

_SHOWN: Final = 300


class ExampleWriter:
    """Writes what reports show of calls.

    Args:
        judges: the sets of contracts that are compared, and policies whose `trace.redact_fields` and
            `trace.redact_patterns` apply. What one of them hides is hidden.
    """

    def __init__(self, judges: Sequence[Judge]) -> None:
        policies = [judge.policy.trace for judge in judges]
        self._redactor = Redactor(
            dict.fromkeys(name for one in policies for name in one.redact_fields),
            dict.fromkeys(pattern for one in policies for pattern in one.redact_patterns),
        )
        self._marks: dict[str, tuple[str, ...]] = {}
        for contract in (contract for judge in judges for contract in judge.contracts):
            self._marks[contract.name] = (*self._marks.get(contract.name, ()), *contract.redact)

    def tool_name(self, judged: CallVerdict) -> str:
        """Return the contract of a call, else the name that the model wrote."""
        return judged.contract or self._redactor.redact_text(judged.tool)

    def failure_words(self, call: Recording, judged: CallVerdict) -> str:
        """Return the tool's own words of a failure."""
        return self._redactor.redact_text(
            judged.failure or "", marks=self._marks_of(judged), seen=self._secrets_of(call, judged)
        )

    def build_example(
        self, call: Recording, judged: CallVerdict, finding: Finding | str, shown: Any, *, file: int
    ) -> Example:
        """Return a call for a person to check.

        Args:
            call: the call.
            judged: the verdict on it.
            finding: what is wrong with it, or what to say of it.
            shown: its arguments or its answer.
            file: number of its recording.
        """
        marks, seen = self._marks_of(judged), self._secrets_of(call, judged)
        at, message = ("", finding) if isinstance(finding, str) else (finding.at, finding.message)
        said = {"at": at, "message": message[:_SHOWN]}
        told = self._redactor.redact_value(said, marks=marks, seen=seen)
        if not isinstance(told, dict):
            told = {"at": "", "message": REDACTION_FAILED}
        said = cast("dict[str, str]", told)
        if not isinstance(shown, str):
            shown = "" if shown is UNSET else msgspec.json.encode(
                self._redactor.redact_value(shown, marks=marks, seen=seen)
            ).decode()  # fmt: skip
        # Cut twice: a secret must not lose the beginning that identifies it, and searching must stay cheap.
        text = self._redactor.redact_text(shown[: 4 * _SHOWN], marks=marks, seen=seen)
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return Example(file=file, line=call.line, at=said["at"][:200], message=said["message"], shown=text)

    def _marks_of(self, judged: CallVerdict) -> tuple[str, ...]:
        return self._marks.get(judged.tool, ())

    def _secrets_of(self, call: Recording, judged: CallVerdict) -> KnownSecrets:
        """Return the secrets of a call by their names, which its other texts may repeat."""
        seen, marks = KnownSecrets(), self._marks_of(judged)
        for part in (call.arguments, call.output):
            if isinstance(part, str):
                self._redactor.redact_text(part[: 4 * _SHOWN], marks=marks, seen=seen)
            elif part is not UNSET:
                self._redactor.redact_value(part, marks=marks, seen=seen)
        return seen
