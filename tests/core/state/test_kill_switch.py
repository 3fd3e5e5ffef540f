"""The kill switch: what trips it, what closes it, what it stops; and how fast, over simulated faults."""

import itertools
import random
import statistics

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.state.kill_switch import (
    ALL_TOOLS,
    AUTOMATIC_ACTOR,
    OutputObservation,
    OutputRate,
    Switch,
    SwitchState,
    count_outputs,
    flip_switch,
    mode_at,
    open_switch_finding,
)

GOOD, BAD = True, False


def merged(board, changes):
    return SwitchState({**board.rates, **changes.rates}, {**board.switches, **changes.switches}, board.doubtful)


def fed(outputs, *, board=None, start=1000.0, every=1.0, tool="crm", read=True):
    """The board after these outputs of one tool, one each `every` seconds, and the second of the last."""
    board, now = board or SwitchState(), start
    for valid in outputs:
        now += every
        board = merged(board, count_outputs(board, [OutputObservation(tool, valid, now, read)], now))
    return board, now


def mode(board, scope="crm"):
    return board.switches[scope].mode if scope in board.switches else "never flipped"


# -- tripping -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "trips", "why"),
    [
        ([], False, ""),
        ([BAD] * 2, False, ""),
        ([BAD] * 3, True, "3 invalid outputs in a row"),
        ([BAD, BAD, GOOD, BAD, BAD], False, ""),
        ([GOOD] * 60 + [BAD] * 2, False, ""),
        ([GOOD] * 60 + [BAD] * 3, True, "3 invalid outputs in a row"),
        # a share: at least ten outputs, at least six invalid, at least three in ten
        ([BAD, BAD, GOOD] * 3, False, ""),
        ([BAD, BAD, GOOD] * 3 + [GOOD], False, ""),
        ([BAD, BAD, GOOD] * 3 + [GOOD, BAD], True, "7 of the last 11 outputs invalid"),
        ([BAD, BAD, GOOD, BAD, BAD, GOOD, BAD, GOOD, GOOD, BAD], True, "6 of the last 10 outputs invalid"),
        ([BAD, GOOD] * 4 + [GOOD, BAD], False, ""),
        ([BAD, GOOD, GOOD] * 4 + [BAD], False, ""),
        ([BAD, GOOD, GOOD] * 5 + [BAD], True, "6 of the last 16 outputs invalid"),
        ([GOOD] * 9 + [BAD, GOOD] * 5 + [BAD], True, "6 of the last 20 outputs invalid"),
        ([GOOD] * 10 + [BAD, GOOD] * 5 + [BAD], False, ""),
        # the window: fifty outputs, whatever came before them
        ([BAD, GOOD] * 2 + [GOOD] * 46 + [BAD, GOOD] * 4, False, ""),
        ([GOOD] * 20 + [BAD, GOOD, GOOD] * 14 + [BAD], True, "15 of the last 50 outputs invalid"),
        ([GOOD] * 20 + [BAD, GOOD, GOOD] * 14, False, ""),
    ],
)  # fmt: skip
def test_what_trips_the_switch_of_a_tool(outputs, trips, why):
    """Three in a row, or three in ten of at least ten with at least six invalid; the last output decides."""
    board, now = fed(outputs)
    assert mode(board) == ("open" if trips else "never flipped")
    if trips:
        switch = board.switches["crm"]
        assert (switch.reason, switch.by, switch.since, switch.epoch) == (why, AUTOMATIC_ACTOR, now, 1)
        assert (switch.manual, switch.opened, switch.valid) == (False, (now,), 0)
        assert board.rates["crm"] == OutputRate("crm")


@pytest.mark.parametrize(("every", "trips"), [(60.0, True), (99.0, True), (100.0, False), (101.0, False)])
def test_outputs_older_than_a_quarter_of_an_hour_do_not_count(every, trips):
    """Six invalid ones of ten outputs trip only if all ten are young enough; a streak has no age."""
    outputs = [BAD, BAD, GOOD, BAD, BAD, GOOD, BAD, GOOD, GOOD, BAD]
    assert (mode(fed(outputs, every=every)[0]) == "open") is (trips and every * 9 < 900)
    assert mode(fed([BAD] * 3, every=10_000.0)[0]) == "open"


def test_a_clock_that_was_set_back_moves_no_window():
    """Outputs counted at an earlier second join the others; nothing is forgotten."""
    board, now = fed([BAD, BAD])
    board = merged(board, count_outputs(board, [OutputObservation("crm", BAD, now)], now - 3_600))
    assert mode(board) == "open"


def test_valid_outputs_change_the_rate_only():
    """No switch is written for an output that kept its contract; the rate remembers it and its second."""
    changes = count_outputs(
        SwitchState(),
        [OutputObservation("crm", GOOD, 5.0), OutputObservation("crm", BAD, 6.0), OutputObservation("tax", GOOD, 6.0)],
        7.0,
    )
    assert changes.switches == {}
    assert changes.rates == {
        "crm": OutputRate("crm", ((7.0, True), (7.0, False)), 1), "tax": OutputRate("tax", ((7.0, True),), 0)
    }  # fmt: skip


def test_an_output_from_before_the_flip_says_nothing_about_after_it():
    """A call that began before the last flip of its tool's switch is not counted, in either direction."""
    closed = flip_switch(SwitchState(), "crm", "closed", by="ann", reason="repaired", now=100.0)
    board = merged(SwitchState(), closed)
    changes = count_outputs(board, [OutputObservation("crm", BAD, 99.9)] * 5, 101.0)
    assert (changes.rates, changes.switches) == ({}, {})
    assert mode(merged(board, count_outputs(board, [OutputObservation("crm", BAD, 100.0)] * 3, 101.0))) == "open"


def test_a_flip_that_lies_ahead_blinds_nobody():
    """A person closed the switch by a clock that was an hour fast: invalid outputs of now trip it all the same."""
    closed = Switch("crm", "closed", 2, 4_600.0, by="ann")
    board, now = fed([BAD] * 3, board=SwitchState(switches={"crm": closed}))
    assert (mode(board), board.switches["crm"].since) == ("open", now)


def test_one_batch_counts_like_one_by_one():
    """A batch that trips a switch in its middle goes on with the tripped switch."""
    changes = count_outputs(
        SwitchState(), [OutputObservation("crm", BAD, 10.0)] * 4 + [OutputObservation("crm", GOOD, 9.0)], 10.0
    )
    assert changes.switches["crm"].opened == (10.0,)
    assert changes.rates["crm"] == OutputRate("crm", ((10.0, False),), 1)


# -- everything at once -----------------------------------------------------------------------------------------


def both(outputs, *, start=1000.0, every=1.0, board=None):
    """The board after outputs given as (tool, valid)."""
    board, now = board or SwitchState(), start
    for tool, valid in outputs:
        now += every
        board = merged(board, count_outputs(board, [OutputObservation(tool, valid, now)], now))
    return board


SPREAD = [("a", BAD), ("b", GOOD), ("b", GOOD), ("c", GOOD), ("c", GOOD)]
PAIR = [("a", GOOD), ("b", GOOD)]
SEVEN = [("a", BAD), ("b", BAD)] * 2 + [("c", BAD)] * 2 + [("d", BAD)]
EIGHT = [*SEVEN, ("d", BAD)]
TWO = [("a", BAD), ("b", BAD)] * 2 + PAIR + [("a", BAD), ("b", BAD)] * 2


@pytest.mark.parametrize(
    ("outputs", "trips"),
    [
        (PAIR * 9 + SEVEN, False),  # seven of 25
        (PAIR * 9 + EIGHT, True),  # eight of 26
        (PAIR * 5 + EIGHT, False),  # eight of 18
        (PAIR * 6 + EIGHT, True),  # eight of 20
        (PAIR * 16 + EIGHT, True),  # eight of 40
        (PAIR * 17 + EIGHT, False),  # eight of 42
        (SPREAD * 9, False),  # nine of 45, all of one tool
        (PAIR * 6 + TWO, True),  # eight of 22, of two tools
        (PAIR * 5 + PAIR[:1] + EIGHT + PAIR[1:], False),  # eight of 20, but the last one is valid
    ],
)
def test_what_trips_the_switch_of_everything(outputs, trips):
    """A fifth of at least twenty outputs, at least eight invalid, of at least two tools; a person closes it."""
    board = both(outputs)
    assert mode(board, ALL_TOOLS) == ("open" if trips else "never flipped")
    if trips:
        switch = board.switches[ALL_TOOLS]
        assert (switch.manual, switch.by) == (True, AUTOMATIC_ACTOR)
        assert mode_at(switch, switch.since + 1e9) == "open"
        assert switch.epoch == board.epoch


def test_a_valid_output_of_a_tool_that_is_off_does_not_trip_everything():
    """Eight of twenty are invalid with it, but only an invalid output trips a switch."""
    some = {
        tool: OutputRate(tool, ((1_000.0, GOOD),) * good + ((1_000.0, BAD),) * 4) for tool, good in (("a", 5), ("b", 6))
    }
    board = merged(SwitchState(some), flip_switch(SwitchState(some), "c", "open", by="ann", reason="odd", now=900.0))
    board = merged(board, count_outputs(board, [OutputObservation("c", GOOD, 1_002.0)], 1_002.0))
    assert mode(board, ALL_TOOLS) == "never flipped"
    tripped = count_outputs(board, [OutputObservation("c", BAD, 1_003.0)], 1_003.0)
    assert mode(tripped, ALL_TOOLS) == "open"


def test_everything_looks_at_what_came_after_its_own_last_flip():
    """Closed by a person, it begins anew: old outputs do not trip it again, and as many as ever of the new ones do."""
    outputs = PAIR * 6 + SEVEN
    board = both(outputs)
    closed = flip_switch(board, ALL_TOOLS, "closed", by="ann", reason="ok", now=1_019.5)
    board = merged(board, closed)
    assert mode(both([("d", BAD)], board=board, start=1_019.0), ALL_TOOLS) == "closed"
    assert mode(both(PAIR * 6 + EIGHT, board=board, start=1_020.0), ALL_TOOLS) == "open"


@pytest.mark.parametrize(("now", "trips"), [(1_899.9, True), (1_900.0, False)])
def test_everything_looks_at_the_last_quarter_of_an_hour(now, trips):
    """Outputs of other tools that are older do not trip it."""
    rates = {tool: OutputRate(tool, ((1_000.0, GOOD),) * 6 + ((1_000.0, BAD),) * 4) for tool in "ab"}
    changes = count_outputs(SwitchState(rates), [OutputObservation("c", BAD, now)], now)
    assert (ALL_TOOLS in changes.switches) is trips


def test_an_open_switch_of_everything_is_not_tripped_again():
    """It stays as it is, with its reason, however many invalid outputs follow."""
    board = both(PAIR * 6 + EIGHT)
    before = board.switches[ALL_TOOLS]
    assert before.reason == "8 of the last 20 outputs of 4 tools invalid"
    again = [(f"{tool}2", valid) for tool, valid in PAIR * 6 + EIGHT]
    assert both(again, board=board, start=1_100.0).switches[ALL_TOOLS] == before


@pytest.mark.parametrize("ahead", [-3_600.0, 0.0, 3_600.0])
def test_the_clock_of_who_closes_everything_does_not_matter(ahead):
    """What came before the flip is forgotten, and what comes after it counts, by whatever clock it was flipped."""
    board = both(PAIR * 6 + SEVEN)
    board = merged(board, flip_switch(board, ALL_TOOLS, "closed", by="ann", reason="ok", now=1_019.0 + ahead))
    assert all(not rate.recent and not rate.streak for rate in board.rates.values())
    assert mode(both(PAIR * 6 + SEVEN, board=board, start=1_020.0), ALL_TOOLS) == "closed"
    assert mode(both(PAIR * 6 + EIGHT, board=board, start=1_020.0), ALL_TOOLS) == "open"


@pytest.mark.parametrize(("now", "opened"), [(4_599.0, (1_000.0, 4_599.0)), (4_600.0, (4_600.0,))])
def test_which_trips_are_of_the_last_hour(now, opened):
    """One of exactly an hour ago is not."""
    board = SwitchState(
        {"crm": OutputRate("crm", (), 2)}, {"crm": Switch("crm", "closed", 2, 1_100.0, opened=(1_000.0,))}
    )
    assert count_outputs(board, [OutputObservation("crm", BAD, now)], now).switches["crm"].opened == opened


# -- open, half open, closed --------------------------------------------------------------------------------------


def tripped(times=1, *, start=1000.0):
    """A board whose switch has tripped so often within an hour, probes having closed it in between."""
    board, now = fed([BAD] * 3, start=start)
    for number in range(times - 1):
        board, now = fed([GOOD] * 5, board=board, start=now + 60.0 * 2**number)
        assert mode(board) == "closed"
        board, now = fed([BAD] * 3, board=board, start=now)
    return board, now


@pytest.mark.parametrize(
    ("trips", "after", "said"),
    [(1, 59.9, "open"), (1, 60.0, "half_open"), (2, 119.9, "open"), (2, 120.0, "half_open"), (3, 1e9, "open")],
)
def test_when_an_open_switch_lets_probes_in(trips, after, said):
    """After a minute, twice as long with each trip of the hour; after the third, only a person closes it."""
    board, now = tripped(trips)
    assert mode_at(board.switches["crm"], now + after) == said
    assert board.switches["crm"].manual is (trips == 3)


def test_a_pause_has_an_end():
    """However often it has tripped, a switch that may close by itself is half open after an hour."""
    switch = Switch("crm", "open", 9, 100.0, opened=tuple(map(float, range(9))))
    assert (mode_at(switch, 3_699.9), mode_at(switch, 3_700.0)) == ("open", "half_open")
    assert mode_at(msgspec.structs.replace(switch, mode="closed"), 1e9) == "closed"


def test_a_trip_of_more_than_an_hour_ago_is_forgotten():
    """Only the trips of the last hour make the pause longer or the switch manual."""
    board, now = tripped(2)
    board, now = fed([GOOD] * 5, board=board, start=now + 120)
    board, now = fed([BAD] * 3, board=board, start=now + 3_600)
    assert (board.switches["crm"].opened, board.switches["crm"].manual) == ((now,), False)


def test_five_valid_probes_close_it():
    """Four leave it open; the fifth closes it, and its rate begins anew."""
    board, now = tripped()
    board, now = fed([GOOD] * 4, board=board, start=now + 60)
    assert (mode(board), board.switches["crm"].valid, board.switches["crm"].epoch) == ("open", 4, 1)
    board, now = fed([GOOD], board=board, start=now)
    switch = board.switches["crm"]
    assert (switch.mode, switch.epoch, switch.since, switch.valid) == ("closed", 2, now, 0)
    assert (switch.reason, switch.by) == ("5 valid outputs in a row", AUTOMATIC_ACTOR)
    assert board.rates["crm"] == OutputRate("crm")


def test_one_invalid_probe_opens_it_again():
    """Four valid ones do not help; the pause is longer now."""
    board, now = tripped()
    board, now = fed([GOOD] * 4 + [BAD], board=board, start=now + 60)
    switch = board.switches["crm"]
    assert (switch.mode, switch.epoch, switch.valid, switch.reason) == ("open", 2, 0, "a probe was invalid")
    assert mode_at(switch, now + 119) == "open"


@pytest.mark.parametrize(
    ("at", "read", "counted"), [(59.0, True, False), (60.0, True, True), (60.0, False, False), (70.0, True, True)]
)
def test_what_is_a_probe(at, read, counted):
    """A read that began after the pause; a write, or a read from before, neither closes nor opens."""
    board, now = tripped()
    for valid in (GOOD, BAD):
        after = merged(board, count_outputs(board, [OutputObservation("crm", valid, now + at, read)], now + 100))
        moved = after.switches["crm"] != board.switches["crm"]
        assert moved is counted


def test_a_tool_that_writes_is_closed_by_a_person():
    """While its switch is open it is not called, so there would be no probe."""
    board, now = fed([BAD] * 3, read=False)
    assert board.switches["crm"].manual
    assert mode_at(board.switches["crm"], now + 1e9) == "open"


def test_a_tool_with_an_effect_in_doubt_is_closed_by_a_person():
    """So is one that trips again while half open; another tool's doubt changes nothing."""
    assert fed([BAD] * 3, board=SwitchState(doubtful=frozenset({"crm"})))[0].switches["crm"].manual
    assert not fed([BAD] * 3, board=SwitchState(doubtful=frozenset({"other"})))[0].switches["crm"].manual
    board, now = tripped()
    board = msgspec.structs.replace(board, doubtful=frozenset({"crm"}))
    assert fed([BAD], board=board, start=now + 60)[0].switches["crm"].manual


def test_what_a_person_flips():
    """Open stays open until a person closes it; closed begins anew: trips, probes and reasons are forgotten."""
    board, now = tripped(2)
    closed = flip_switch(board, "crm", "closed", by="ann", reason="repaired", now=now).switches["crm"]
    assert closed == Switch("crm", "closed", board.epoch + 1, now, reason="repaired", by="ann")
    forced = flip_switch(board, "tax", "open", by="ann", reason="audit", now=now).switches["tax"]
    assert forced == Switch("tax", "open", board.epoch + 1, now, manual=True, reason="audit", by="ann")
    assert set(
        flip_switch(
            SwitchState({"crm": OutputRate("crm"), "tax": OutputRate("tax")}), "tax", "open", by="", reason="", now=now
        ).rates
    ) == {"tax"}
    board = merged(board, SwitchState(switches={"tax": forced}))
    after, _ = fed([GOOD] * 9, board=board, tool="tax", start=now + 1e6)
    assert after.switches["tax"] == forced


# -- laws -----------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.booleans(), st.booleans(), st.integers(0, 200),
            st.sampled_from((None, None, None, None, "open", "closed")),
        ),
        max_size=60,
    ),
    st.integers(1, 5),
)  # fmt: skip
def test_the_laws_of_the_board(script, size):
    """The epoch rises with each flip and never falls; only an invalid output trips, only a valid read closes."""
    board, now, batch = SwitchState(), 1000.0, []
    for tool, valid, read, seconds, hand in script:
        now += seconds
        before = board
        if hand is not None:
            by_hand = flip_switch(board, tool, hand, by="ann", reason="so", now=now)
            assert by_hand.epoch == board.epoch + 1
            board = merged(board, by_hand)
            continue
        batch.append(OutputObservation(tool, valid, now, read))
        if len(batch) < size:
            continue
        changes = count_outputs(board, batch, now)
        board = merged(board, changes)
        assert board.epoch >= before.epoch
        for scope, switch in changes.switches.items():
            known = before.switches.get(scope, Switch(scope))
            if switch.mode != known.mode:
                assert switch.epoch > before.epoch
                assert switch.by == AUTOMATIC_ACTOR
                opened = switch.mode == "open"
                assert any(seen.valid is not opened for seen in batch)
                assert opened or any(seen.valid and seen.read and seen.tool == scope for seen in batch)
                assert known.manual is False or known.mode == "closed"
        for rate in board.rates.values():
            assert len(rate.recent) <= 50
        batch = []


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=40))
def test_a_batch_is_the_same_as_its_outputs_one_by_one(outputs):
    """Counting in one act or in many leads to the same board."""
    seen = [OutputObservation(tool, valid, 1000.0) for tool, valid in outputs]
    board = SwitchState()
    for one in seen:
        board = merged(board, count_outputs(board, [one], 1000.0))
    assert board == merged(SwitchState(), count_outputs(SwitchState(), seen, 1000.0))


# -- what it stops ----------------------------------------------------------------------------------------------------

OPEN = Switch("crm", "open", 3, 50.0, reason="3 invalid outputs in a row")


@pytest.mark.parametrize(
    ("switches", "tool", "effect", "sources", "stopped"),
    [
        ((), "pay", "write", None, False),
        ((OPEN,), "pay", "read", None, False),
        ((OPEN,), "crm", "read", None, False),
        ((OPEN,), "pay", "write", None, True),
        ((OPEN,), "pay", "destructive", None, True),
        ((OPEN,), "pay", "write", ("crm",), True),
        ((OPEN,), "pay", "write", ("tax", "crm"), True),
        ((OPEN,), "pay", "write", ("tax",), False),
        ((OPEN,), "pay", "write", (), False),
        ((OPEN,), "crm", "write", (), True),
        ((Switch(ALL_TOOLS, "open"),), "pay", "write", (), True),
        ((Switch(ALL_TOOLS, "open"),), "pay", "read", (), False),
        ((Switch("crm", "closed", 4),), "pay", "write", None, False),
        ((Switch("a", "closed"), OPEN), "pay", "write", ("crm",), True),
        ((Switch("tax", "open"), OPEN), "pay", "write", ("crm",), True),
        ((Switch("tax", "open"),), "pay", "write", ("crm",), False),
    ],
)
def test_what_an_open_switch_stops(switches, tool, effect, sources, stopped):
    """Writes that name its tool as a source or name none, and the tool's own; half open stops like open."""
    finding = open_switch_finding(switches, tool, effect, sources)
    assert (finding is not None) is stopped
    if finding is not None:
        assert (finding.code, finding.blame) == ("kill_switch", "policy")
        assert 0 < len(finding.hint) < 600


@pytest.mark.parametrize(
    ("scopes", "named"), [(("a", "pay", ALL_TOOLS), ALL_TOOLS), (("a", "pay", "b"), "pay"), (("b", "!", "a"), "!")]
)
def test_of_several_open_switches_one_is_named(scopes, named):
    """That of everything, then the tool's own, then the first by name: in whatever order a store holds them."""
    for order in itertools.permutations(scopes):
        finding = open_switch_finding(tuple(Switch(scope, "open") for scope in order), "pay", "write", None)
        assert finding.data["scope"] == named


def test_the_model_is_told_what_is_off():
    """The finding names the switch, its reason and since when; the hint says whether all writes are off."""
    finding = open_switch_finding((OPEN,), "pay", "write", None)
    assert "3 invalid outputs in a row" in finding.message
    assert finding.data == {"scope": "crm", "since": 50.0}
    assert "outputs of crm are unusable" in finding.hint
    assert "all writes are off" in open_switch_finding((Switch(ALL_TOOLS, "open"),), "pay", "write", ()).hint


def test_the_epoch_of_a_board():
    """It counts every flip of any switch; a board without one has none."""
    assert SwitchState().epoch == 0
    assert SwitchState(switches={"a": Switch("a", epoch=2), "b": Switch("b", "open", 5)}).epoch == 5


# -- how fast, and how often for nothing ------------------------------------------------------------------------------------


def calls_to_trip(seed, share):
    """Outputs from the first one of a fault, that makes a share of them invalid, until the switch trips."""
    chance, board, now, calls = random.Random(seed), fed([GOOD] * 50)[0], 1050.0, 0
    while mode(board) != "open":
        calls, now = calls + 1, now + 1.0
        board = merged(board, count_outputs(board, [OutputObservation("crm", chance.random() >= share, now)], now))
    return calls


def false_trips(seed, share, calls, every):
    """How often the switch trips although nothing has changed: each time it begins anew."""
    chance, board, now, trips = random.Random(seed), SwitchState(), 1000.0, 0
    for _ in range(calls):
        now += every
        board = merged(board, count_outputs(board, [OutputObservation("crm", chance.random() >= share, now)], now))
        if board.switches:
            trips, board = trips + 1, SwitchState()
    return trips


@pytest.mark.parametrize(("share", "most"), [(1.0, 3), (0.5, 11), (0.3, 38)])
def test_a_fault_is_noticed_after_so_many_calls(share, most, full):
    """After fifty valid calls: the median over all seeds, for all, half, and three in ten outputs invalid."""
    seeds = range(1_000 if full else 50)
    assert statistics.median(calls_to_trip(seed, share) for seed in seeds) <= most


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("every", [1.0, 60.0, 85.0])
def test_chance_alone_trips_rarely(every, full):
    """At most 0.35 trips in 10,000 calls of a tool of which three in a hundred outputs are invalid, busy or quiet."""
    seeds, calls = (1_000, 10_000) if full else (50, 800)
    trips = sum(false_trips(seed, 0.03, calls, every) for seed in range(seeds))
    assert trips / (seeds * calls) * 10_000 <= 0.35


def test_chance_alone_does_not_stop_everything(full):
    """Four tools, three in a hundred outputs invalid, one every forty seconds: all writes go on."""
    stopped = 0
    for seed in range(200 if full else 10):
        chance, board, now = random.Random(seed), SwitchState(), 1000.0
        for _ in range(2_000):
            now += 40.0
            seen = OutputObservation(chance.choice("abcd"), chance.random() >= 0.03, now)
            board = merged(board, count_outputs(board, [seen], now))
            stopped += mode(board, ALL_TOOLS) == "open"
            board = SwitchState(board.rates)
    assert stopped <= (2 if full else 0)
