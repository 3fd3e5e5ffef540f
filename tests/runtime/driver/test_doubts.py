"""Effects in doubt: asked for, proven, settled late, completed early, given up; through both drivers."""

import asyncio
import json
import signal
import sys
import threading
import time

import pytest

from pokayoke import NOT_FOUND, UNKNOWN, Contract, Envelope, Found, Guard, ToolCall, open_store, this_effect
from pokayoke.core.flow.steps import ToolNotStarted
from pokayoke.core.ledger.records import Resolution, Settlement
from pokayoke.core.policy import RetryPolicy
from pokayoke.core.state.run_state import step_down_to
from pokayoke.errors import UsageError
from pokayoke.runtime.driver import sync as driving
from pokayoke.stores import MemoryStore
from pokayoke.stores.base import RecordQuery
from pokayoke.stores.operations import settle_operation
from pokayoke.stores.values import SwitchCommand
from pokayoke.testing import Crash, FailingStore, FrozenClock, crash_at, run_script

ORDER = {"type": "object", "properties": {"user": {"type": "string"}}, "required": ["user"]}
ORDERED = {
    "type": "object",
    "properties": {"id": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
DEAD = {"on_ambiguous": "lookup", "lookup_safe": "executor_dead"}
SETTLED = {"on_ambiguous": "lookup", "lookup_safe": "settled", "settle_after": 30.0}
KEYED = {"on_ambiguous": "lookup", "lookup_safe": "downstream_key", "forwards_key": True}
SHARED = {**KEYED, "scope": "global"}


class Place:
    """One tool, its target, and processes that can die; nothing of the ledger touches `effects`."""

    def __init__(self):
        self.clock, self.store = FrozenClock(), MemoryStore()
        self.effects, self.looked, self.process, self.dead = [], [], "p0", set()
        self.act = lambda: {"id": f"O{len(self.effects)}"}
        self.found = NOT_FOUND

    def order(self, user):
        """The tool."""
        self.effects.append(user)
        return self.act()

    def lookup(self, key, arguments):
        """The target's word."""
        self.looked.append((key, arguments))
        return self.found() if callable(self.found) else self.found

    def guard(self, how=None, *, store=None, handler=None, **options):
        """A process of the agent."""
        how = dict(DEAD if how is None else how)
        if how.get("on_ambiguous") == "lookup":
            how.setdefault("lookup", self.lookup)
        contract = Contract.from_schema(
            "order", ORDER, output_schema=how.pop("output_schema", ORDERED), sources=how.pop("sources", ()), handler=handler or self.order, **how
        )  # fmt: skip
        crm = Contract.from_schema(
            "crm", {"type": "object"}, effect="read", output_schema=ORDERED, handler=lambda: None
        )
        return Guard([contract, crm], store=store or self.store, clock=self.clock, **options)

    @property
    def record(self):
        """The one record of the ledger."""
        (found,) = self.store.records(RecordQuery())
        return self.store.record(found.key)

    def die(self):
        """The process of the agent is gone, and another one takes its place."""
        self.dead.add(self.process)
        self.process += "'"


@pytest.fixture
def place(monkeypatch):
    made = Place()
    monkeypatch.setattr(driving, "current_owner", lambda: made.process)
    monkeypatch.setattr(driving, "is_dead", lambda name: name in made.dead)
    return made


def order(ident="c1", user="u1"):
    return ToolCall(ident, "order", f'{{"user": "{user}"}}')


def codes(outcome):
    return [finding.code for finding in outcome.findings]


def doubtful(place, driver, *, how=None, dead=True, effect=False, user="u1"):
    """Leave an effect in doubt: its process breaks off after the claim, or after the effect, and dies."""
    step = "after_invoke" if effect else "before_invoke"
    with pytest.raises(Crash):
        driver.call(place.guard(how, on_step=crash_at(step, how="raise")).run("r"), order(user=user))
    assert len(place.effects) == int(effect)
    if dead:
        place.die()
    else:
        place.clock.advance(41)


# -- what the target says ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "status", "value", "state", "output_ok"),
    [
        (Found({"id": "O7"}, "R7"), "replayed", {"id": "O7"}, "completed", True),
        (Found('{"id": "O7"}'), "replayed", {"id": "O7"}, "completed", True),
        (Found(), "replayed", None, "completed", True),
        (Found(reference="R7"), "replayed", None, "completed", True),
        (Found({"page": "maintenance"}), "invalid_output", None, "completed", False),
        (Found(float("nan")), "invalid_output", None, "completed", False),
    ],
)
def test_what_the_target_has_found_is_the_answer_for_all(place, driver, found, status, value, state, output_ok):
    """A found effect is completed, its output checked like any other; nothing runs again, and nobody asks twice."""
    doubtful(place, driver, effect=True)
    place.found = found
    run = place.guard().run("r")
    first, second = driver.call(run, order("c2")), driver.call(run, order("c3"))
    assert (first.status, first.value, first.effect) == (status, value, "done")
    assert (second.status, second.value) == (status, value)
    record = place.record
    assert (record.state, record.output_ok, record.reference, record.resolver) == (
        state,
        output_ok,
        found.reference,
        "",
    )
    assert place.effects == ["u1"]
    assert place.looked == [(first.key, {"user": "u1"})]


def test_a_found_failure_of_the_target_is_kept_as_such(place, driver):
    """What the declared envelope calls a failure is an effect without a usable output, not a licence to try again."""
    how = {**DEAD, "envelope": Envelope(ok="/ok", error="/error", data="/data")}
    doubtful(place, driver, how=how, effect=True)
    place.found = Found({"ok": False, "error": "no stock"})
    outcome = driver.call(place.guard(how).run("r"), order("c2"))
    assert outcome.status == "invalid_output"
    assert place.record.failure == "the target reports a failure"


def test_a_secret_output_is_not_kept_when_it_is_found(place, driver):
    """A secret tool's output stays out of the ledger on this way, too."""
    doubtful(place, driver, how={**DEAD, "secret": True}, effect=True)
    place.found = Found({"id": "O7"})
    outcome = driver.call(place.guard({**DEAD, "secret": True}).run("r"), order("c2"))
    assert (outcome.status, outcome.value, place.record.output) == ("replayed", None, None)


def test_a_found_output_that_repeats_a_secret_of_the_arguments_is_not_kept(place, driver):
    """What was asked for under a marked name stays out of an unsealed ledger, whoever tells it."""
    how, place.store.sealed = {**DEAD, "redact": ("user",)}, False
    doubtful(place, driver, how=how, effect=True, user="canary-7")
    place.found = Found({"id": "canary-7"})
    outcome = driver.call(place.guard(how).run("r"), order("c2", "canary-7"))
    assert (outcome.status, place.record.state, place.record.output) == ("replayed", "completed", None)


@pytest.mark.parametrize(
    ("how", "dead", "seconds", "runs"),
    [
        (KEYED, False, 0, True),
        (KEYED, True, 0, True),
        (DEAD, True, 0, True),
        (DEAD, False, 0, False),
        (DEAD, False, 1_000_000, False),
        (SETTLED, True, 0, False),
        (SETTLED, True, 29, False),
        (SETTLED, True, 30, True),
        (SETTLED, False, 1_000_000, False),
    ],
)
def test_when_not_found_is_proof_enough(place, driver, how, dead, seconds, runs):
    """The target drops repeats; or the executor is dead; or so long after its death. Otherwise the doubt stays."""
    doubtful(place, driver, how=how, dead=dead)
    if seconds and dead:  # the first caller sees the death; the time counts from there
        assert driver.call(place.guard(how).run("r"), order("c2")).status == "in_doubt"
    place.clock.advance(seconds)
    outcome = driver.call(place.guard(how).run("r"), order("c3"))
    assert (outcome.status == "ok", place.effects == ["u1"]) == (runs, runs)
    if runs:
        assert (place.record.state, place.record.attempt, outcome.value) == ("completed", 2, {"id": "O1"})
        return
    assert (outcome.status, outcome.effect, codes(outcome)) == ("in_doubt", "unknown", ["in_doubt"])
    assert (place.record.state, place.record.resolver) == ("in_doubt", "")
    assert "asked, the target knows of no such effect" in place.record.failure
    assert (place.record.dead_since is not None) is dead
    if how is SETTLED and dead:
        assert 0 < outcome.retry_after <= 31


@pytest.mark.parametrize("found", [None, Found({"id": "O7"})])
def test_what_a_lookup_does_to_its_arguments_stays_with_it(place, driver, found):
    """The tool that runs after it, and the check of what was found, see the arguments of the call."""

    def greedy(key, arguments):
        arguments.clear()
        return found or NOT_FOUND

    seen = []
    how = {**DEAD, "lookup": greedy, "invariants": (lambda value, arguments: seen.append(arguments) or True,)}
    doubtful(place, driver, how=how)
    assert driver.call(place.guard(how).run("r"), order("c2")).ok
    assert place.effects == ([] if found else ["u1"])
    assert seen == [{"user": "u1"}]


def test_the_time_to_settle_counts_from_the_first_proof_of_death(place, driver):
    """Asking again does not begin it anew; the caller is told how long to wait."""
    doubtful(place, driver, how=SETTLED)
    waits = []
    for _ in range(3):
        waits.append(driver.call(place.guard(SETTLED).run("r"), order(f"c{len(waits)}")).retry_after)
        place.clock.advance(10)
    assert waits == pytest.approx([30.0, 20.0, 10.0])
    assert driver.call(place.guard(SETTLED).run("r"), order("last")).ok


def raising():
    raise ConnectionError("the target is away")


def exiting():
    raise SystemExit(1)


@pytest.mark.parametrize("found", [UNKNOWN, raising, exiting, None, True, "found", {"id": "O1"}])
def test_any_other_word_is_no_word(place, driver, found):
    """A target that cannot tell, fails, or says what a lookup cannot say leaves the doubt as it was."""
    doubtful(place, driver, how=KEYED)
    place.found = (lambda: found) if not callable(found) else found
    outcome = driver.call(place.guard(KEYED).run("r"), order("c2"))
    assert (outcome.status, place.record.state, place.effects) == ("in_doubt", "in_doubt", [])
    assert place.record.failure.endswith("asked, the target cannot tell")
    place.found = Found({"id": "O7"})
    assert driver.call(place.guard(KEYED).run("r"), order("c3")).status == "replayed"


def test_the_reason_does_not_grow_with_each_question(place, driver):
    """However often the target is asked, the record tells the first failure and the last answer."""
    doubtful(place, driver)
    place.found = UNKNOWN
    for number in range(3):
        driver.call(place.guard().run("r"), order(f"c{number}"))
    assert place.record.failure == "the caller never reported back; asked, the target cannot tell"


def test_a_lookup_that_hangs_is_given_up(place, driver):
    """After the tool's own deadline: the caller is told of the doubt, and what the lookup says later is not heard."""
    free = threading.Event()
    how = {**KEYED, "timeout": 0.1}
    doubtful(place, driver, how=how)
    place.found = lambda: free.wait(10) and Found({"id": "late"})
    begun = time.monotonic()
    outcome = driver.call(place.guard(how).run("r"), order("c2"))
    assert time.monotonic() - begun < 5
    assert (outcome.status, place.record.state) == ("in_doubt", "in_doubt")
    free.set()
    time.sleep(0.05)
    assert place.record.state == "in_doubt"


@pytest.mark.parametrize("found", [Found({"id": "O7"}), NOT_FOUND, raising, "hang"])
def test_an_asynchronous_lookup(place, driver, found):
    """Under both drivers it is awaited, and given up at its deadline."""

    async def look(key, arguments):
        await asyncio.sleep(5 if found == "hang" else 0)
        return found() if callable(found) else found

    how = {**KEYED, "lookup": look, "timeout": 0.3}
    doubtful(place, driver, how=how)
    outcome = driver.call(place.guard(how).run("r"), order("c2"))
    expected = {raising: "in_doubt", "hang": "in_doubt", NOT_FOUND: "ok"}.get(
        found if not isinstance(found, Found) else 0, "replayed"
    )
    assert outcome.status == expected


# -- between the question and the second execution -----------------------------------------------------------------


def opens_switch(place, run):
    place.store.flip(SwitchCommand("order", "open", "ann", "stop", place.clock.now()))


def taints_run(place, run):
    assert run.call(ToolCall("bad", "crm", {})).status == "degraded"


def stops_run(place, run):
    place.store.change_run("r", lambda state: step_down_to(state, "safe_mode", "kill_switch"))


@pytest.mark.parametrize(
    ("happens", "code"), [(opens_switch, "kill_switch"), (taints_run, "latched"), (stops_run, "writes_off")]
)
def test_writes_that_are_turned_off_while_the_target_is_asked(place, driver, happens, code):
    """The proof is there, and nothing starts: the second execution is admitted like a first one. Later it may run."""
    how = {**KEYED, "sources": None}
    doubtful(place, driver, how=how)
    run = place.guard(how).run("r")

    def meanwhile():
        happens(place, run)
        return NOT_FOUND

    place.found = meanwhile
    outcome = driver.call(run, order("c2"))
    assert (outcome.status, codes(outcome), place.effects) == ("refused", [code], [])
    assert (place.record.state, place.record.attempt) == ("in_doubt", 1)
    place.found = NOT_FOUND
    other = place.guard({**KEYED, "sources": ()}).run("r")
    place.store.flip(SwitchCommand("order", "closed", "ann", "go on", place.clock.now()))
    place.store.change_run("r", lambda state: state.__class__("r"))
    assert driver.call(other, order("c3")).ok


def test_who_is_overtaken_while_it_asks_the_target_leaves_the_doubt(place, driver):
    """Suspended beyond its lease, it finds that another caller has asked and learned nothing: in doubt, nothing runs."""
    doubtful(place, driver, how=KEYED, dead=False)

    def suspended():
        place.clock.advance(41)
        place.found = UNKNOWN
        assert place.guard(KEYED).run("r").call(order("c3")).status == "in_doubt"
        return NOT_FOUND

    place.found = suspended
    outcome = driver.call(place.guard(KEYED).run("r"), order("c2"))
    assert (outcome.status, outcome.effect, codes(outcome)) == ("in_doubt", "unknown", ["in_doubt"])
    assert (place.record.state, place.record.attempt, len(place.looked), place.effects) == ("in_doubt", 1, 2, [])
    assert "the target cannot tell" in place.record.failure


def test_a_claim_whose_answer_is_lost_starts_nothing_and_ends_in_doubt(place, driver):
    """The store has it and the call does not know: not started, then in progress for others, and in doubt in the end."""
    store = FailingStore(place.store, {"admit": (1,)}, after=True)
    first = driver.call(place.guard({}, store=store).run("r"), order())
    assert (first.status, first.effect, codes(first)) == ("refused", "none", ["store_unavailable"])
    assert codes(driver.call(place.guard({}).run("r"), order("c2"))) == ["in_progress"]
    place.clock.advance(41)
    assert driver.call(place.guard({}).run("r"), order("c3")).status == "in_doubt"
    assert place.effects == []


def test_the_store_goes_away_while_the_target_is_asked(place, driver):
    """The second execution cannot be claimed, so it does not start; the doubt stays, for the next caller too."""
    store = FailingStore(place.store)
    doubtful(place, driver, how=KEYED)
    place.found = lambda: store.fail_on(("admit", "settle")) or NOT_FOUND
    outcome = driver.call(place.guard(KEYED, store=store).run("r"), order("c2"))
    assert (outcome.status, codes(outcome), place.effects) == ("in_doubt", ["in_doubt"], [])
    assert outcome.effect == "unknown"
    assert "the ledger cannot be reached" in outcome.message
    store.fail_on(())
    place.found = NOT_FOUND
    waiting = driver.call(place.guard(KEYED).run("r"), order("c3"))
    assert codes(waiting) == ["in_progress"]
    place.clock.advance(41)
    assert driver.call(place.guard(KEYED).run("r"), order("c4")).ok


@pytest.mark.parametrize("lost", [("admit",), ("admit", "settle")])
def test_the_store_goes_away_when_the_target_has_found_the_effect(place, driver, lost):
    """It is not denied: the call is refused, and told that the effect is done; later it gets what was found."""
    store = FailingStore(place.store)
    doubtful(place, driver, effect=True)
    place.found = lambda: store.fail_on(lost) or Found({"id": "O7"})
    run = place.guard(store=store).run("r")
    outcome = driver.call(run, order("c2"))
    assert (outcome.status, outcome.effect, codes(outcome)) == ("refused", "done", ["store_unavailable"])
    assert "already took effect" in outcome.text
    assert "the ledger cannot be reached" in outcome.message
    assert "Done: order" in run.answer("").text
    store.fail_on(())
    place.clock.advance(41)
    assert driver.call(place.guard().run("r"), order("c3")).value == {"id": "O7"}
    assert place.effects == ["u1"]


@pytest.mark.parametrize("after", [False, True])
def test_the_store_does_not_take_what_was_found(place, driver, after):
    """The caller hears of a doubt, or, if only the receipt was lost, of the found effect; never of a success that is not kept."""
    store = FailingStore(place.store, "settle", after=after)
    doubtful(place, driver, effect=True)
    place.found = Found({"id": "O7"})
    outcome = driver.call(place.guard(store=store).run("r"), order("c2"))
    assert (outcome.status, place.record.state) == (("replayed", "completed") if after else ("in_doubt", "resolving"))
    place.clock.advance(41)
    assert driver.call(place.guard().run("r"), order("c3")).value == {"id": "O7"}
    assert place.effects == ["u1"]


# -- the first executor comes back -----------------------------------------------------------------------------------


def late(place, claim_id, output=b'{"id":"first"}', store=None):
    """The first executor reports after all."""
    return (store or place.store).settle(Settlement(place.record.key, claim_id, "completed", place.clock.now(), output))


@pytest.mark.parametrize("found", [NOT_FOUND, UNKNOWN, Found({"id": "other"})])
def test_the_first_executor_completes_while_the_target_is_asked(place, driver, found):
    """Its word is taken, nothing runs again, and from then on all callers hear its answer."""
    doubtful(place, driver, how=KEYED, dead=False)
    first = place.record.claim_id
    place.found = lambda: (late(place, first), found)[1]
    outcome = driver.call(place.guard(KEYED).run("r"), order("c2"))
    assert (place.effects, place.record.state) == ([], "completed")
    assert outcome.status == "replayed"
    again = driver.call(place.guard(KEYED).run("r"), order("c3"))
    assert (again.status, again.value) == ("replayed", {"id": "first"})
    assert outcome.value == again.value
    assert [entry.kind for entry in place.store.audit()] == []


@pytest.mark.parametrize(("found", "said"), [(NOT_FOUND, "ok"), (Found({"id": "other"}), "replayed")])
def test_the_first_executor_completes_after_the_doubt_was_resolved(place, driver, found, said):
    """Too late: the record stays, the late word is in the audit, and it is told that its claim is lost."""
    doubtful(place, driver, how=KEYED, dead=False)
    first = place.record.claim_id
    place.found = found
    outcome = driver.call(place.guard(KEYED).run("r"), order("c2"))
    assert outcome.status == said
    before = place.record
    assert not late(place, first).accepted
    assert place.record == before
    (entry,) = place.store.audit()
    assert (entry.kind, entry.subject, entry.data["claim_id"]) == ("late_effect", before.key, first)


@pytest.mark.parametrize("found", [NOT_FOUND, Found({"id": "found"}), "a person's yes"])
def test_a_caller_that_lost_its_claim_answers_from_the_ledger(place, driver, found):
    """Suspended in its tool until others have settled its doubt, it hands out their answer, not its own (I4)."""
    place.found = found

    def slow():
        place.clock.advance(41)
        if found == "a person's yes":
            place.store.decide(Resolution(place.record.key, True, "ann", "asked", place.clock.now(), "R1"))
        else:
            place.act = lambda: {"id": "second"}
            heard.append(place.guard(SHARED).run("r2").call(order("c2")))
        return {"id": "own"}

    heard = []
    place.act = slow
    outcome = driver.call(place.guard(SHARED).run("r1"), order("c1"))
    kept = None if place.record.output is None else json.loads(place.record.output)
    assert (outcome.status, outcome.value) == ("replayed", kept)
    assert outcome.value != {"id": "own"}
    assert [one.value for one in heard] == [kept] * len(heard)
    assert [entry.kind for entry in place.store.audit()][-1] == "late_effect"


def test_a_caller_that_lost_its_claim_to_one_who_has_not_finished_is_in_doubt(place, driver):
    """Another execution is under way: nobody can answer yet, and the own value is not handed out."""
    seen = []

    def slow():
        place.clock.advance(41)
        other = place.guard(SHARED)
        seen.append(other.run("r2").begin(order("c2")))
        return {"id": "own"}

    place.act = slow
    outcome = driver.call(place.guard(SHARED).run("r1"), order("c1"))
    assert (outcome.status, outcome.value, codes(outcome)) == ("in_doubt", None, ["in_doubt"])
    assert place.record.attempt == 2


# -- reports that do not come through ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fails", "after", "slept"), [([1], False, 1), ([1, 2, 3], False, 3), ([1], True, 1), ([1, 2, 3], True, 3)]
)
def test_a_report_is_sent_again(place, driver, fails, after, slept):
    """A store that is away for a moment, or whose receipt is lost, takes the report at a later try: an ordinary success."""
    store = FailingStore(place.store, {"settle": fails}, after=after)
    outcome = driver.call(place.guard(store=store).run("r"), order())
    assert (outcome.status, outcome.value, place.record.state) == ("ok", {"id": "O1"}, "completed")
    assert len(place.clock.slept) == slept
    assert [entry.kind for entry in place.store.audit()] == []


def test_a_report_that_never_comes_through_hands_the_value_to_the_host(place, driver):
    """Four tries, then an honest doubt with the value; the effect is not repeated, and a lookup settles it later."""
    store = FailingStore(place.store, "settle")
    outcome = driver.call(place.guard(store=store).run("r"), order())
    assert (outcome.status, outcome.effect, codes(outcome)) == ("in_doubt", "done", ["not_recorded"])
    assert outcome.value == {"id": "O1"}
    assert "O1" not in outcome.text
    assert store.failed == ["settle"] * 4
    place.clock.advance(41)
    place.found = Found({"id": "O1"})
    assert driver.call(place.guard().run("r"), order("c2")).value == {"id": "O1"}
    assert place.effects == ["u1"]


@pytest.mark.parametrize("error", [RuntimeError("lost"), LookupError("declared")])
def test_a_failure_that_cannot_be_reported_is_no_licence(place, driver, error):
    """Whatever the tool raised: as long as the ledger does not know it, the effect is not tried again."""

    def broken():
        raise error

    place.act = broken
    how = {"on_ambiguous": "human", "no_effect_errors": (LookupError,)}
    store = FailingStore(place.store, "settle")
    run = place.guard(how, store=store).run("r")
    assert driver.call(run, order()).status == ("failed" if isinstance(error, LookupError) else "in_doubt")
    assert codes(driver.call(run, order("c2"))) == ["in_progress"]
    place.clock.advance(41)
    assert driver.call(run, order("c3")).status == "in_doubt"
    assert len(place.effects) == 1


# -- a repetition after a failure that had no effect ------------------------------------------------------------------------------


def busy_once(place, between=lambda: None, effect="write", **options):
    """A run whose tool says at first that it was busy, and is tried again after a minute; a lease takes 40 seconds."""
    answers = iter([LookupError("busy, nothing was booked")])

    def act():
        for error in answers:
            raise error
        return {"id": "O1"}

    place.act = act
    proof = {"transient_errors": (LookupError,)} if effect == "read" else {"no_effect_errors": (LookupError,)}
    how = {"effect": effect, **proof, "retry": RetryPolicy(retries=1, initial=60.0, cap=60.0, jitter=0)}
    sleep = place.clock.sleep
    place.clock.sleep = lambda seconds: (sleep(seconds), between())
    return place.guard(how, **options).run("r")


class RefusedError(OSError):
    """The target took nothing."""


REPEATABLE = {
    "on_ambiguous": "downstream_key",
    "idempotent": True,
    "forwards_key": True,
    "no_effect_errors": (RefusedError,),
}


@pytest.mark.parametrize("calls", [1, 2])
def test_a_harmless_failure_says_nothing_of_an_execution_before_it(place, driver, calls):
    """The first one may have had its effect, so nobody is told that nothing has: neither the model nor the ledger."""
    answers = iter([ConnectionError("reset"), RefusedError(), RefusedError()])

    def act():
        raise next(answers)

    place.act = act
    how = {**REPEATABLE, "retry": RetryPolicy(retries=1, initial=1.0)} if calls == 1 else REPEATABLE
    run = place.guard(how).run("r")
    for number in range(calls):
        outcome = driver.call(run, order(f"c{number}"))
    assert (outcome.status, outcome.effect, codes(outcome)) == ("in_doubt", "unknown", ["in_doubt"])
    assert (place.record.state, place.record.failure, len(place.effects)) == ("in_doubt", "ConnectionError", 2)
    place.act = lambda: {"id": "O1"}
    assert driver.call(run, order("c9")).status == "ok"
    assert (place.record.state, place.record.failure) == ("completed", "")


@pytest.mark.parametrize("never", [False, True])
def test_a_try_after_a_question_says_nothing_of_an_execution_before_it(place, driver, never):
    """Its request may be on its way although the target knows of none: a harmless failure, or no start, ends no doubt."""
    answers = iter([ConnectionError("reset"), RefusedError()])

    def act():
        raise next(answers)

    def invoke(arguments):
        if never:
            raise ToolNotStarted("the framework goes another way")
        return place.order(**arguments)

    place.act = act
    run = place.guard({**KEYED, "no_effect_errors": (RefusedError,)}).run("r")
    assert driver.call(run, order()).status == "in_doubt"
    outcome = run.call(order("c2"), invoke=invoke)
    assert (len(place.looked), len(place.effects)) == (1, 1 if never else 2)
    assert (outcome.status, outcome.effect, codes(outcome)) == ("in_doubt", "unknown", ["in_doubt"])
    assert (place.record.state, place.record.failure) == ("in_doubt", "ConnectionError")


def test_a_failure_that_is_told_says_nothing_of_an_execution_before_it(place, driver):
    """A target that answers the second try with a failure ("I have seen this key") has not denied the first one."""
    place.act = lambda: (_ for _ in ()).throw(ConnectionError("reset"))
    run = place.guard({**REPEATABLE, "envelope": Envelope(ok="/ok", error="/error")}).run("r")
    assert driver.call(run, order()).status == "in_doubt"
    place.act = lambda: {"ok": False, "error": "duplicate"}
    outcome = driver.call(run, order("c2"))
    assert (outcome.status, outcome.effect, place.record.state) == ("in_doubt", "unknown", "in_doubt")


def test_a_harmless_failure_is_one_if_all_before_it_were(place, driver):
    """Two failures without an effect: nothing is in doubt."""
    answers = iter([RefusedError(), RefusedError()])

    def act():
        raise next(answers)

    place.act = act
    outcome = driver.call(place.guard({**REPEATABLE, "retry": RetryPolicy(retries=1, initial=1.0)}).run("r"), order())
    assert (outcome.status, outcome.effect, place.record.state) == ("failed", "none", "failed_retriable")


def test_a_harmless_failure_says_nothing_of_who_has_taken_over(place, driver):
    """The lease lapsed and another call runs the same write now: whether it takes effect is open."""

    def act():
        if len(place.effects) == 1:
            place.clock.advance(41)
            place.inner = place.guard(REPEATABLE).run("r").call(order("c2"))
            raise RefusedError
        raise ConnectionError

    place.act = act
    outcome = driver.call(place.guard(REPEATABLE).run("r"), order())
    assert place.inner.status == "in_doubt"
    assert (outcome.status, outcome.effect, place.record.state) == ("in_doubt", "unknown", "in_doubt")


def test_a_repetition_renews_its_claim(place, driver):
    """A call that is tried again when its lease has lapsed holds a lease of its own once more, counted as one call."""
    leases = []
    limits = {"limits": [{"tool": "order", "per": "run", "calls": 1}], "approvals": {"tools": ["order"]}}
    asked = []
    run = busy_once(place, config=limits, on_ask=lambda question: asked.append(question) or True)
    act = place.act
    place.act = lambda: (leases.append(place.record.lease_until - place.clock.now()), act())[1]
    outcome = driver.call(run, order())
    assert (outcome.status, outcome.attempts, place.record.state) == ("ok", 2, "completed")
    assert leases == [40.0, 40.0]
    assert len(asked) == 1


def test_a_repetition_does_not_run_beside_another_call(place, driver):
    """If somebody else ran the effect while a call waited to be tried again, that call gets the recorded result."""

    def between():
        other = place.guard({}).run("r")
        assert other.call(order("c2")).status == "in_doubt"
        place.store.decide(Resolution(place.record.key, False, "ann", "nothing was booked", place.clock.now()))
        assert other.call(order("c3")).status == "ok"

    outcome = driver.call(busy_once(place, between), order())
    assert (outcome.status, outcome.effect) == ("replayed", "done")
    assert len(place.effects) == 2


def test_a_repetition_leaves_a_doubt_to_a_person(place, driver):
    """If somebody else found the lapsed claim, it is in doubt, and the call is not tried again."""
    run = busy_once(place, lambda: place.guard({}).run("r").call(order("c2")))
    assert driver.call(run, order()).status == "in_doubt"
    assert len(place.effects) == 1


def test_a_repetition_after_a_persons_word_is_another_attempt(place, driver):
    """A person's "it did not happen" lets the waiting call run, as the next attempt of the record."""

    def between():
        place.guard({}).run("r").call(order("c2"))
        place.store.decide(Resolution(place.record.key, False, "ann", "nothing was booked", place.clock.now()))

    seen = []
    run = busy_once(place, between)
    act = place.act
    place.act = lambda: (seen.append(this_effect().attempt), act())[1]
    assert driver.call(run, order()).status == "ok"
    assert (seen, place.record.attempt) == ([1, 2], 2)


def test_a_repetition_that_cannot_be_asked_for_is_a_failure(place, driver):
    """If the store cannot renew the claim, the call ends with what it has: a failure that had no effect."""
    store = FailingStore(place.store, {"admit": (2,)})
    outcome = driver.call(busy_once(place, store=store), order())
    assert (outcome.status, outcome.effect, place.record.state) == ("failed", "none", "failed_retriable")
    assert len(place.effects) == 1


@pytest.mark.parametrize("how", ["run", "switch", "read"])
def test_what_was_stopped_is_not_tried_again(place, driver, how):
    """A try is a new start: in a run that was stopped none begins, nor one of a write under a switch that opened.

    The call ends with the last failure, whose retries are not used up, and its claim is settled.
    """

    def stop():
        if how == "switch":
            place.store.flip(SwitchCommand("*", "open", "ann", "incident", place.clock.now()))
        else:
            run.stop()

    run = busy_once(place, stop, effect="read" if how == "read" else "write")
    outcome = driver.call(run, order())
    assert (outcome.status, outcome.effect, outcome.findings[0].code) == ("failed", "none", "tool_failed")
    assert (outcome.attempts, outcome.retry_exhausted, len(place.effects)) == (1, False, 1)
    assert how == "read" or place.record.state == "failed_retriable"


def test_a_read_is_tried_again_under_an_open_switch(place, driver):
    """A kill switch stops writes, and the retries of writes; a read goes on."""
    run = busy_once(
        place, lambda: place.store.flip(SwitchCommand("*", "open", "ann", "x", place.clock.now())), effect="read"
    )
    assert (driver.call(run, order()).status, len(place.effects)) == ("ok", 2)


# -- completed in its own transaction --------------------------------------------------------------------------------------


class Shared(MemoryStore):
    """A store whose database the tool can reach: `conn` is a list of what is done at the commit."""

    durable = False

    def settle_on(self, conn, settlement):
        """Decide now, write at the commit, as a transaction does."""
        act = settle_operation(settlement)
        changes, settled = act.decide(self._read_rows(act.need))
        conn.append(lambda: self._apply_writes(changes))
        return settled.accepted


def committing(place, *, fails=None, asynchronous=False):
    """A tool that completes its effect in its own transaction, and what it then does."""

    def commit(conn):
        for change in conn:
            change()
        place.effects.append("u1")

    def tool(user):
        conn = []
        this_effect().complete(conn, reference="row-1")
        commit(conn)
        return fails() if fails else {"id": "row-1"}

    async def atool(user):
        conn = []
        await this_effect().acomplete(conn, reference="row-1")
        await asyncio.sleep(0)
        commit(conn)
        return fails() if fails else {"id": "row-1"}

    return atool if asynchronous else tool


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_effect_completed_in_its_own_transaction(place, driver, asynchronous):
    """Committed together with its record, its output filled in afterwards; a repetition is answered with it."""
    place.store = Shared()
    run = place.guard(handler=committing(place, asynchronous=asynchronous)).run("r")
    outcome = driver.call(run, order())
    assert (outcome.status, outcome.value) == ("ok", {"id": "row-1"})
    assert (place.record.state, place.record.reference, place.record.settled_at) == (
        "completed",
        "row-1",
        place.clock.now(),
    )
    assert driver.call(run, order("c2")).value == {"id": "row-1"}
    assert place.effects == ["u1"]


@pytest.mark.parametrize(
    ("fails", "status", "replayed"),
    [
        (raising, "replayed", ("replayed", None)),
        (lambda: 1 / 0, "replayed", ("replayed", None)),
        (lambda: {"ok": True, "page": "x"}, "invalid_output", ("invalid_output", None)),
        (lambda: {"ok": False, "error": "late"}, "replayed", ("replayed", None)),
    ],
)
def test_what_is_committed_stays_whatever_the_tool_does_then(place, driver, fails, status, replayed):
    """A tool that raises, claims that nothing happened, or answers nonsense after its commit has had its effect."""
    place.store = Shared()
    how = {"no_effect_errors": (ZeroDivisionError,), "envelope": Envelope(ok="/ok", error="/error")}
    run = place.guard(how, handler=committing(place, fails=fails)).run("r")
    outcome = driver.call(run, order())
    assert (place.record.state, outcome.status, outcome.effect) == ("completed", status, "done")
    again = driver.call(run, order("c2"))
    assert (again.status, again.value) == replayed
    assert place.effects == ["u1"]
    assert not [event for event in run.trace if event["event"] == "late_effect"]


@pytest.mark.parametrize("repeats", [None, "each"])
def test_what_is_committed_is_not_tried_again(place, driver, repeats):
    """A transient failure after the commit ends the call with its effect: it does not wait for itself to report."""
    place.store = Shared()
    how = {"idempotent": True, "on_ambiguous": "rerun_safe", "repeats": repeats, "retry": RetryPolicy(retries=2)}
    outcome = driver.call(place.guard(how, handler=committing(place, fails=raising)).run("r"), order())
    assert (outcome.status, outcome.effect, place.effects) == ("replayed", "done", ["u1"])
    assert (place.record.state, place.record.attempt, place.record.settled_at is None) == ("completed", 1, False)
    assert outcome.retry_after is None


def test_a_process_that_dies_after_its_commit_has_completed(place, driver):
    """Between the commit and the report: whoever comes is told that it was done, without a question to the target."""
    place.store = Shared()
    guard = place.guard(handler=committing(place), on_step=crash_at("after_invoke", how="raise"))
    with pytest.raises(Crash):
        driver.call(guard.run("r"), order())
    assert codes(driver.call(place.guard().run("r"), order("c2"))) == ["in_progress"]
    place.die()
    outcome = driver.call(place.guard().run("r"), order("c3"))
    assert (outcome.status, outcome.value, place.looked) == ("replayed", None, [])
    assert " was not kept" in outcome.text


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_completed_and_not_committed_is_in_doubt(place, driver, asynchronous):
    """Rolled back, or the commit forgotten: the tool says done, and neither its effect nor the record is there."""
    place.store = Shared()

    def tool(user):
        this_effect().complete([])
        return {"id": "row-1"}

    async def atool(user):
        await this_effect().acomplete([])
        return {"id": "row-1"}

    run = place.guard(handler=atool if asynchronous else tool).run("r")
    outcome = driver.call(run, order())
    assert (outcome.status, place.record.state) == ("in_doubt", "in_doubt")
    assert "without a commit" in outcome.message


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_execution_that_has_lost_its_claim_rolls_back(place, driver, asynchronous):
    """`complete` raises before anything is committed: of two executions only one has its effect."""
    place.store = Shared()
    others = []

    def overtaken(tool):
        def sync(user):
            place.clock.advance(41)
            others.append(place.guard(SHARED, handler=committing(place)).run("r2").call(order("c2")))
            return tool(user)

        async def awaited(user):
            place.clock.advance(41)
            others.append(await place.guard(SHARED, handler=committing(place)).run("r2").acall(order("c2")))
            return await tool(user)

        return awaited if asynchronous else sync

    tool = overtaken(committing(place, asynchronous=asynchronous))
    outcome = driver.call(place.guard(SHARED, handler=tool).run("r1"), order())
    assert [one.status for one in others] == ["ok"]
    assert (outcome.status, outcome.value, place.effects) == ("replayed", {"id": "row-1"}, ["u1"])
    assert place.record.attempt == 2


def test_a_store_without_a_reachable_database_says_so(place, driver):
    """`complete` on a memory store is a mistake that names what is missing; nothing is recorded as done."""

    def tool(user):
        this_effect().complete(object())

    outcome = driver.call(place.guard(handler=tool).run("r"), order())
    assert (outcome.status, place.record.state) == ("in_doubt", "in_doubt")
    assert "MemoryStore holds no database" in outcome.message


def test_what_a_tool_may_know_of_its_effect(place, driver):
    """Key, attempt, deadline and headers; outside of a guarded write, and in a read, there is no effect."""
    seen = []

    def tool(user):
        effect = this_effect()
        seen.append((effect.key, effect.attempt, effect.headers, effect.meta, effect.seconds_left, effect.deadline))
        return {"id": "O1"}

    outcome = driver.call(place.guard({"timeout": 5.0}, handler=tool).run("r"), order())
    key, attempt, headers, meta, left, deadline = seen[0]
    assert (key, attempt) == (outcome.key, 1)
    assert (headers, meta) == ({"Idempotency-Key": key}, {"pokayoke/idempotency-key": key})
    assert 0 < left <= 5.0
    assert deadline > time.monotonic()
    with pytest.raises(UsageError, match="for the handler of a guarded write"):
        this_effect()


# -- a real death ------------------------------------------------------------------------------------------------------------

DYING = """
import os, signal, sys
from pokayoke import Contract, Guard, ToolCall
url, log, when = sys.argv[1:]

def order(user):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(log, "a") as file:
        file.write("effect\\n")
    os.kill(os.getpid(), signal.SIGKILL)

schema = {"type": "object", "properties": {"user": {"type": "string"}}, "required": ["user"]}
Guard([Contract.from_schema("order", schema, handler=order, output_schema={})], store=url).run("r").call(
    ToolCall("c1", "order", '{"user": "u1"}')
)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="death is proven from /proc")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_process_ends_its_lease_at_once(driver, tmp_path, when):
    """SIGKILL in the tool: the next process asks the target without waiting for the lease, and one effect there is."""
    url, log = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "effects"
    open_store(url, create=True).close()
    child = run_script(DYING, [url, str(log), when])
    assert child.returncode == -signal.SIGKILL, child.stderr

    def act(user):
        with log.open("a") as file:
            file.write("effect\n")
        return {"id": "O1"}

    contract = Contract.from_schema(
        "order", ORDER, output_schema={}, handler=act, **DEAD,
        lookup=lambda key, arguments: Found({"id": "O1"}) if log.exists() else NOT_FOUND,
    )  # fmt: skip
    guard = Guard([contract], store=url)
    begun = time.monotonic()
    outcome = driver.call(guard.run("r"), order("c2"))
    assert time.monotonic() - begun < 20
    assert (outcome.status, outcome.value) == ("ok" if when == "before" else "replayed", {"id": "O1"})
    assert log.read_text() == "effect\n"
    assert guard.store.record(outcome.key).attempt == (2 if when == "before" else 1)
    guard.close()


# -- interrupted anywhere --------------------------------------------------------------------------------------------------------


class Interrupting:
    """Raises at the n-th moment at which the host's code, the tool or the store is at work."""

    def __init__(self, number):
        self.left, self.passed = number, 0

    def __call__(self, *_):
        """One more moment."""
        self.passed += 1
        if self.passed == self.left:
            raise KeyboardInterrupt


class Interrupted(MemoryStore):
    """A store that is interrupted before or after it has carried out an act."""

    def __init__(self, moment):
        super().__init__()
        self.moment = moment

    def run(self, act):
        """Two moments around each act."""
        return self.around(super().run, act)

    def admit(self, request):
        """As in `run`."""
        return self.around(super().admit, request)

    def settle(self, settlement):
        """As in `run`."""
        return self.around(super().settle, settlement)

    def around(self, method, thing):
        self.moment()
        result = method(thing)
        self.moment()
        return result


def consistent(place, store, effects):
    """Whatever was interrupted: nothing is lost, and the next caller ends in one effect or in an honest doubt."""
    records = store.records(RecordQuery())
    assert len(effects) <= 1
    assert not effects or records
    place.clock.advance(41)
    place.die()
    place.found = lambda: Found({"id": "O1"}) if effects else NOT_FOUND
    return len(records)


def test_ctrl_c_at_every_moment_of_a_synchronous_call(place):
    """From the first act to the last, the claim is there or was never taken, and the effect happens once in all."""
    number, states = 0, set()
    while True:
        number += 1
        place.effects.clear()
        moment = Interrupting(number)
        place.store = Interrupted(moment)
        place.act = lambda moment=moment: (moment(), {"id": "O1"})[1]
        try:
            outcome = place.guard(on_step=moment).run("r").call(order())
        except KeyboardInterrupt:
            outcome = None
        reached = moment.passed
        moment.left = 0
        if outcome is not None:
            assert (outcome.status, reached < number) == ("ok", True)
            break
        states.add((consistent(place, place.store, place.effects), len(place.effects)))
        after = place.guard().run("r").call(order("c2"))
        assert after.status in ("ok", "replayed")
        assert place.effects == ["u1"]
    assert number > 4
    assert {(0, 0), (1, 0), (1, 1)} <= states


def test_a_cancelled_task_at_every_await(place):
    """Cancelled at the n-th time the loop turns, in admission, tool, lookup or settlement; one effect in all."""

    class Slow(MemoryStore):
        async def arun(self, act):
            await asyncio.sleep(0)
            result = self.run(act)
            await asyncio.sleep(0)
            return result

    async def tool(user):
        await asyncio.sleep(0)
        place.effects.append(user)
        await asyncio.sleep(0)
        return {"id": "O1"}

    async def cancelled(number, guard, call):
        task = asyncio.ensure_future(guard.run("r").acall(call))
        for _ in range(number):
            await asyncio.sleep(0)
        if task.done():
            return task.result()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(20):  # what is shielded ends by itself
            await asyncio.sleep(0)
        return None

    number, states = 0, set()
    while True:
        number += 1
        place.effects.clear()
        place.store = Slow()
        outcome = asyncio.run(cancelled(number, place.guard(handler=tool), order()))
        if outcome is not None:
            assert outcome.ok
            break
        states.add((consistent(place, place.store, place.effects), len(place.effects)))
        # The one who settles the doubt is cancelled as well, once, and the third call ends it.
        asyncio.run(cancelled(number, place.guard(handler=tool), order("c2")))
        place.clock.advance(41)
        place.die()
        after = asyncio.run(place.guard(handler=tool).run("r").acall(order("c3")))
        assert after.status in ("ok", "replayed")
        assert place.effects == ["u1"]
    assert number > 4
    assert states == {(1, 0), (1, 1)}


class Queue(MemoryStore):
    """A store whose admissions take a while when they are awaited."""

    def __init__(self):
        super().__init__()
        self.asked, self.outages = asyncio.Event(), 0

    async def arun(self, act):
        if act.name == "admit":
            self.asked.set()
            await asyncio.sleep(0.02)
        elif self.outages:
            self.outages -= 1
            raise OSError("gone")
        return self.run(act)


async def cancelled_in_the_queue(place, call, how=None):
    """Cancel a call while it waits for its admission, and let what goes on without it come to its end."""
    task = asyncio.ensure_future(place.guard(how).run("r").acall(call))
    await place.store.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.3)


@pytest.mark.parametrize("outages", [0, 1], ids=["at once", "reported again"])
def test_a_claim_is_given_back_if_its_caller_was_cancelled_in_the_queue(place, outages):
    """The tool has not begun, so nothing is in doubt: the next call executes, and nobody has to decide."""
    place.store = Queue()
    place.store.outages = outages
    asyncio.run(cancelled_in_the_queue(place, order()))
    assert (place.record.state, place.record.failure) == (
        "failed_retriable",
        "the caller was cancelled before the tool began",
    )
    for _ in range(3):  # what never begins uses up no attempt
        place.store.asked = asyncio.Event()
        asyncio.run(cancelled_in_the_queue(place, order("c2")))
    assert (place.record.state, place.record.attempt) == ("failed_retriable", 0)
    after = asyncio.run(place.guard().run("r").acall(order("c3")))
    assert (after.status, place.effects, place.record.attempt) == ("ok", ["u1"], 1)


def test_a_claim_that_is_renewed_when_its_caller_is_cancelled_keeps_its_attempt(place):
    """The tool has begun before, and may have told its number to the target: the next one gets another."""

    async def main():
        task = asyncio.ensure_future(run.acall(order()))
        await place.store.asked.wait()
        place.store.asked.clear()
        await place.store.asked.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.3)

    place.store = Queue()
    run = busy_once(place)
    asyncio.run(main())
    assert (place.record.state, place.record.attempt, place.effects) == ("failed_retriable", 1, ["u1"])


def test_a_claim_that_the_loop_did_not_wait_for_is_a_doubt_of_the_run(place):
    """The loop ends while the ledger takes a claim: nobody gives it back, so the run says that it is in doubt."""

    class Taking(Queue):
        async def arun(self, act):
            result = self.run(act)
            self.asked.set()
            await asyncio.sleep(5)
            return result

    async def main():
        task = asyncio.ensure_future(run.acall(order()))
        await place.store.asked.wait()
        return task

    place.store = Taking()
    run = place.guard().run("r")
    task = asyncio.run(main())
    assert (task.cancelled(), place.record.state, place.effects) == (True, "executing", [])
    run.close()
    assert run.stop_reason == "in_doubt"


@pytest.mark.parametrize("ended", [True, False], ids=["done", "left open"])
def test_a_call_cancelled_while_it_waits_says_nothing_of_its_equal(place, ended):
    """Two equal calls, one cancelled before it hears that the other is at work: what the other did is what counts."""

    async def main():
        first, second = (asyncio.ensure_future(run.acall(order(name))) for name in ("c1", "c2"))
        await place.store.asked.wait()
        second.cancel()
        if not ended:
            await begun.wait()
            await asyncio.sleep(0.05)
            first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        await asyncio.sleep(0.1)

    async def tool(user):
        begun.set()
        await asyncio.sleep(0 if ended else 5)
        return {"id": "O1"}

    place.store, begun = Queue(), asyncio.Event()
    run = place.guard(handler=tool).run("r")
    asyncio.run(main())
    run.close()
    assert run.stop_reason == ("success" if ended else "in_doubt")


def test_a_doubt_is_not_given_back(place):
    """Cancelled while it becomes the one who asks the target: whether the first execution had an effect is open."""
    place.store = Queue()
    with pytest.raises(Crash):
        place.guard(on_step=crash_at("after_invoke", how="raise")).run("r").call(order())
    place.clock.advance(41)
    asyncio.run(cancelled_in_the_queue(place, order("c2")))
    assert place.record.state == "resolving"
    place.die()
    place.clock.advance(41)
    place.found = Found({"id": "O1"})
    assert place.guard().run("r").call(order("c3")).status == "replayed"
    assert place.effects == ["u1"]


def test_a_doubt_that_was_taken_over_is_not_given_back(place):
    """Cancelled while it takes over a write that may be repeated: what the first execution has left open stays open."""
    place.store = Queue()
    with pytest.raises(Crash):
        place.guard(REPEATABLE, on_step=crash_at("after_invoke", how="raise")).run("r").call(order())
    place.clock.advance(41)
    asyncio.run(cancelled_in_the_queue(place, order("c2"), REPEATABLE))
    assert (place.record.state, place.record.attempt) == ("in_doubt", 2)
    assert place.record.failure == "the caller never reported back"


def test_a_settlement_is_not_lost_with_its_caller(place):
    """Cancelled while the finished effect is being reported: the report goes on, and the record is completed."""

    class Slow(MemoryStore):
        async def arun(self, act):
            if act.name == "settle":
                settling_now.set()
                await asyncio.sleep(0.02)
            return self.run(act)

    async def main():
        task = asyncio.ensure_future(place.guard().run("r").acall(order()))
        await settling_now.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert place.record.state == "executing"
        await asyncio.sleep(0.1)

    settling_now = asyncio.Event()
    place.store = Slow()
    asyncio.run(main())
    assert (place.record.state, place.record.output) == ("completed", b'{"id":"O1"}')


def test_a_settlement_is_not_lost_with_its_event_loop(place):
    """The loop ends at its n-th turn and takes its tasks with it: what the tool has returned is recorded all the same."""

    class Slow(MemoryStore):
        async def arun(self, act):
            await asyncio.sleep(0)
            result = self.run(act)
            await asyncio.sleep(0)
            return result

    async def tool(user):
        await asyncio.sleep(0)
        returned.append(user)
        return {"id": "O1"}

    async def main(turns):
        tasks.append(asyncio.ensure_future(place.guard(handler=tool).run("r").acall(order())))
        for _ in range(turns):
            await asyncio.sleep(0)

    seen = set()
    for turns in range(20):
        place.store, returned, tasks = Slow(), [], []
        asyncio.run(main(turns))
        if returned:
            assert (place.record.state, place.record.output) == ("completed", b'{"id":"O1"}')
        seen.add((len(returned), tasks[0].cancelled()))
    assert seen == {(0, True), (1, True), (1, False)}


def test_another_write_of_the_tool_ends_no_doubt_about_one_that_was_left():
    """A cancelled write, refused in the next turn as still running, stays unsettled when a sibling succeeds."""

    async def act():
        begun = asyncio.Event()

        async def pay(user):
            if user == "A":
                begun.set()
                await asyncio.sleep(30)
            return {"id": user}

        run = Guard([Contract.from_schema("pay", ORDER, output_schema=ORDERED, handler=pay)]).run("r")
        left = asyncio.create_task(run.acall(ToolCall("c1", "pay", {"user": "A"})))
        await begun.wait()
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        run.user("again")
        assert (await run.acall(ToolCall("c2", "pay", {"user": "A"}))).stop_reason == "in_doubt"
        assert (await run.acall(ToolCall("c3", "pay", {"user": "B"}))).ok
        return run.answer("Both are paid.").text

    assert "not known whether pay took effect" in asyncio.run(act())


NOBODY_KNOWS = "It is not known whether pay took effect."
KNOWN_TARGET = {"on_ambiguous": "downstream_key", "forwards_key": True}
ASKED_TARGET = {
    "on_ambiguous": "lookup", "lookup": lambda key, arguments: NOT_FOUND, "lookup_safe": "downstream_key", "forwards_key": True,
}  # fmt: skip


@pytest.mark.parametrize("target", [KNOWN_TARGET, ASKED_TARGET], ids=["runs again", "looked up"])
@pytest.mark.parametrize(("answer", "status"), [(True, "ok"), (None, "pending"), (False, "refused")])
def test_a_question_about_a_write_in_doubt_is_asked_and_ends_no_doubt(driver, target, answer, status):
    """Its first yes has expired: the callback is asked anew, and until it runs again nobody says that nothing happened."""
    clock, tries, answers = FrozenClock(), [], [True]

    def pay(user):
        tries.append(user)
        if len(tries) == 1:
            raise OSError
        return {"id": user}

    contract = Contract.from_schema("pay", ORDER, output_schema=ORDERED, handler=pay, approval=True, **target)
    run = Guard([contract], clock=clock, on_ask=lambda _: answers[-1]).run("r")
    call = ToolCall("c", "pay", {"user": "A"})
    assert driver.call(run, call).status == "in_doubt"
    clock.advance(100_000)
    answers.append(answer)
    for _ in range(2):  # the first one is told that the yes has expired
        said = driver.call(run, call)
        done = said.status == "ok"
        assert said.effect == ("done" if done else "unknown")
        assert done or "not known whether an earlier try of it took effect" in said.text
        assert run.answer("Paid.").text == "Paid." + ("" if done else f"\n\n[{NOBODY_KNOWS}]")
        assert ("Done: pay." if done else NOBODY_KNOWS) in run.answer(None).text
    assert (said.status, len(tries)) == (status, 1 + (answer is True))
    run.close()
    assert run.stop_reason == {True: "success", None: "in_doubt", False: "loop_detected"}[answer]
