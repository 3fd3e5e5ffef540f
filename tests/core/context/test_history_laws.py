"""Laws of shortening, over random histories: always valid, within the window or reported, stable."""

import copy
import random
import sys

import pytest
from provider_rules import PROBLEMS
from random_histories import WRITERS, Talk, damaged

from pokayoke.core.context import Facts, History, OpenEffect, Refusal, compacted
from pokayoke.core.context.tokens import estimate_message
from pokayoke.core.state.run_state import Taint

WINDOWS = [300, 1_000, 3_000, 10_000, 40_000, 200_000]
FACTS = Facts(
    effects=(OpenEffect("refund", "run-7:refund:ab12", "in_doubt", "14.90 EUR for ORD-2026-17"),),
    taints=(Taint("get_profile", "id-77", 4, "content-type text/html"),),
    refusals=(Refusal("close_ticket", "permission_denied"),),
    ids=("ORD-2026-17", "C-3"),
    others=("The customer wants an answer by Friday.",),
)
SAID = ["run-7:refund:ab12", "14.90 EUR for ORD-2026-17", "get_profile", "close_ticket", "C-3", "by Friday."]


def texts(message):
    """Every text of a message, in one."""
    return repr(message)


def notes(messages):
    """The messages that carry a note of ours."""
    marks = "A record of earlier messages that were left out to save space."
    return [text for message in messages if marks in (text := texts(message))]


def history(number, shape):
    """The history with this number: an odd one is damaged."""
    rng = random.Random(number)
    messages = WRITERS[shape](Talk(rng))
    return (damaged(messages, rng, shape), False) if number % 2 else (messages, True)


@pytest.fixture(scope="module")
def numbers(full):
    """So many histories per shape: 2,000 at full size."""
    return range(2_000 if full else 24)


@pytest.mark.timeout(5_400)
@pytest.mark.parametrize("shape", WRITERS)
def test_every_result_is_valid_and_fits_or_is_said_not_to(shape, numbers, capsys):
    """Whatever comes in, what goes out follows the provider's rules, and is below the window or has the finding."""
    counted = dict.fromkeys(("cases", "overflow", "dropped", "offloaded", "superseded", "mended"), 0)
    for number in numbers:
        messages, whole = history(number, shape)
        before = copy.deepcopy(messages)
        for window in WINDOWS:
            where = f"{shape} {number} at {window}"
            how = {"facts": FACTS, "kept": number % 3 == 0, "format": "openai" if shape == "items" else shape}
            result = compacted(messages, window, **how)
            out = result.messages
            assert PROBLEMS[shape](out) == [], where
            assert result.after == sum(estimate_message(message) for message in out), where
            assert (result.finding is not None) == (result.after > window), where
            assert len(notes(out)) <= 1, where
            again = compacted(out, window, **how)
            assert again.messages == out, where
            assert (again.finding is None) == (result.finding is None), where
            assert not again.shortened, where
            assert compacted(messages, window, **how).messages == out, where
            if result.dropped:
                said = notes(out)[0]
                assert [word for word in SAID if word not in said] == [], where
            if whole:
                _nothing_that_has_to_stay_went(messages, result, where)
            for name, value in zip(
                counted,
                (1, result.finding, result.dropped, result.offloaded, result.superseded, not whole and result.findings),
                strict=True,
            ):
                counted[name] += bool(value)
        assert messages == before
    with capsys.disabled():
        print(f"\n{shape}: {counted}", file=sys.stderr)
    assert counted["dropped"] > counted["cases"] / 20
    assert counted["mended"]


def _nothing_that_has_to_stay_went(messages, result, where):
    """System prompt, first user message and the last ten of a whole history are in the result."""
    out = result.messages
    if not result.shortened:
        assert [id(message) for message in out] == [id(message) for message in messages], where
        return
    if not result.offloaded:
        assert out[-10:] == messages[-10:] or len(out) < 10, where
    assert out[-1] == messages[-1] or result.offloaded, where
    system = messages[0] if texts(messages[0]).find("You look after") >= 0 else None
    assert system is None or out[0] == system, where
    assert texts(messages[1 if system else 0])[-40:-5].strip("[]{}'") in "".join(map(texts, out[:3])), where


@pytest.mark.timeout(5_400)
@pytest.mark.parametrize("shape", WRITERS)
def test_a_history_that_grows_is_shortened_like_one_that_is_there(shape, numbers):
    """However it came to be, what `History` sends is valid, below the window or said not to be, and has one note."""
    for number in numbers[: len(numbers) // 4]:
        messages, _ = history(number, shape)
        for window in (1_000, 10_000):
            kept = History(window, facts=FACTS, kept=True, format="openai" if shape == "items" else shape)
            rng = random.Random(number)
            for at, message in enumerate(messages):
                kept.add(message)
                if at % 3 == number % 3:
                    result = kept.compacted()
                    where = f"{shape} {number} at {window}, {at}"
                    assert PROBLEMS[shape](result.messages) == [], where
                    assert len(notes(result.messages)) <= 1, where
                    worth = sum(estimate_message(message) for message in result.messages)
                    assert kept.tokens <= window or kept.finding is not None, where
                    if rng.random() < 0.3:
                        used = int(worth * rng.uniform(0.8, 1.3)) + 100
                        kept.report(used)
                        assert kept.tokens == used
                    assert kept.messages() == kept.messages()
