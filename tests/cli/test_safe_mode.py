"""`pokayoke safe-mode`: what it shows, what it flips, and what it refuses to take for an answer."""

import time

import pytest
from clishell import json_lines

from pokayoke import Contract, Guard, ToolCall
from pokayoke.core.ledger.admission import AdmissionRequest
from pokayoke.core.ledger.records import Claim
from pokayoke.core.state.kill_switch import OutputObservation
from pokayoke.runtime.decisions import is_known_tool
from pokayoke.stores import MemoryStore
from pokayoke.stores.values import SwitchCommand

WHO = ("--by", "ann", "--reason", "checked three profiles")

pytestmark = pytest.mark.usefixtures("named_store")


def fed(ledger, tool, *outputs, at=None):
    """Count outputs as a guard does."""
    at = time.time() if at is None else at
    store = ledger()
    store.observe([OutputObservation(tool, valid, at) for valid in outputs], at)
    store.close()


def writes(ledger):
    """Whether an undeclared write runs in a fresh process of the agent; its outcome."""
    store = ledger()
    guard = Guard([Contract.from_schema("pay", {"type": "object"}, output_schema={}, handler=dict)], store=store)
    try:
        return guard.run(f"r{time.time_ns()}").call(ToolCall("c1", "pay", {}))
    finally:
        guard.close()


def test_an_untouched_store_is_clean(shell, ledger):
    """Nothing to show: exit code 0, and stdout stays empty."""
    done = shell("safe-mode", "status")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no switch was ever set" in done.stderr
    fed(ledger, "crm", True, True)
    assert shell("safe-mode", "status").stdout == ""


def test_a_switch_that_has_tripped_is_shown_with_its_reason(shell, ledger):
    """Scope, mode, since when, by whom, why, and what happens next; exit code 1."""
    fed(ledger, "crm", False, False, False)
    done = shell("safe-mode", "status")
    assert done.returncode == 1
    for word in ("crm", "open", "pokayoke", "3 invalid outputs in a row", "probes in"):
        assert word in done.stdout
    (line,) = json_lines(shell("safe-mode", "status", "--json"))
    assert (line["scope"], line["mode"], line["by"], line["manual"], line["epoch"]) == (
        "crm",
        "open",
        "pokayoke",
        False,
        1,
    )
    assert line["probes_from"] == line["since"] + 60
    assert writes(ledger).stop_reason == "kill_switch"


def test_after_its_pause_it_says_how_many_probes_are_missing(shell, ledger):
    """Half open: valid reads close it, and the count so far is told."""
    long_ago = time.time() - 300
    fed(ledger, "crm", False, False, False, at=long_ago)
    fed(ledger, "crm", True, True, at=long_ago + 100)
    done = shell("safe-mode", "status")
    assert done.returncode == 1
    assert "half_open" in done.stdout
    assert "3 valid reads close it" in done.stdout


def test_tools_with_invalid_outputs_are_shown_before_they_trip(shell, ledger):
    """A closed switch with a bad rate is a warning, not a finding: exit code 0."""
    fed(ledger, "crm", True, False, False)
    done = shell("safe-mode", "status")
    assert done.returncode == 0
    assert "2 of 3" in done.stdout
    (line,) = json_lines(shell("safe-mode", "status", "--json"))
    assert (line["mode"], line["invalid"], line["outputs"], line["streak"]) == ("closed", 2, 3, 2)


def test_open_stops_writes_and_close_lets_them_go_on(shell, ledger):
    """By hand, for everything: writes of another process are refused, then they run; both flips are in the audit."""
    assert writes(ledger).ok
    done = shell("safe-mode", "open", "--scope", "*", "--by", "ann", "--reason", "incident 42")
    assert (done.returncode, done.stderr) == (0, "")
    assert "safe mode is on for * by ann" in done.stdout
    refused = writes(ledger)
    assert (refused.status, refused.stop_reason) == ("refused", "kill_switch")
    assert "incident 42" in refused.message
    assert "a person turns it off" in shell("safe-mode", "status").stdout
    closed = shell("safe-mode", "close", "--scope", "*", *WHO, "--json")
    assert (closed.returncode, json_lines(closed)[0]["mode"], json_lines(closed)[0]["epoch"]) == (0, "closed", 2)
    assert writes(ledger).ok
    assert shell("safe-mode", "status").returncode == 0
    store = ledger()
    flips = [(e.subject, e.by, e.reason, e.data["mode"]) for e in store.audit() if e.kind == "switch"]
    store.close()
    assert flips == [("*", "ann", "incident 42", "open"), ("*", "ann", "checked three profiles", "closed")]


def test_a_person_takes_over_from_the_machine(shell, ledger):
    """Opening what has tripped by itself makes it wait for a person; closing begins the count anew."""
    fed(ledger, "crm", False, False, False)
    assert json_lines(shell("safe-mode", "open", "--scope", "crm", *WHO, "--json"))[0]["manual"] is True
    assert "a person turns it off" in shell("safe-mode", "status").stdout
    shell("safe-mode", "close", "--scope", "crm", *WHO)
    fed(ledger, "crm", False, False)
    assert shell("safe-mode", "status").returncode == 0


def test_closing_what_is_closed_changes_nothing(shell, ledger):
    """It says so, and no flip is counted: exit code 0."""
    done = shell("safe-mode", "close", "--scope", "crm", *WHO)
    assert (done.returncode, done.stdout) == (0, "safe mode is off for crm\n")
    assert "off already" in done.stderr
    store = ledger()
    assert (store.switches(), store.audit()) == ((), ())
    store.close()


def test_a_name_that_nobody_knows_is_doubted(shell, ledger):
    """A misspelt tool would protect nothing: the switch opens, and stderr warns; a known tool is not doubted."""
    done = shell("safe-mode", "open", "--scope", "crmm", *WHO)
    assert done.returncode == 0
    assert "no record of a tool 'crmm'" in done.stderr
    fed(ledger, "crm", True)
    assert shell("safe-mode", "open", "--scope", "crm", *WHO).stderr == ""
    writes(ledger)
    assert shell("safe-mode", "close", "--scope", "crmm", *WHO).stderr == ""
    store = ledger()
    store.flip(SwitchCommand("crm", "closed", "ann", "so", time.time()))
    store.close()
    assert writes(ledger).ok
    assert shell("safe-mode", "open", "--scope", "pay", *WHO).stderr == ""


def test_a_tool_among_many_effects_is_known():
    """Its one effect is found behind more than a page of those of other tools."""
    store = MemoryStore()
    for number in range(1_001):
        tool = "pay" if number == 1_000 else "mail"
        wish = Claim(f"{number:064x}", "h", "c", tool, f"{tool}@1", "r", 1.0, 1.0)
        store.admit(AdmissionRequest("r", tool, "write", (), 1.0, wish))
    assert is_known_tool(store, "pay")
    assert not is_known_tool(store, "payy")


@pytest.mark.parametrize("command", ["open", "close"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scope", "crm", "--by", "ann"), "Missing option '--reason'"),
        (("--scope", "crm", "--reason", "x"), "Missing option '--by'"),
        (WHO, "Missing option '--scope'"),
        (("--scope", "*", "--by", " ", "--reason", "x"), "say who and why (--by, --reason)"),
        (("--scope", "*", "--by", "ann", "--reason", ""), "say who and why (--by, --reason)"),
        (("--scope", "", *WHO), "the scope is empty"),
    ],
)
def test_a_flip_needs_a_name_and_a_reason(shell, ledger, command, words, said):
    """Exit code 2, one sentence, and nothing is flipped."""
    done = shell("safe-mode", command, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    store = ledger()
    assert store.switches() == ()
    store.close()


def test_without_a_store_it_says_how_to_name_one(shell, monkeypatch):
    """Exit code 2 and the option or the command that helps."""
    for command in (("status",), ("open", "--scope", "*", *WHO), ("close", "--scope", "*", *WHO)):
        monkeypatch.delenv("POKAYOKE_STORE", raising=False)
        done = shell("safe-mode", *command)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--store URL" in done.stderr
        monkeypatch.setenv("POKAYOKE_STORE", "sqlite:///nothing.db")
        done = shell("safe-mode", *command)
        assert done.returncode == 2
        assert "pokayoke ledger init" in done.stderr


def test_nothing_in_a_reason_reaches_the_terminal_unescaped(shell, ledger):
    """A scope or a reason with control characters is shown, not obeyed."""
    shell("safe-mode", "open", "--scope", "x\x1b[2J", "--by", "ann\x07", "--reason", "a\nb\x1b]8;;")
    done = shell("safe-mode", "status")
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout
    assert "\\x1b[2J" in done.stdout


def test_the_help_shows_how(shell):
    """Each command's help carries an example that can be copied."""
    assert "pokayoke safe-mode on --scope '*'" in shell("safe-mode", "--help").stdout
    for command in ("status", "on", "off"):
        assert f"pokayoke safe-mode {command}" in shell("safe-mode", command, "--help").stdout
    assert "  open" not in shell("safe-mode", "--help").stdout


@pytest.mark.parametrize(("turn_on", "turn_off"), [("on", "off"), ("open", "close")])
def test_the_words_of_before_still_hold(shell, turn_on, turn_off):
    """`on` and `off` say what happens to safe mode; `open` and `close`, of the switch, do the same."""
    shell("ledger", "init")
    assert json_lines(shell("safe-mode", turn_on, "--scope", "*", *WHO, "--json"))[0]["mode"] == "open"
    assert json_lines(shell("safe-mode", turn_off, "--scope", "*", *WHO, "--json"))[0]["mode"] == "closed"
