"""Every act over every store: one set of rules, the same answers."""

import threading
from concurrent.futures import ThreadPoolExecutor
from math import inf

import msgspec
import pytest

from pokayoke.core.ledger.admission import AdmissionRequest, Approval, Charge, Endorsement, LimitState
from pokayoke.core.ledger.records import Claim, Resolution, Settlement
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.core.state.run_state import Taint, latch, step_down_to
from pokayoke.errors import StoreError
from pokayoke.stores import operations as acts
from pokayoke.stores.operations import Operation, ReadSet, WriteSet
from pokayoke.stores.values import AuditEntry, RecordQuery, SwitchCommand

WISH = Claim("k", "h1", "c1", "pay", "pay@1", "r", now=100.0, lease=10.0, owner="me")
QUESTION = Approval("a1", "f1", "pay", "pay@1", {"amount": [1, 2.5, None, "é"]}, "r", 100.0, 200.0)
DONE = Settlement("k", "c1", "completed", 101.0, output=b'{"id":7}', reference="pay_7")


def wish(**changes):
    return msgspec.structs.replace(WISH, **changes)


def request(claim=WISH, **changes):
    base = AdmissionRequest(claim.run_id if claim else "r", "pay", "write", None, claim.now if claim else 100.0, claim)
    return msgspec.structs.replace(base, **changes)


def doubtful(store, key="k", **changes):
    store.admit(request(wish(key=key, **changes)))
    store.settle(Settlement(key, changes.get("claim_id", "c1"), "in_doubt", 101.0, failure="timeout"))


# -- claims ---------------------------------------------------------------------------------------


def test_a_claim_is_kept_whole(store):
    """The record that a claim leaves is found again with every field, also through a second store on the same data."""
    answer = store.admit(request(wish(compensates="k0")))
    assert answer.kind == "execute"
    assert store.record("k") == answer.record
    assert answer.record.owner == "me"
    assert answer.record.compensates == "k0"
    assert store.record("other") is None


def test_a_claim_outlives_its_store(durable):
    """A claim and its completion are there after closing and opening again, without `create`."""
    first = durable.open()
    first.admit(request())
    first.settle(DONE)
    first.close()
    again = durable.open(create=False)
    record = again.record("k")
    assert (record.state, record.output, record.reference) == ("completed", b'{"id":7}', "pay_7")
    assert again.admit(request(wish(claim_id="c2"))).kind == "replay"
    assert again.durable


def test_the_same_claim_again_is_recognised(store):
    """A claim whose answer was lost executes again and stays attempt 1; another claim is refused meanwhile."""
    assert store.admit(request()).kind == "execute"
    again = store.admit(request(wish(now=103.0)))
    assert (again.kind, again.record.attempt, again.record.lease_until) == ("execute", 1, 113.0)
    other = store.admit(request(wish(claim_id="c2")))
    assert (other.kind, other.finding.code) == ("refuse", "in_progress")
    forked = store.admit(request(wish(owner="my child")))
    assert (forked.kind, forked.finding.code) == ("refuse", "in_progress")
    assert store.record("k") == again.record


def test_a_settlement_is_kept_whole(store):
    """Output, flags and texts of a settlement are found again; a repetition replays them and changes nothing."""
    store.admit(request())
    settled = store.settle(msgspec.structs.replace(DONE, output_ok=False, failure="bad output"))
    assert settled.accepted
    record = store.record("k")
    assert record == settled.record
    assert (record.state, record.output, record.output_ok, record.failure) == (
        "completed",
        b'{"id":7}',
        False,
        "bad output",
    )
    replay = store.admit(request(wish(claim_id="c2")))
    assert (replay.kind, replay.record) == ("replay", record)
    assert store.record("k") == record


def test_a_settlement_whose_receipt_was_lost_is_accepted_again(store):
    """The same report twice is accepted twice, changes nothing and is no late effect."""
    store.admit(request())
    assert store.settle(DONE).accepted
    assert store.settle(DONE).accepted
    assert store.audit() == ()


def test_a_completion_whose_claim_was_lost_is_a_late_effect(store):
    """A completion by a stranger leaves the record alone and is one line in the audit."""
    store.admit(request())
    late = store.settle(Settlement("k", "c9", "completed", 105.0, reference="r9"))
    assert (late.accepted, late.record) == (False, store.record("k"))
    assert store.record("k").state == "executing"
    (line,) = store.audit()
    assert (line.kind, line.subject, line.at, line.number) == ("late_effect", "k", 105.0, 1)
    assert line.data == {"claim_id": "c9", "state": "executing", "reference": "r9"}
    assert store.settle(Settlement("none", "c9", "failed_final", 105.0)) == acts.SettleResult(False, None)


def test_a_second_attempt_replaces_the_first(store):
    """After a harmless failure another run's claim takes the record over, with the next attempt and its own names."""
    store.admit(request())
    store.settle(Settlement("k", "c1", "failed_retriable", 101.0, failure="busy"))
    again = store.admit(request(wish(claim_id="c2", run_id="r2", now=102.0, owner="other", contract="pay@2")))
    assert again.kind == "execute"
    record = store.record("k")
    assert record == again.record
    assert (record.attempt, record.claim_id, record.run_id, record.owner, record.contract, record.failure) == (
        2,
        "c2",
        "r2",
        "other",
        "pay@2",
        "",
    )
    assert record.claimed_at == 102.0
    assert record.settled_at is None


def test_other_arguments_never_change_a_record(store):
    """An equal key with other arguments is a conflict and leaves the record alone."""
    store.admit(request())
    before = store.record("k")
    assert store.admit(request(wish(args_hash="h2", claim_id="c2"))).finding.code == "conflict"
    assert store.record("k") == before


def test_a_completion_in_its_own_transaction_is_filled_in_later(store):
    """An early completion has no output; the ordinary report adds it, and only then a repetition replays."""
    store.admit(request())
    assert store.settle(Settlement("k", "c1", "completed", 101.0, reference="row 5", early=True)).accepted
    assert store.record("k").settled_at is None
    assert store.settle(DONE).accepted
    record = store.record("k")
    assert (record.settled_at, record.output, record.reference) == (101.0, b'{"id":7}', "pay_7")


def test_a_doubt_is_resolved_by_its_resolver(store):
    """A resolver takes a doubt over, and its proof that nothing happened starts the next attempt."""
    doubtful(store)
    asked = store.admit(request(wish(claim_id="c2", resolves=True)))
    assert (asked.kind, store.record("k").state, store.record("k").resolver) == ("resolve", "resolving", "c2")
    again = store.admit(request(wish(claim_id="c2", resolves=True, proceed=True)))
    assert (again.kind, again.record.attempt) == ("execute", 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "é 漢字 🤖",
        'a "quote"',
        '"starts with a quote',
        "nul\x00nul",
        "half \ud800 a pair",
        "\x00",
        "line\nline",
    ],
)
def test_no_text_of_a_tool_can_make_a_report_fail(store, text):
    """Whatever a tool says in failure and reference is kept and found unchanged."""
    store.admit(request())
    assert store.settle(Settlement("k", "c1", "in_doubt", 101.0, failure=text, reference=text)).accepted
    record = store.record("k")
    assert (record.failure, record.reference) == (text, text)
    decided = store.decide(Resolution("k", True, text, text, 102.0, text))
    assert store.record("k") == decided
    assert store.audit()[-1].reason == text
    assert store.audit()[-1].data["reference"] == text


@pytest.mark.parametrize("output", [b"", b"\x00", b"\x01\x02", b"\xff\xfe", b'"' + b"x" * 100_000 + b'"', None])
def test_outputs_are_kept_byte_by_byte(store, output):
    """Outputs of any bytes and length are found unchanged."""
    store.admit(request())
    store.settle(msgspec.structs.replace(DONE, output=output))
    assert store.record("k").output == output


# -- limits ---------------------------------------------------------------------------------------


def test_a_limit_is_used_up_once_per_effect(store):
    """Two effects use a limit of two; a repetition takes nothing; the third effect is refused and leaves no record."""
    charges = (Charge("run:pay:r", 2, 100.0, 30.0), Charge("day", None, 100.0, 0.5))
    for key in ("k1", "k2"):
        assert store.admit(request(wish(key=key), charges=charges)).kind == "execute"
        store.settle(Settlement(key, "c1", "completed", 101.0))
        assert store.admit(request(wish(key=key, claim_id="c2"), charges=charges)).kind == "replay"
    third = store.admit(request(wish(key="k3"), charges=charges))
    assert third.finding.data == {"limit": "calls", "used": 2, "allowed": 2}
    assert store.record("k3") is None


def test_a_limit_is_shared_by_every_store_on_the_same_data(site):
    """What one store gave out, the other counts."""
    charges = (Charge("tool", 1, None, 0.0),)
    assert site.open().admit(request(None, charges=charges)).kind == "execute"
    assert site.open().admit(request(None, charges=charges)).finding.code == "quota_exceeded"


# -- runs -----------------------------------------------------------------------------------------


def test_a_run_is_kept_as_it_is(store):
    """The state of a run comes back with mode, taints and totals; a run nobody changed is None."""
    taint = Taint("read", "id", 3, "a \x00 and a \ud800")

    def change(state):
        return msgspec.structs.replace(
            latch(step_down_to(state, "safe_mode", "tool_failure"), taint), tokens=7, started=1.5
        )

    before, after = store.change_run("r", change)
    assert (before.version, after.version) == (0, 1)
    assert store.load_run("r") == after
    assert after.taints == (taint,)
    assert store.load_run("other") is None


def test_a_change_that_changes_nothing_is_not_written(store):
    """A run that stays as it is leaves nothing behind."""
    before, after = store.change_run("r", lambda state: state)
    assert before is after
    assert store.load_run("r") is None


def test_a_stopped_run_admits_nothing(store):
    """From the moment a run has stopped, its claims are refused; another run's are not."""
    store.change_run("r", lambda state: step_down_to(state, "stopped", "tool_failure"))
    assert store.admit(request()).finding.code == "run_stopped"
    assert store.record("k") is None
    assert store.admit(request(wish(run_id="r2"))).kind == "execute"


def test_changes_of_a_run_are_never_lost(site):
    """Forty changes by four threads through two stores are forty versions, each counted once."""
    stores = [site.open(), site.open()]

    def change(number):
        for _ in range(10):
            stores[number % 2].change_run("r", lambda state: msgspec.structs.replace(state, calls=state.calls + 1))

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = stores[0].load_run("r")
    assert (state.calls, state.version) == (40, 40)


# -- questions ------------------------------------------------------------------------------------


def test_a_question_waits_and_is_answered(store):
    """A write that needs approval is pending, keeps the question, and runs once a person has approved."""
    asking = request(approval=QUESTION)
    pending = store.admit(asking)
    assert (pending.kind, pending.approval) == ("pending", "a1")
    assert store.approvals() == (QUESTION,)
    assert store.record("k") is None
    answered = store.answer("a1", approved=True, by="ann", reason="fine \x00", now=110.0)
    assert (answered.status, answered.by, answered.decided_at) == ("approved", "ann", 110.0)
    assert store.approvals() == (answered,)
    assert store.admit(asking).kind == "execute"
    (line,) = store.audit()
    assert (line.kind, line.subject, line.by, line.reason) == ("approved", "a1", "ann", "fine \x00")
    assert line.data == {"tool": "pay", "run_id": "r"}


def test_a_question_keeps_what_its_person_has_to_know(site):
    """Limits, and the user's own words, are read as they were asked, by every process."""
    limits = (LimitState("day:pay", 3, 10, 1, "calls"), LimitState("day:pay", 4.5, 9.0, inf, "amount"))
    asked = msgspec.structs.replace(QUESTION, limits=limits, wanted='pay "Ann" \x00 é')
    assert site.open().admit(request(approval=asked)).kind == "pending"
    other = site.open()
    assert (other.approvals(), other.approval("a1")) == ((asked,), asked)


def test_a_second_person_decides(site):
    """The first yes is kept across processes and audited, one person twice is refused, and the second person decides."""
    store, asked = site.open(), msgspec.structs.replace(QUESTION, approvers=2)
    asking = request(approval=asked)
    assert store.admit(asking).kind == "pending"
    assert store.approvals() == (asked,)
    half = store.answer("a1", approved=True, by="ann", reason="fine \x00", now=110.0)
    assert (half.status, half.by, half.first) == ("waiting", None, Endorsement("ann", "fine \x00", 110.0))
    assert store.answer("a1", approved=True, by="ann", reason="fine \x00", now=110.0) == half  # its receipt was lost
    other = site.open()
    assert (other.approvals(), other.approval("a1")) == ((half,), half)
    assert other.admit(asking).kind == "pending"
    with pytest.raises(StoreError, match="a second person"):
        other.answer("a1", approved=True, by="Ann", reason="again", now=111.0)
    done = other.answer("a1", approved=True, by="bob", reason="me too", now=112.0)
    assert (done.status, done.by, done.first.by) == ("approved", "bob", "ann")
    assert store.admit(asking).kind == "execute"
    assert [(line.kind, line.by) for line in store.audit()] == [("endorsed", "ann"), ("approved", "bob")]


def test_one_yes_starts_one_read(store):
    """Of many callers that find the yes at once, one runs; the others ask anew, and that question takes an answer."""
    asking = request(None, effect="read", approval=QUESTION)
    for now in (110.0, 111.0):
        assert store.admit(asking).kind == "pending"
        store.answer("a1", approved=True, by="ann", reason="", now=now)
        with ThreadPoolExecutor(4) as callers:
            kinds = sorted(answer.kind for answer in callers.map(store.admit, [asking] * 4))
        assert kinds == ["execute", "pending", "pending", "pending"]
    store.answer("a1", approved=True, by="ann", reason="", now=112.0)
    assert store.admit(asking).kind == "execute"
    assert store.approvals()[0].status == "used"
    with pytest.raises(StoreError, match="used already, by ann; the same call asks again"):
        store.answer("a1", approved=True, by="bob", reason="", now=113.0)


def test_an_answer_whose_receipt_was_lost_is_recognised(store):
    """The same answer again returns the same; another one is refused; an unknown question is an error."""
    store.propose(QUESTION)
    first = store.answer("a1", approved=False, by="ann", reason="no", now=110.0)
    assert store.answer("a1", approved=False, by="ann", reason="no", now=110.0) == first
    with pytest.raises(StoreError, match="denied already"):
        store.answer("a1", approved=True, by="bob", reason="yes", now=111.0)
    with pytest.raises(StoreError, match="no approval 'zz'"):
        store.answer("zz", approved=True, by="bob", reason="yes", now=111.0)
    assert len(store.audit()) == 1


@pytest.mark.parametrize(
    ("kind", "approved", "at", "said"),
    [
        ("call", True, 111.0, "approved already, by ann; the same call runs when"),
        ("call", False, 111.0, "denied already, by ann; the same call stays refused"),
        ("call", True, 999.0, "expired already; the call has to ask again"),
        ("output", True, 111.0, "approved already, by ann; its output no longer holds back writes"),
        ("output", False, 111.0, "denied already, by ann; its output still holds back writes"),
    ],
)
def test_a_second_answer_hears_what_the_first_one_means(store, kind, approved, at, said):
    """Only an expired question has to be asked again; a review is about later writes, and lets no call run."""
    store.propose(msgspec.structs.replace(QUESTION, kind=kind))
    store.answer("a1", approved=approved, by="ann", reason="", now=110.0)
    with pytest.raises(StoreError, match=said):
        store.answer("a1", approved=not approved, by="bob", reason="", now=at)


def test_a_question_is_kept_once(store):
    """Proposing a question again changes nothing, whatever its new id."""
    store.propose(QUESTION)
    store.propose(msgspec.structs.replace(QUESTION, id="a2"))
    assert store.approvals() == (QUESTION,)


def test_an_expired_question_is_replaced(store):
    """A write after the expiry is refused once, and asks anew under a new id: only that one can be answered."""
    store.propose(QUESTION)
    anew = msgspec.structs.replace(QUESTION, id="a2", asked_at=300.0, expires_at=400.0)
    refused = store.admit(request(wish(now=300.0), approval=anew))
    assert (refused.finding.code, refused.approval) == ("approval_expired", "a2")
    assert store.approvals() == (anew,)
    with pytest.raises(StoreError, match="no approval 'a1'"):
        store.answer("a1", approved=True, by="ann", reason="late", now=301.0)


def test_questions_stand_in_the_order_they_were_asked(store):
    """The oldest question comes first."""
    for number, asked in enumerate((300.0, 100.0, 200.0)):
        store.propose(
            msgspec.structs.replace(
                QUESTION, id=f"a{number}", fingerprint=f"f{number}", asked_at=asked, expires_at=999.0
            )
        )
    assert [approval.id for approval in store.approvals()] == ["a1", "a2", "a0"]


def test_arguments_of_any_json_are_shown_as_they_are(store):
    """Whole numbers of any size, half characters and nesting come back unchanged."""
    arguments = {"n": 10**40, "half": "\ud800\x00", "deep": [{"a": [True, None, -0.5]}]}
    store.propose(msgspec.structs.replace(QUESTION, arguments=arguments))
    assert store.approvals()[0].arguments == arguments


# -- doubts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("happened", "state"), [(True, "completed"), (False, "failed_retriable")])
def test_a_person_settles_a_doubt(store, happened, state):
    """A person's word settles a doubt, is audited, and is recognised when it comes twice."""
    doubtful(store)
    decision = Resolution("k", happened, "ann", "looked", 110.0, "pay_7" if happened else "")
    record = store.decide(decision)
    assert (record.state, record.decided_by, record.settled_at) == (state, "ann", 110.0)
    assert store.record("k") == record
    assert store.decide(decision) == record
    (line,) = store.audit()
    assert (line.kind, line.by, line.data["was"], line.data["happened"]) == ("decided", "ann", "in_doubt", happened)
    with pytest.raises(StoreError, match="not in doubt"):
        store.decide(msgspec.structs.replace(decision, by="bob"))
    with pytest.raises(StoreError, match="no record 'zz'"):
        store.decide(msgspec.structs.replace(decision, key="zz"))


# -- the switch -----------------------------------------------------------------------------------


def test_invalid_outputs_flip_the_switch_for_every_store(site):
    """Three invalid outputs in a row open a tool's switch; from then on every store refuses writes."""
    first, second = site.open(), site.open()
    assert first.observe([OutputObservation("read", False, 90.0)] * 2, 95.0) == ()
    (rate,) = second.rates()
    assert (rate.tool, rate.streak, rate.recent) == ("read", 2, ((95.0, False), (95.0, False)))
    (turned,) = second.observe([OutputObservation("read", False, 96.0)], 97.0)
    assert (turned.scope, turned.mode, turned.epoch, turned.manual) == ("read", "open", 1, False)
    assert first.switches() == (turned,)
    assert first.rates()[0].recent == ()
    refused = first.admit(request())
    assert refused.finding.code == "kill_switch"
    assert first.record("k") is None
    (line,) = first.audit()
    assert (line.kind, line.subject, line.data) == ("switch", "read", {"mode": "open", "epoch": 1, "manual": False})


def test_a_doubt_keeps_a_switch_open_until_a_person_closes_it(store):
    """A switch of a tool with an effect in doubt is manual; one of a tool with effects in any other state is not."""
    doubtful(store)
    for number, state in enumerate(("failed_final", "failed_retriable", "completed")):
        store.admit(request(wish(key=f"r{number}", tool="read")))
        store.settle(Settlement(f"r{number}", "c1", state, 101.0))
    store.admit(request(wish(key="open", tool="read")))
    turned = {
        s.scope: s
        for s in store.observe(
            [OutputObservation("pay", False, 90.0)] * 3 + [OutputObservation("read", False, 90.0)] * 3, 95.0
        )
    }
    assert (turned["pay"].manual, turned["read"].manual) == (True, False)


def test_a_person_flips_a_switch(store):
    """A flip by hand refuses writes, its repetition is recognised, and closing it lets them through in a later epoch."""
    store.observe([OutputObservation("read", True, 90.0)], 95.0)
    flip = SwitchCommand("read", "open", "ann", "maintenance", 100.0)
    opened = store.flip(flip)
    assert store.flip(flip) == opened
    assert (opened.mode, opened.manual, opened.epoch) == ("open", True, 1)
    assert store.rates()[0].recent == ()
    assert store.admit(request()).finding.code == "kill_switch"
    closed = store.flip(SwitchCommand("read", "closed", "ann", "done", 101.0))
    assert (closed.mode, closed.epoch) == ("closed", 2)
    answer = store.admit(request())
    assert (answer.kind, answer.record.epoch) == ("execute", 2)
    assert [line.data["mode"] for line in store.audit()] == ["open", "closed"]
    assert store.switches() == (closed,)


def test_notes_are_numbered(store):
    """Lines of the audit come back whole, numbered from 1, page by page."""
    lines = [
        AuditEntry(float(n), "compensated", f"k{n}", "ann", "\x00why", {"n": n, "text": "\ud800"}) for n in range(5)
    ]
    for line in lines:
        store.note(line)
    kept = store.audit()
    assert [msgspec.structs.replace(line, number=0) for line in kept] == lines
    assert [line.number for line in kept] == [1, 2, 3, 4, 5]
    assert store.audit(after=2, limit=2) == kept[2:4]
    assert store.audit(limit=0) == ()


# -- what acts promise ----------------------------------------------------------------------------


def test_an_act_that_fails_changes_nothing(store):
    """What an act raises reaches its caller, and nothing of it is written."""

    def fails(_):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        store.run(Operation("test", ReadSet(record="k"), fails))
    with pytest.raises(ZeroDivisionError):
        store.change_run("r", lambda _: 1 / 0)
    assert (store.load_run("r"), store.audit(), store.records(RecordQuery())) == (None, (), ())
    assert store.admit(request()).kind == "execute"


def test_an_act_sees_everything_it_asked_for(store):
    """An act is shown record, run, limits, question by id and board at once, and nothing it did not ask for."""
    store.admit(request(charges=(Charge("n", 5, None, 1.0),)))
    store.change_run("r", lambda state: msgspec.structs.replace(state, calls=1))
    store.propose(QUESTION)
    store.flip(SwitchCommand("read", "open", "ann", "", 1.0))
    seen = store.run(
        Operation("test", ReadSet("k", "r", True, ("n", "m"), None, "a1", "all"), lambda books: (WriteSet(), books))
    )
    assert (seen.record.key, seen.run.calls, seen.approval.id) == ("k", 1, "a1")
    assert set(seen.used) == {"n"}
    assert set(seen.board.switches) == {"read"}
    nothing = store.run(Operation("test", ReadSet(), lambda books: (WriteSet(), books)))
    assert (nothing.record, nothing.run, nothing.approval, dict(nothing.used)) == (None, None, None, {})


async def test_asynchronous_twins_do_the_same(store):
    """Each method with an `a` does what its plain twin does."""
    assert (await store.aadmit(request())).kind == "execute"
    assert (await store.asettle(DONE)).accepted
    assert (await store.achange_run("r", lambda state: msgspec.structs.replace(state, calls=3)))[1].calls == 3
    assert store.record("k").state == "completed"
    with pytest.raises(StoreError, match="no record 'zz'"):
        await store.arun(acts.decide_operation(Resolution("zz", True, "ann", "", 1.0)))


def test_a_key_is_claimed_once_by_many_threads(site):
    """Sixteen threads on two stores claim the same keys: each key executes exactly once."""
    stores = [site.open(), site.open()]
    executed = []

    def claim_all(number):
        for key in range(12):
            answer = stores[number % 2].admit(request(wish(key=f"k{key}", claim_id=f"c{number}")))
            if answer.kind == "execute":
                executed.append(key)

    threads = [threading.Thread(target=claim_all, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(executed) == list(range(12))


def test_an_id_of_two_questions_answers_neither(store):
    """Which of them is meant nobody can say: neither is answered or shown by that id, and both go on waiting."""
    store.propose(QUESTION)
    store.propose(msgspec.structs.replace(QUESTION, fingerprint="f2"))
    for asked in (
        lambda: store.answer("a1", approved=True, by="ann", reason="", now=101.0),
        lambda: store.approval("a1"),
    ):
        with pytest.raises(StoreError, match="approval 'a1' names 2 questions"):
            asked()
    assert [known.status for known in store.approvals()] == ["waiting", "waiting"]
    assert store.audit() == ()
