"""The rules of provenance as a policy of a worst-case harness.

`python -m tests.support.untrusted_suite --external tests.support.provenance_policy:careful` measures them. A factory is
called once per run and returns `policy(user_prompt, history, call, tools)`, which answers "allow" or "ask" and why.
"""

from __future__ import annotations

import json
from typing import Any

from pokayoke.core.provenance.labels import Labels, ToolLabels, derive_labels, withdraw_trust
from pokayoke.core.provenance.provenance import Level, Provenance


def _labels_of(tools: dict[str, Any]) -> dict[str, ToolLabels]:
    found = {}
    for name, tool in tools.items():
        written = None
        if tool.labels is not None:
            said = dict(tool.labels)
            targets = said.pop("targets")
            targets = None if targets is None else tuple(targets)
            written = Labels(**said | {"targets": targets, "amounts": tuple(said["amounts"])})
        found[name] = derive_labels(name, tool.description or "", tool.schema, written)
    return withdraw_trust(found)


class _Policy:
    def __init__(self, level: Level) -> None:
        self._provenance = Provenance(level)
        self._labels: dict[str, ToolLabels] = {}
        self._seen = 0
        self._asked: set[str] = set()

    def __call__(self, prompt: str, history: list[Any], call: Any, tools: dict[str, Any]) -> tuple[str, str]:
        self._labels = self._labels or _labels_of(tools)
        self._provenance.set_words(prompt)
        for number, step in enumerate(history[self._seen :], self._seen):
            output = step.output if step.error is None else str(step.error)
            data = output if isinstance(output, str) else json.dumps(output, default=str).encode()
            approved = _key(step.tool, step.args) in self._asked
            sent = json.dumps(step.args, default=str).encode()
            self._provenance.add_call(self._labels[step.tool], sent, data, step=number, is_approved=approved)
        self._seen = len(history)
        judgement = self._provenance.judge(self._labels[call.tool], call.args)
        if not judgement.asks:
            return "allow", ""
        self._asked.add(_key(call.tool, call.args))
        return "ask", "; ".join(f"{one.rule} {one.argument}={one.value!r} {one.tier}" for one in judgement.reasons)


def _key(tool: str, arguments: Any) -> str:
    return json.dumps([tool, arguments], sort_keys=True, default=str)


def strict() -> _Policy:
    return _Policy("strict")


def careful() -> _Policy:
    return _Policy("careful")


def balanced() -> _Policy:
    return _Policy("balanced")
