"""Random histories of the real guard over real stores: calls with crash points, failures, lookups, a clock that jumps."""

import asyncio
import contextlib
import json
import shutil
import tempfile

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from pokayoke import NOT_FOUND, UNKNOWN, Contract, Found, Guard, ToolCall
from pokayoke.core.flow import finish as result
from pokayoke.core.json.canonical import sha256_hex
from pokayoke.core.json.dump import dump_compact
from pokayoke.core.ledger import admission
from pokayoke.core.ledger import transitions as ledger
from pokayoke.core.ledger.key import ledger_key
from pokayoke.core.ledger.records import Resolution
from pokayoke.errors import StoreError
from pokayoke.runtime.driver import sync as driver
from pokayoke.stores import MemoryStore, open_store
from pokayoke.stores.base import RecordQuery
from pokayoke.testing import Crash, FrozenClock, crash_at

pytestmark = pytest.mark.timeout(1_200)
PAY = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "amount": {"type": "integer"}},
    "required": ["to", "amount"],
}
PAID = {"type": "object", "properties": {"ref": {"type": "string"}}, "required": ["ref"]}
CRASHES = ("after_claim", "before_invoke", "after_invoke", "after_settle")
STEPS = (None, None, None, *CRASHES)


class RefusedError(Exception):
    """The target says that nothing has happened."""


class Ledgers(RuleBasedStateMachine):
    """Processes that come and go, one ledger, one target; what the target has done is counted outside."""

    kind = "memory"
    asynchronous = False

    def __init__(self):
        super().__init__()
        self.clock = FrozenClock()
        self.process, self.dead = "p0", set()
        self.effects, self.acted, self.before = {}, 0, {}
        self.told = {}
        self._patches = contextlib.ExitStack()
        patch = pytest.MonkeyPatch()
        patch.setattr(driver, "current_owner", lambda: self.process)
        patch.setattr(driver, "is_dead", lambda name: name in self.dead)
        self._patches.callback(patch.undo)

    @initialize()
    def begin(self):
        """An empty ledger and a first process."""
        self.folder = tempfile.mkdtemp(prefix="pokayoke-machine-") if self.kind == "sqlite" else None
        self.store = open_store(f"sqlite:///{self.folder}/ledger.db", create=True) if self.folder else MemoryStore()
        self.count = 0

    def teardown(self):
        """Let go of everything."""
        self._patches.close()
        if hasattr(self, "store"):
            self.store.close()
            if self.folder:
                shutil.rmtree(self.folder)

    def guard(self, lookup, failure, point):
        """A guard of the process that runs now."""

        def pay(to, amount):
            if failure == "before":
                raise RefusedError("no funds")
            self.effects.setdefault(to, []).append(amount)
            self.acted += 1
            if failure == "after":
                raise ConnectionError("the answer was lost")
            return {"ref": f"R{self.acted}"} if failure != "invalid" else {"page": "maintenance"}

        def look(key, arguments):
            if lookup == "cannot tell":
                return UNKNOWN
            if lookup == "fails":
                raise ConnectionError("the target is away")
            return Found({"ref": "found"}) if self.effects.get(arguments["to"]) else NOT_FOUND

        fields = {"on_ambiguous": "lookup", "lookup": look, "lookup_safe": "executor_dead"} if lookup else {}
        contracts = [
            Contract.from_schema(
                "pay", PAY, output_schema=PAID, identity=("to",), handler=pay, no_effect_errors=(RefusedError,),
                sources=(), **fields,
            ),
            Contract.from_schema("ask", PAY, output_schema="text", effect="read", handler=lambda **a: "yes"),
        ]  # fmt: skip
        return Guard(
            contracts, store=self.store, clock=self.clock, on_step=crash_at(point, how="raise") if point else None,
            config={"safe_mode": {"kill_switch": False}},
        )  # fmt: skip

    @rule(
        name=st.sampled_from(("pay", "pay", "pay", "ask")),
        to=st.sampled_from("ab"),
        amount=st.sampled_from((1, 1, 1, 2)),
        lookup=st.sampled_from((None, "answers", "answers", "cannot tell", "fails")),
        failure=st.sampled_from((None, None, "before", "after", "invalid")),
        point=st.sampled_from(STEPS),
        dies=st.booleans(),
    )
    def call(self, name, to, amount, lookup, failure, point, dies):
        """One call. Where it breaks off, its process is dead (another one takes over), or only the call is cancelled."""
        guard = self.guard(lookup, failure, point)
        self.count += 1
        acted = self.acted
        tool_call = ToolCall(f"c{self.count}", name, json.dumps({"to": to, "amount": amount}))
        run = guard.run("r")
        run.user("go on")
        try:
            outcome = asyncio.run(run.acall(tool_call)) if self.asynchronous else run.call(tool_call)
        except Crash:
            if dies:
                self.dead.add(self.process)
                self.process = f"p{self.count}"
            outcome = None
        if outcome is not None and name == "pay":
            self.heard(outcome, to, amount, self.acted - acted)

    def heard(self, outcome, to, amount, acted):
        """What a caller was told agrees with what happened and with the ledger."""
        record = self.store.record(outcome.key) if outcome.key else None
        if outcome.status in ("ok", "replayed"):
            assert record.state == "completed"
            assert self.effects[to] == [amount]
            said = None if outcome.value is None else json.dumps(outcome.value)
            kept = None if record.output is None else json.dumps(json.loads(record.output))
            assert said == kept
            assert self.told.setdefault(to, said) == said
        elif outcome.status in ("refused", "failed"):
            assert acted == 0
        elif outcome.status == "in_doubt" and acted:
            assert outcome.effect in ("unknown", "done")

    @rule(seconds=st.integers(-50, 50))
    def jump(self, seconds):
        """The wall clock goes on, or is set back."""
        if seconds < 0:
            self.clock.set_back(-seconds)
        else:
            self.clock.advance(seconds)

    @rule(to=st.sampled_from("ab"))
    def person(self, to):
        """A person who has looked at the target settles what is in doubt."""
        for record in self.store.records(RecordQuery()):
            if self.names[record.key] == to:
                with contextlib.suppress(StoreError):
                    happened = bool(self.effects.get(to))
                    self.store.decide(Resolution(record.key, happened, "ann", "asked the bank", self.clock.now()))

    @property
    def names(self):
        """Ledger keys of both targets."""
        return {ledger_key(("run", "r"), "pay", sha256_hex(dump_compact({"to": to}, sort=True))): to for to in "ab"}

    @invariant()
    def at_most_one_effect(self):
        """I1: however often it was asked for."""
        assert all(len(done) <= 1 for done in self.effects.values()), self.effects

    @invariant()
    def records_tell_the_truth(self):
        """I3, I8, I9, I12: completed means happened and is final; every effect has a record; reads have none."""
        records = (
            {self.names[record.key]: self.store.record(record.key) for record in self.store.records(RecordQuery())}
            if hasattr(self, "store")
            else {}
        )
        assert set(self.effects) <= set(records)
        for to, record in records.items():
            assert record.tool == "pay"
            if record.state == "completed":
                assert self.effects.get(to)
            known = self.before.get(to)
            if known is not None:
                assert record.attempt >= known.attempt
                assert known.state != "completed" or record == known
            self.before[to] = record


def machine(kind, asynchronous):
    """The machine over one kind of store and one driver."""
    return type(f"Ledgers_{kind}", (Ledgers,), {"kind": kind, "asynchronous": asynchronous})


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_no_history_has_a_second_effect(kind, asynchronous, full):
    """Whatever callers, processes, clocks and people do: one effect per key, honest answers, final records."""
    examples = {"memory": 60, "sqlite": 12}[kind] * (20 if full else 1)
    run_state_machine_as_test(
        machine(kind, asynchronous),
        settings=settings(max_examples=examples, stateful_step_count=25, deadline=None),
    )


@pytest.mark.parametrize("name", ["expiry", "arguments", "exception"])
def test_a_wrong_rule_is_found(monkeypatch, name):
    """Executing after expiry, answering other arguments, taking an exception for a failure: the machine falsifies each."""
    if name == "expiry":
        monkeypatch.setattr(
            ledger, "_answer_doubtful", lambda record, wish, _: ledger._start_execution(wish, record.attempt + 1)
        )
    elif name == "arguments":
        right = admission.claim_effect
        monkeypatch.setattr(
            admission, "claim_effect",
            lambda record, wish: right(record, msgspec.structs.replace(wish, args_hash=record.args_hash) if record else wish),
        )  # fmt: skip
    else:
        right = result.Settlement
        monkeypatch.setattr(
            result, "Settlement",
            lambda key, claim_id, state, *rest, **more: right(
                key, claim_id, "failed_retriable" if state == "in_doubt" else state, *rest, **more
            ),
        )  # fmt: skip
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            machine("memory", False),
            settings=settings(
                max_examples=500, stateful_step_count=25, deadline=None, database=None, phases=(Phase.generate,)
            ),
        )
