"""The replay sample that a program writes while it runs: whole runs, with pseudonyms.

In: finished calls. `replay/sample/recorder.py` turns them into lines; this file has the key, the file and the
    current contracts.
Out: lines without personal data.
Never: a key that others can read.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from pokayoke.core.call import Finding, Raw
from pokayoke.core.contract.contract import Contract
from pokayoke.core.policy import Policy, TracePolicy
from pokayoke.replay.recording import Recording
from pokayoke.replay.sample.recorder import Recorder
from pokayoke.runtime.files.key_file import KEY_BYTES, load_key
from pokayoke.runtime.trace.file import TraceFile

if TYPE_CHECKING:
    from pokayoke.runtime.trace.completed_call import CompletedCall

_REMEMBERED: Final = 1_024


class Sampler:
    """Writes the sample of one guard.

    Args:
        policy: where to write, and how much.

    Raises:
        ConfigurationError: the file cannot be written, or the key is invalid or readable by others.
    """

    def __init__(self, policy: TracePolicy) -> None:
        """Open the file and load the key."""
        assert policy.sample_path is not None, "a sampler needs a path"
        key = policy.sample_key_path
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else load_key(Path(key), "trace.sample_key_path")
        self._share = policy.sample_share
        self._file = TraceFile(
            policy.sample_path, max_bytes=policy.max_bytes, backups=policy.backups, option="trace.sample_path"
        )
        self._wanted: OrderedDict[str, bool] = OrderedDict()
        self._recorder = self._build_recorder(())
        self._withheld = 0

    @property
    def withheld_count(self) -> int:
        """Sampled calls that were not written: pseudonyms would change their verdict, or the tool is secret."""
        return self._withheld + self._recorder.withheld

    @property
    def dropped_count(self) -> int:
        """Lines that could not be written."""
        return self._file.dropped

    def use_contracts(self, contracts: Iterable[Contract], policy: Policy) -> None:
        """Use these contracts from now on: they tell the words of a schema from personal data."""
        self._withheld = self.withheld_count
        self._recorder = self._build_recorder(contracts, policy)

    def is_sampled(self, run_id: str) -> bool:
        """Return whether a run is in the sample; drawn once per run."""
        found = self._wanted.get(run_id)
        if found is None:
            found = self._wanted[run_id] = self._recorder.is_sampled(run_id)
            if len(self._wanted) > _REMEMBERED:
                self._wanted.popitem(last=False)
        return found

    def write_call(self, seen: CompletedCall) -> bool:
        """Write one call of a sampled run. Returns False if it was not written although its tool is not secret."""
        call, env = seen.call, seen.env
        found = env.snapshot.find_plan(call.name)
        contract = None if isinstance(found, Finding) else found.contract
        arguments, raw = call.arguments, seen.raw
        written = self._recorder.record_call(
            Recording(
                tool=call.name,
                arguments=arguments.decode("utf-8", "replace") if isinstance(arguments, bytes) else arguments,
                output=_decode_body(raw.body)
                if isinstance(raw, Raw)
                else _decode_body(raw)
                if isinstance(raw, bytes)
                else raw,
                is_error=True if seen.raised else None,
                run=env.run_id,
                line=env.step,
                stop_reason=call.stop_reason,
                # With an envelope in the contract, replay would unwrap an output that is unwrapped already.
                contract=contract.id if contract is not None and contract.envelope is None else None,
                ran=not seen.refused and (seen.raised or raw is not UNSET),
            )
        )
        return written or (contract is not None and contract.secret)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _build_recorder(self, contracts: Iterable[Contract], policy: Policy | None = None) -> Recorder:
        return Recorder(self._write_line, key=self._key, share=self._share, contracts=contracts, policy=policy)

    def _write_line(self, line: bytes) -> None:
        self._file.append([line.removesuffix(b"\n")])


def _decode_body(body: str | bytes) -> str:
    return body if isinstance(body, str) else body.decode("utf-8", "replace")
