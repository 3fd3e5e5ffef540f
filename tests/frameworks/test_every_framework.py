"""What holds in every framework: each claim is played with the host of the framework in this environment.

A host whose framework makes a claim impossible says why in `UNLIKE`, by the name of the test, or `name @wire`.
"""

import gc
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from importlib import import_module
from pathlib import Path

import pytest
from conversation import HOST, calls, modes
from framework_shop import Shop
from job import Job
from model_server import STREAMS, ModelServer, Turn

import pokayoke
from pokayoke.core.state.words import WORDS

HERE = Path(__file__).resolve().parent
REFUND = ("call_1", "refund", '{"order_id": "A1", "amount": 5}')
UNKNOWN_EFFECT = "[It is not known whether refund took effect.]"


class LosingShop(Shop):
    """A shop whose refunds raise once they are made."""

    def note(self, tool, **arguments):
        """Append a line, then lose the connection."""
        super().note(tool, **arguments)
        if tool == "refund":
            raise RuntimeError("connection lost")


@pytest.fixture
def store(tmp_path):
    """A durable ledger."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    pokayoke.open_store(url, create=True).close()
    return url


# -- adopting it -------------------------------------------------------------------------------------


def test_without_the_framework_the_extra_is_named():
    """An import where the framework is missing says what to install."""
    adapter, extra = HOST.__name__.removeprefix("host_"), os.environ["POKAYOKE_HOST"]
    code = f"""
        import sys
        for name in {HOST.MODULES!r}:
            sys.modules[name] = None
        import pokayoke
        try:
            import pokayoke.adapters.{adapter}
        except pokayoke.errors.MissingExtraError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert f"pip install 'pokayoke[{extra}]'" in done.stdout


def test_the_adapter_names_what_it_exports():
    """Each name in `__all__` is there."""
    adapter = import_module(f"pokayoke.adapters.{HOST.__name__.removeprefix('host_')}")
    assert [name for name in adapter.__all__ if not hasattr(adapter, name)] == []


# -- what the model is shown -------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["enforce", "monitor"])
def test_a_tool_that_is_denied_is_not_shown(play, policy):
    """It is not offered, and a call of it does not run; monitor mode offers and runs what it would deny."""
    seen = play(calls(REFUND), Turn("Done."), config={"mode": policy, "access": {"deny": ["refund"]}})
    assert [("refund" in names) for names in seen.offered] == [policy == "monitor"] * 2
    assert [one["tool"] for one in seen.happened] == ["refund"] * (policy == "monitor")


def test_an_agent_whose_tools_are_all_denied_asks_without_any(play):
    """The request then names neither tools nor a choice among them: providers refuse an empty list."""
    seen = play(Turn("Done."), tools=("refund",), config={"access": {"deny": ["refund"]}})
    assert seen.text == "Done."
    assert not {"tools", "tool_choice"} & {*seen.bodies[0]}


@modes
def test_a_large_output_can_be_paged_through(play, mode):
    """Once an output is too large the model is offered a tool to page through it, and the guard answers its calls."""
    pages = ("call_2", "read_more", '{"handle": "out-1", "offset": 50000}')
    seen = play(calls(("call_1", "huge", '{"order_id": "A1"}')), calls(pages), Turn("Done."), mode=mode)
    assert ["read_more" in names for names in seen.offered] == [False, True, True]
    assert "characters 50000 to" in json.dumps(seen.bodies[2])
    assert len(json.dumps(seen.bodies[1])) < 100_000


@modes
def test_the_model_reads_the_name_that_it_wrote(play, mode):
    """The next request has the unknown name and its arguments, and the framework's own tools only."""
    seen = play(calls(("call_1", "invent", '{"made_up": 1}')), calls(REFUND), Turn("Done."), mode=mode)
    assert (seen.text, len(seen.happened)) == ("Done.", 1)
    assert "invent" in json.dumps(seen.bodies[1])
    assert "made_up" in json.dumps(seen.bodies[2])
    assert seen.offered[0] == seen.offered[1] == seen.offered[2]


@modes
def test_an_instruction_is_part_of_one_request_only(play, mode):
    """After two bad rounds the tools go and the model is told why; the next request of the run has the tools again."""
    stuck = calls(("call_1", "invent", "{}"))
    seen = play(stuck, stuck, Turn("I could not."), mode=mode)
    assert (seen.text, bool(seen.offered[2])) == ("I could not.", False)
    assert ["Tools are off" in json.dumps(body) for body in seen.bodies] == [False, False, True]


@modes
def test_a_key_that_stands_twice_is_seen(play, mode):
    """A parser that takes the last value would lose the first without a word; the write does not run."""
    twice = ("call_1", "refund", '{"order_id": "A1", "order_id": "B2", "amount": 5}')
    assert play(calls(twice), Turn("Done."), mode=mode).happened == []


# -- streams -----------------------------------------------------------------------------------------

LEFT = {"chat": (2, 5), "responses": (1, 3), "anthropic": (2,)}
"""How many events before its end a stream breaks off: behind the whole call, and within it."""
BROKEN = [(wire, left) for wire in HOST.WIRES for left in LEFT[wire] if "stream" in HOST.MODES]


@pytest.mark.parametrize(("wire", "left"), BROKEN)
def test_a_stream_that_breaks_off_runs_nothing(play, wire, left):
    """A call that is whole proves nothing: what would have said that the message is whole never came."""
    whole = calls(REFUND)
    broken = Turn(calls=whole.calls, breaks=len(list(STREAMS[wire](whole))) - left)
    seen = play(broken, Turn("Not done."), wire=wire, mode="stream")
    assert seen.happened == []
    assert seen.bodies[0]["stream"]
    assert "cut" in json.dumps(seen.bodies[1:])


@pytest.mark.skipif("stream" not in HOST.MODES or "chat" not in HOST.WIRES, reason="it has no chat streams")
def test_a_cut_that_a_stream_has_told_is_not_taken_back(play):
    """A later chunk with another reason to stop changes nothing about the first."""
    cut = Turn(calls=(REFUND,), stop="length", then="tool_calls")
    assert play(cut, Turn("Done."), wire="chat", mode="stream").happened == []


# -- what the user reads -----------------------------------------------------------------------------


@modes
def test_an_unknown_effect_is_said_beside_the_last_word(play, mode):
    """The model claims a refund that may not have happened; the user reads that, also at the end of a stream."""
    seen = play(calls(REFUND), Turn("Done."), shop=LosingShop, mode=mode)
    assert seen.text.split() == f"Done. {UNKNOWN_EFFECT}".split()


BAD_FIELD = ("call_2", "refund", '{"order_id": 7}')
LAST_WORDS = {
    "nothing was done": (Shop, [("call_1", "invent", "{}")], [("call_2", "invent", "{}")], ""),
    "a write, and no word": (Shop, [REFUND], [("call_2", "invent", "{}")], [("call_3", "invent", "{}")], ""),
    "a claim about a refused write": (Shop, [BAD_FIELD], "~"),
    "a claim about a lost answer": (LosingShop, [REFUND], "~"),
    "a lost answer, and no word": (
        LosingShop,
        [REFUND],
        [("call_2", "invent", "{}")],
        [("call_3", "invent", "{}")],
        "",
    ),
    "a claim about a write that was not repeated": (Shop, [REFUND], [("call_2", *REFUND[1:])], "~"),
}
OWN_WORDS = {key: f"«{key}»" + "".join(re.findall(r" ?\{\w+\}", text)) for key, text in WORDS.items()}


@modes
@pytest.mark.parametrize("name", LAST_WORDS)
def test_every_sentence_that_the_user_reads_may_be_the_hosts_own(play, name, mode):
    """With words of another language for each sentence, the last answer holds none of ours, whatever happened."""
    shop, *turns = LAST_WORDS[name]
    script = [Turn(turn) if isinstance(turn, str) else calls(*turn) for turn in turns]
    seen = play(*script, shop=shop, mode=mode, config={"words": OWN_WORDS})
    assert "«" in seen.text
    assert re.findall("[A-Za-z]{2,}", re.sub("«[a-z_]+»|refund|invent", "", seen.text)) == []


# -- how a tool says no --------------------------------------------------------------------------------


class DecliningShop(Shop):
    """A shop whose refunds are declined; an order `B2` by an error that follows another one."""

    def functions(self, names=None):
        """The refund alone."""

        def refund(order_id: str, amount: int) -> dict:
            """Refund an order."""
            if order_id == "B2":
                try:
                    return {}[order_id]
                except KeyError as error:
                    raise pokayoke.ToolError("The card was declined.") from error
            raise pokayoke.ToolError("The card was declined.")

        return [refund]


@modes
@pytest.mark.parametrize(
    ("order", "effect"), [("A1", "Nothing was changed."), ("B2", "It is not known whether it took effect.")]
)
def test_a_tool_that_says_no_says_that_nothing_happened_unless_another_error_came_first(play, mode, order, effect):
    """The model reads the tool's own text, and what it proves, however the framework has carried the exception."""
    refund = ("call_1", "refund", {"order_id": order, "amount": 5})
    seen = play(calls(refund), Turn("Done."), shop=DecliningShop, mode=mode, declares=False)
    assert f"refund failed: The card was declined. {effect}" in seen.answers[0]


# -- what the provider counts ------------------------------------------------------------------------


def test_tokens_are_reported(play):
    """A token budget is held against what the provider counted."""
    call = ("call_1", "get_order", '{"order_id": "A1"}')
    first = Turn(calls=(call,), tokens=(4_000, 1_000))
    seen = play(first, Turn("Done."), config={"budgets": {"tokens": 4_000}})
    assert "budget" in json.dumps(seen.bodies[1])


# -- deadlines ---------------------------------------------------------------------------------------


@pytest.mark.skipif("async" not in HOST.MODES, reason="it has no asynchronous API")
def test_a_sync_tool_without_a_deadline_is_cut_in_an_asynchronous_run(tmp_path):
    """It blocks its thread until the model has read that it took too long; nobody declared anything."""

    class SlowShop(Shop):
        """A shop whose tool waits for the second request, for ten seconds at most."""

        def functions(self, names=None):
            def slow(order_id: str) -> dict:
                """Look up a slow order."""
                end = time.monotonic() + 10
                while len(server.requests) < 2 and time.monotonic() < end:
                    time.sleep(0.02)
                self.note("slow", answered=len(server.requests) >= 2)
                return {}

            return [slow]

    turns = [calls(("call_1", "slow", '{"order_id": "A1"}')), Turn("Done.")]
    with ModelServer(turns) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as above
        shop, config = SlowShop(tmp_path / "log"), {"execution": {"timeout": 0.5}}
        HOST.play(Job(server.url, shop, HOST.WIRES[0], "async", config=config, declares=False, blocking=True))
        gc.collect()
    assert "did not answer within 0.5 s" in json.dumps(server.bodies[1])
    assert [one["answered"] for one in shop.happened()] == [True]


# -- restarts ----------------------------------------------------------------------------------------


def test_a_restart_under_the_same_id_repeats_no_write(play, store):
    """The ledger knows a write of the same run, and the second model is told that it was done."""
    for _ in range(2):
        seen = play(calls(REFUND), Turn("Done."), store=store, run_id="order-7")
    assert [one["tool"] for one in seen.happened] == ["refund"]
    assert "already" in json.dumps(seen.bodies[-1])


CHILD = """
    import os, signal, sys
    sys.path[:0] = {paths!r}
    from framework_shop import PAGE, Shop
    from job import Job
    from runner import load

    class KilledShop(Shop):
        def note(self, tool, **arguments):
            super().note(tool, **arguments)
            if tool == "refund":
                os.kill(os.getpid(), signal.SIGKILL)

    job = Job({url!r}, KilledShop({log!r}), {wire!r}, {mode!r}, store={store!r}, run_id="order-8")
    load({host!r}).play(job)
"""


@modes
@pytest.mark.timeout(180)  # a process that imports a framework
def test_a_process_killed_in_mid_write_does_not_write_twice(play, store, tmp_path, mode):
    """After a restart with the same id the effect exists once, and the user is told that it may exist."""
    paths = [str(HERE), str(HERE.parent / "support"), str(HERE.parent / "core")]
    with ModelServer([calls(REFUND), Turn("Done.")]) as server:
        given = {"url": server.url, "log": str(tmp_path / "log"), "wire": HOST.WIRES[0], "mode": mode}
        code = CHILD.format(paths=paths, store=store, host=os.environ["POKAYOKE_HOST"], **given)
        command = [sys.executable, "-c", textwrap.dedent(code)]
        killed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen = play(calls(REFUND), Turn("Done."), store=store, run_id="order-8", mode=mode)
    assert [one["tool"] for one in seen.happened] == ["refund"]
    assert UNKNOWN_EFFECT in seen.text
