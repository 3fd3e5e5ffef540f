"""The fast paths of calls and outputs agree with the slow ones, or leave the decision to them."""

import json
from unittest import mock

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pokayoke import Contract, ToolCall
from pokayoke.core.flow import admit as flow
from pokayoke.core.flow import prepare as judge
from pokayoke.core.flow.admit import admit_call
from pokayoke.core.flow.environment import CallEnvironment
from pokayoke.core.flow.plan import build_snapshot
from pokayoke.core.flow.repetition import CallerView
from pokayoke.core.flow.steps import Emit, ResolvePaths
from pokayoke.core.output import validate as output
from pokayoke.core.output.last_known_good import LastKnownGood
from pokayoke.core.policy import IntakePolicy, Policy, ToolOutputPolicy, ValidationPolicy
from pokayoke.core.state.loop_guard import TurnHistory
from pokayoke.core.state.run_state import RunState
from pokayoke.runtime.driver.path_arguments import resolve_path_arguments
from pokayoke.runtime.memory.seen_answers import SeenAnswers

FIELDS = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "path": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "error": {"type": ["string", "null"]},
    },
}
TEXTS = st.sampled_from(
    [
        "a",
        "",
        "a/b.txt",
        "../x",
        "/etc/passwd",
        "<user_id>",
        "TODO",
        "...",
        "é",
        "<html><body>x",
        "a:b",
        "\\u003a",
        "x" * 20,
    ]
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "count": st.integers() | st.just(2**70) | TEXTS,
        "share": st.floats(allow_nan=False, allow_infinity=False) | st.just(1.0),
        "path": TEXTS,
        "tags": st.lists(TEXTS, max_size=3),
        "error": st.none() | TEXTS,
        "ok": st.booleans(),
    },
)
DAMAGE = st.sampled_from([
    lambda text: text, lambda text: text[:-1], lambda text: text.replace("}", ",}"), lambda text: text + text,
    lambda text: text.replace(":", ": "), lambda text: "[" * 70 + text + "]" * 70, lambda text: f"```json\n{text}\n```",
    lambda text: text.replace("{", '{"name": "b",', 1), lambda text: text.replace('"', "'"), lambda text: " " + text,
])  # fmt: skip
WRITTEN = st.builds(lambda value, damage: damage(json.dumps(value)), VALUES, DAMAGE) | st.sampled_from(
    ["", "null", "5", '"x"', "[]", '{"name": "\\ud800"}', '{"name": 1e999}', '{"name": "a", "na\\u006de": "b"}']
)


class Seen:
    """What a call may see of its run."""

    def __init__(self):
        self.state, self.rounds = RunState("r"), TurnHistory()


class Uncounted:
    """A meter that counts nothing."""

    def valid(self, *_):
        """Note nothing."""


def scene_of(contracts, policy, view) -> CallEnvironment:
    return CallEnvironment(
        snapshot=build_snapshot(contracts, policy), view=view, run_id="r", claimant=None, tenant=None,
        principal=None, step=1, now=1.0, last_good=LastKnownGood(), asks=False, caller=CallerView(SeenAnswers()), meter=Uncounted(),
    )  # fmt: skip


def decided(steps):
    """What a generator returns that yields nothing."""
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("mode", ["enforce", "monitor"])
@given(
    text=WRITTEN | WRITTEN.map(str.encode) | VALUES,
    name=st.sampled_from(["save", "Save", "save@1", "other", ""]),
    reason=st.sampled_from([None, "stop", "length", "tool_use"]),
    confidence=st.sampled_from([None, 0.1, 1.0]),
    failures=st.integers(0, 4),
)
@example(text='{"name": "a"}', name="save", reason="stop", confidence=None, failures=0)
@example(text='{"name": "a"}', name="save", reason="stop", confidence=None, failures=3)
def test_the_fast_path_decides_like_the_slow_one(effect, mode, text, name, reason, confidence, failures):
    """A call that the fast path decides is decided alike by the slow one, and usual calls are decided fast."""
    # Where a rule objects to a path, the look leaves that to the next step: see below.
    paths = {"path": ("/srv/data",)} if mode == "monitor" else {}
    tool = Contract.from_schema("save", FIELDS, output_schema="text", effect=effect, paths=paths)
    view = Seen()
    scene = scene_of([tool], Policy(mode=mode), view)
    call = ToolCall("c", name, text, stop_reason=reason, confidence=confidence)
    for _ in range(failures):
        view.rounds.repeats.add_failure("save", decided(judge.prepare_call(call, scene)).args_hash)
    seen, whole = judge.prepare_call_fast(call, scene), decided(judge.prepare_call(call, scene))
    # What is not decided at a glance is judged from what the look has read, if it could read anything.
    assert whole == (seen if isinstance(seen, judge.PreparedCall) else decided(judge.prepare_call(call, scene, seen)))
    usual = (name, reason in {None, "stop", "tool_use"}, confidence, failures) == ("save", True, None, 0)
    if usual and text == '{"name": "a"}':
        assert isinstance(seen, judge.PreparedCall)


class Claims:
    """Who claims a write."""

    def scope(self, _):
        """All in one run."""
        return ("run", "r")

    def claim_id(self, step):
        """One for each call."""
        return f"c-{step}"


def run_until_admission(call, scene):
    """Return the first step of a call after its paths, or its end, and the events so far."""
    steps, events = admit_call(call, scene), []
    try:
        step = next(steps)
        while isinstance(step, Emit | ResolvePaths):
            if isinstance(step, Emit):
                events.append(step.event)
            step = steps.send(
                resolve_path_arguments(step.contract, step.arguments) if isinstance(step, ResolvePaths) else None
            )
    except StopIteration as end:
        return end.value, events
    return step, events


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A root with one file in it."""
    root = tmp_path_factory.mktemp("workspace")
    (root / "a").write_text("")
    return str(root)


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("mode", ["enforce", "monitor"])
@given(path=TEXTS | st.none() | st.integers() | st.lists(TEXTS | st.integers(), max_size=2))
def test_a_path_argument_ends_alike_on_both_paths(workspace, effect, mode, path):
    """For any value of a path field, both paths give the same end before the tool and the same events."""
    fields = {**FIELDS, "properties": {**FIELDS["properties"], "path": {}}}
    tool = Contract.from_schema("save", fields, output_schema="text", effect=effect, paths={"path": (workspace,)})
    call, ends = ToolCall("c", "save", json.dumps({"name": "a", "path": path})), []
    scene = msgspec.structs.replace(scene_of([tool], Policy(mode=mode), Seen()), claimant=Claims())
    for look in (judge.prepare_call_fast, lambda *_: None):
        with mock.patch.object(flow, "prepare_call_fast", look):
            ends.append(run_until_admission(call, msgspec.structs.replace(scene, view=Seen())))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("most", "seen"), [(13, True), (12, False)])
def test_a_text_over_its_limit_is_left_to_the_slow_path(most, seen):
    """The fast path keeps the policy's limit to the character."""
    tool = Contract.from_schema("save", FIELDS, output_schema="text")
    policy = Policy(validation=ValidationPolicy(intake=IntakePolicy(max_chars=most)))
    found = judge.prepare_call_fast(ToolCall("c", "save", '{"name": "a"}'), scene_of([tool], policy, Seen()))
    assert (found is not None) is seen


def test_contracts_with_user_code_take_the_slow_path():
    """A user's validators always run."""
    tool = Contract.from_schema("save", FIELDS, output_schema="text", validate_input=lambda value: (value, ()))
    assert judge.prepare_call_fast(ToolCall("c", "save", '{"name": "a"}'), scene_of([tool], Policy(), Seen())) is None


RESPONSE = {"type": "object", "properties": {"status": {}, "_meta": {}}}
CONTRACTS = [
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read"),
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read", max_chars=30),
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read", output_checks="size_only"),
    Contract.from_schema("t", {}, output_schema=FIELDS, effect="read", invariants=(lambda value, _: "name" in value,)),
    Contract.from_schema("t", {}, output_schema="text", effect="read"),
    Contract.from_schema("t", {}, effect="read"),
    Contract.from_schema("t", {}, output_schema={}, effect="read"),
    Contract.from_schema("t", {}, output_schema=RESPONSE, effect="read"),
]


@given(st.sampled_from(CONTRACTS), WRITTEN | VALUES | WRITTEN.map(str.encode))
@example(CONTRACTS[0], '{"name": "a"}')
@example(CONTRACTS[0], '{"name": "a", "error": "no"}')
@example(CONTRACTS[0], '{"name": "<html>"}')
@example(CONTRACTS[0], {"name": "a"})
@example(CONTRACTS[0], {"name": "<html><body>down</body></html>"})
@example(CONTRACTS[1], {"name": "é" * 12})
@example(CONTRACTS[1], {"name": "a" * 40})
@example(CONTRACTS[6], {"body": "<html></html>", "content_type": "text/html", "status": 200})
@example(CONTRACTS[7], {"body": '{"status": 1}', "content_type": "application/json", "status": 200})
@example(CONTRACTS[7], {"content": [{"type": "text", "text": '{"status": 1}'}], "_meta": {}})
@example(CONTRACTS[6], {"a": float("nan")})
@example(CONTRACTS[6], {"a": 10**400})
@example(CONTRACTS[6], {"a": [{"b": ()}, b"c"]})
def test_the_fast_output_check_agrees_with_the_full_one(contract, raw):
    """An answer that the fast check decides is decided alike by the full one, and usual answers are decided fast."""
    policy = ToolOutputPolicy()
    quick, whole = (
        output._check_output_fast(raw, contract, policy),
        output._check_output_fully(raw, contract, {}, policy),
    )
    assert quick is None or quick == whole
    if contract is CONTRACTS[0] and raw in ('{"name": "a"}', {"name": "a"}):
        assert quick is not None
