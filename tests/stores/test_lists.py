"""Pages, counts and overviews, over every store: a database finds what a plain look at everything finds."""

import random

import msgspec
import pytest

from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Claim, Resolution, Settlement
from pokayoke.core.state.run_state import Taint, latch, step_down_to
from pokayoke.stores import lists
from pokayoke.stores.lists import AuditFilter, EffectFilter, RunFilter
from pokayoke.stores.values import RecordQuery, SwitchCommand

NOW = 1_000_000.0
EVERY = RecordQuery(limit=10_000)


@pytest.fixture
def busy(store):
    """A store in which much has happened: effects of each state, questions answered, expired and open, runs."""
    draw = random.Random(7)
    for number in range(70):
        key, tool, run = f"{draw.getrandbits(32):08x}", draw.choice(["pay", "ship", "mail"]), f"r{number % 11}"
        claimed = NOW - draw.choice([10.0, 400.0, 1_000.0, 5_000.0])
        wish = Claim(key, "h", "c1", tool, f"{tool}@1", run, claimed, draw.choice([5.0, 90_000.0]))
        store.admit(AdmissionRequest(run, tool, "write", None, claimed, wish))
        state = draw.choice(["executing", "completed", "completed", "failed_retriable", "failed_final", "in_doubt"])
        if state != "executing":
            store.settle(Settlement(key, "c1", state, claimed + 1.0, output=b"1" if state == "completed" else None))
        if state == "in_doubt" and draw.random() < 0.5:
            store.decide(Resolution(key, True, "ann", "seen", NOW - draw.choice([5.0, 2_000.0, 9_000.0]), "REF"))
    for number in range(36):
        asked = NOW - draw.choice([5.0, 700.0, 3_000.0, 8_000.0])
        question = Approval(
            f"ap-{number:06x}",
            f"{number:064x}",
            "pay",
            "pay@1",
            {"n": number},
            "r1",
            asked,
            asked + draw.choice([60.0, 6_000.0]),
        )
        store.propose(question)
        if draw.random() < 0.4 and question.expires_at > NOW:
            store.answer(question.id, approved=draw.random() < 0.5, by="bob", reason="", now=min(asked + 20.0, NOW))
    for number in range(9):
        if number % 3 == 1:
            store.change_run(
                f"r{number}",
                lambda run: step_down_to(msgspec.structs.replace(run, started=NOW), "stopped", "kill_switch"),
            )
        elif number % 3 == 2:
            store.change_run(
                f"r{number}", lambda run: latch(msgspec.structs.replace(run, started=NOW), Taint("read", "", 1, "page"))
            )
        else:
            store.change_run(f"r{number}", lambda run: msgspec.structs.replace(run, calls=3, started=NOW))
    store.flip(SwitchCommand("pay", "open", "ann", "drift", NOW))
    return store


FILTERS = [
    {},
    {"tool": "pay"},
    {"run_id": "r3"},
    {"states": ("completed",)},
    {"states": ("failed_final", "failed_retriable")},
    {"doubtful_at": NOW},
    {"doubtful_at": NOW, "tool": "ship"},
    {"since": NOW - 500.0},
    {"until": NOW - 500.0, "tool": "mail"},
    {"key": "7"},
    {"key": "zz"},
    {"tool": "nothing"},
]


@pytest.mark.parametrize("fields", FILTERS, ids=str)
def test_pages_of_effects_hold_what_a_look_at_everything_finds(busy, fields):
    """Page after page shows each effect that the filter describes once, in order, and the count agrees."""
    wanted = EffectFilter(**fields, limit=7)
    expected = lists.select_effects(busy.records(EVERY), msgspec.structs.replace(wanted, limit=1_000))
    seen = []
    while page := busy.effects(wanted):
        seen += page
        wanted = msgspec.structs.replace(wanted, after=(page[-1].claimed_at, page[-1].key))
    assert seen == list(expected)
    assert busy.count_effects(wanted) == len(expected)


def test_counting_ends(busy, monkeypatch):
    """A count says one more than the most it counts, and no more."""
    for module in (lists, pytest.importorskip("pokayoke.stores.sql.pages")):
        monkeypatch.setattr(module, "MOST_COUNTED", 10)
    assert busy.count_effects(EffectFilter()) == 11
    assert busy.pulse(NOW).doubts == 11


def test_waiting_questions_come_by_urgency(busy):
    """Only what waits and has not expired is listed, the one that expires first on top, each once."""
    expected = lists.select_waiting(busy.approvals(), NOW, None, 1_000)
    seen, after = [], None
    while page := busy.waiting_approvals(NOW, after=after, limit=4):
        seen += page
        after = lists.question_place(page[-1])
    assert seen == list(expected)
    assert len(seen) > 4


@pytest.mark.parametrize(
    "fields",
    [{}, {"kinds": ("approved", "denied")}, {"subjects": ("pay",)}, {"subjects": ("ap-000001", "pay")}],
    ids=str,
)
def test_pages_of_the_audit_come_latest_first(busy, fields):
    """Each line once, the latest first, also where only some kinds or subjects are wanted."""
    expected = lists.select_lines(busy.audit(limit=10_000), AuditFilter(**fields, limit=10_000))
    seen, before = [], None
    while page := busy.audit_lines(AuditFilter(**fields, before=before, limit=5)):
        seen += page
        before = page[-1].number
    assert seen == list(expected)


@pytest.mark.parametrize(
    ("modes", "expected"),
    [((), "012345678"), (("stopped",), "147"), (("safe_mode",), "258"), (("safe_mode", "stopped"), "124578")],
)
def test_runs_are_found_by_their_mode(busy, modes, expected):
    """Ladder and latch are taken together, and pages hold every run once."""
    seen, after = [], None
    while page := busy.runs(RunFilter(modes=modes, after=after, limit=2)):
        seen += [entry.state.run_id for entry in page]
        after = lists.run_place(page[-1])
    assert sorted(seen) == [f"r{number}" for number in expected]
    assert [one.state.run_id for one in busy.runs(RunFilter(run_ids=("r2", "nobody")))] == ["r2"]


def test_an_overview_says_what_a_look_at_everything_says(busy):
    """Questions and doubts over the hour are those that were open at each moment, and the oldest is told."""
    expected = lists.build_overview(busy.approvals(), busy.records(EVERY), (), NOW)
    found = busy.overview(NOW)
    assert (found.questions, found.doubts) == (expected.questions, expected.doubts)
    assert found.questions.now == len(lists.select_waiting(busy.approvals(), NOW, None, 1_000))
    assert found.doubts.now == busy.count_effects(EffectFilter(doubtful_at=NOW))
    assert found.doubts.points[0] > 0


def test_an_overview_counts_runs_that_have_left_normal(busy):
    """Runs are counted by mode, and those in `normal` are not."""
    by_now = max((entry.touched_at for entry in busy.runs(RunFilter())), default=NOW) + 0.5
    assert {mode: trend.now for mode, trend in busy.overview(by_now).modes.items()} == {"safe_mode": 3, "stopped": 3}


def test_an_empty_store_has_an_overview(store):
    """Nothing is counted, and nothing is missing."""
    assert store.overview(NOW) == lists.Overview(lists.Trend(), lists.Trend(), {})
    assert (store.pulse(NOW).questions, store.pulse(NOW).doubts) == (0, 0)


CHANGES = {
    "a claim": lambda s: s.admit(
        AdmissionRequest("x", "tell", "write", (), NOW + 1, Claim("new", "h", "c", "tell", "tell@1", "x", NOW + 1, 9.0))
    ),
    "a question": lambda s: s.propose(Approval("ap-f", "f" * 64, "pay", "pay@1", {}, "x", NOW, NOW + 50.0)),
    "a flipped switch": lambda s: s.flip(SwitchCommand("*", "open", "ann", "stop", NOW + 1)),
    "an answer": lambda s: s.answer(s.waiting_approvals(NOW)[0].id, approved=True, by="b", reason="", now=NOW - 1),
    "a settled doubt": lambda s: s.decide(
        Resolution(s.effects(EffectFilter(doubtful_at=NOW))[0].key, False, "a", "r", NOW + 2)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_changes_the_pulse(busy, change):
    """Whoever looks at a pulse once in a while misses nothing that a page shows."""
    before = busy.pulse(NOW)
    assert busy.pulse(NOW) == before
    CHANGES[change](busy)
    assert busy.pulse(NOW) != before


def test_the_board_is_the_switches_and_the_rates(busy):
    """Read at one moment, each in its own order."""
    assert busy.board() == (busy.switches(), busy.rates())
    assert busy.board()[0]
