"""`pokayoke doctor`: every guard fires once, and one that does not is named."""

import json

import pytest

from pokayoke import tool
from pokayoke.cli import doctor as command
from pokayoke.cli.check import contract_weaknesses
from pokayoke.cli.doctor import collect_notes, fire_probes, probes
from pokayoke.cli.doctor.probes import PROBES, Probe
from pokayoke.core.policy import Policy, TracePolicy
from pokayoke.errors import StoreError
from pokayoke.runtime.config.config import load_policy
from pokayoke.stores import open_store

STRICT = {
    "access": {"deny": ["zap"], "roles": {"refund": ["boss"]}, "allow": ["refund", "zip"]},
    "approvals": {"effects": ["write"], "tools": ["pay"]},
    "limits": [
        {"tool": "*", "calls": 2},
        {"tool": "pay", "per": "day", "calls": 1, "amount": 0, "field": "item"},
        {"amount": 3, "field": "x"},
    ],
    "budgets": {"calls": 3, "rounds": 4, "tokens": 5, "seconds": 0.5},
    "trace": {"redact_fields": ["email"]},
}


def unfired(policy):
    return {result.name: result.instead for result in fire_probes(policy) if not result.fired}


def test_every_guard_fires_under_the_safe_default():
    """No probe gets through a guard that nobody configured."""
    assert unfired(Policy()) == {}


def test_what_is_configured_is_fired_too():
    """Lists, roles, approvals, limits, budgets and redacted fields each get a probe of their own."""
    policy = load_policy(STRICT)
    names = {result.name for result in fire_probes(policy)} - {probe.name for probe in PROBES}
    assert names == {
        "access_deny", "access_allow", "roles", "approval_effects", "approval_tools", "limit_0", "limit_1",
        "limit_1_amount", "limit_2_amount", "budget_calls", "budget_rounds", "budget_tokens", "budget_seconds",
        "redact_fields",
    }  # fmt: skip
    assert unfired(policy) == {}


def test_a_limit_that_does_not_hold_is_named(monkeypatch):
    """Amounts, tokens and time that nobody counts are guards that did not fire."""
    monkeypatch.setattr("pokayoke.core.ledger.admission._charged_amount", lambda limit, arguments: 0.0)
    monkeypatch.setattr("pokayoke.core.context.tokens.TokenCounter.total", 0)
    monkeypatch.setattr("pokayoke.testing.clock.FrozenClock.monotonic", lambda clock: 0.0)
    assert {"limit_2_amount", "budget_tokens", "budget_seconds"} <= set(unfired(load_policy(STRICT)))


def test_a_limit_that_no_probe_reaches_is_told():
    """A limit on very many calls is not fired, and a note says so."""
    policy = load_policy({"budgets": {"calls": 20_000, "rounds": 5}, "limits": [{"calls": 20_000}]})
    told = " ".join(collect_notes(policy, [], None))
    assert "limits[0].calls is too high" in told
    assert "budgets.calls is too high" in told
    assert "budgets.rounds" not in told
    assert {"limit_0", "budget_calls"}.isdisjoint(result.name for result in fire_probes(policy))


def test_what_nothing_cuts_is_told():
    """A sync tool lacks a deadline in synchronous runs, an async one never; one in its caller's thread is a note."""

    def look() -> str:
        return ""

    async def wait() -> str:
        return ""

    tools = [tool(effect="read")(look), tool(effect="read", thread="caller")(look), tool(effect="read")(wait)]
    assert [[problem.code for problem in contract_weaknesses(each)] for each in tools] == [["no_deadline"], [], []]
    (note,) = (note for note in collect_notes(Policy(), tools, None) if "look@1" in note)
    assert "nothing can cut it" in note


@pytest.mark.parametrize("mode", ["fail_closed", "human_review"])
def test_every_safe_mode_stops_invalid_outputs(mode):
    """Whatever follows an invalid output, it does not reach the model as a result."""
    assert unfired(load_policy({"safe_mode": {"on_invalid_output": mode}})) == {}


def test_a_guard_that_is_switched_off_is_named():
    """Monitor mode and a threshold of 0 let calls through, and doctor says which."""
    assert "low_confidence" in unfired(load_policy({"confidence": {"threshold": 0}}))
    found = unfired(load_policy({"mode": "monitor"}))
    assert {"bad_argument", "unknown_tool"} & set(found)


def test_a_probe_that_breaks_is_a_guard_nobody_saw(monkeypatch):
    """An exception in a probe counts as not fired; the other probes go on."""

    def broken(policy):
        raise ValueError("x\x1b")

    monkeypatch.setattr(probes, "PROBES", [Probe("mine", "a test", broken)])
    assert unfired(Policy()) == {"mine": "the probe failed: ValueError: x\x1b"}


def test_the_registry_is_open():
    """A probe of one's own is registered with the decorator."""
    probes.register_probe("mine", "a test")(lambda policy: "it got through")
    try:
        assert PROBES[-1].fire(Policy()) == "it got through"
    finally:
        PROBES.pop()


def test_the_command_prints_what_fired_and_what_did_not(shell, tmp_path):
    """Exit code 0 if all is well, with the notes of this machine; 1 and DID NOT FIRE otherwise."""
    done = shell("doctor")
    assert (done.returncode, done.stdout.count("DID NOT FIRE")) == (0, 0)
    assert "fired  cut_json" in done.stdout
    assert "note: no store is named" in done.stdout
    assert "guards fired" in done.stderr
    (tmp_path / "pokayoke.yaml").write_text("mode: monitor")
    done = shell("doctor")
    assert done.returncode == 1
    assert "DID NOT FIRE" in done.stdout
    assert "mode is monitor" in done.stdout


def test_the_command_names_weak_tools_stores_and_traces(shell, tmp_path):
    """Tools without deadline or output contract, a store that does not open, a trace that cannot be written."""
    (tmp_path / "tools.json").write_text('[{"name": "b", "input_schema": {"type": "object"}}]')
    (tmp_path / "pokayoke.yaml").write_text("trace: {path: missing/t.jsonl}")
    done = shell("doctor", "tools.json", "--store", "nosuch://x", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert [p["code"] for p in report["problems"]] == ["no_output_contract", "no_deadline", "store", "trace"]
    assert not any("no store" in note for note in report["notes"])


def test_a_sample_that_no_guard_could_write_is_a_thing_to_change(shell, tmp_path):
    """A guard with this configuration does not start, so doctor does not call it well."""
    (tmp_path / "pokayoke.yaml").write_text("trace: {sample_path: missing/s.jsonl}")
    done = shell("doctor", "--json")
    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert (problem["code"], "trace.sample_path" in problem["message"]) == ("sample", True)
    (tmp_path / "missing").mkdir()
    assert shell("doctor").returncode == 0


def test_the_store_of_the_other_commands_is_looked_at(shell, monkeypatch):
    """POKAYOKE_STORE names it here, too: one that cannot be used is found, and nobody says that none is named."""
    monkeypatch.setenv("POKAYOKE_STORE", "sqlite:///no.db")
    done = shell("doctor")
    assert (done.returncode, "no ledger at" in done.stdout, "no store is named" in done.stdout) == (1, True, False)


def test_guards_of_a_wrong_configuration_are_fired_under_the_defaults(shell, tmp_path):
    """A file with a mistake is a thing to change, and nobody is told that its own settings held."""
    (tmp_path / "pokayoke.yaml").write_text("moed: monitor")
    done = shell("doctor")
    assert done.returncode == 1
    assert "unknown key `moed`" in done.stdout
    assert "fired under the defaults instead" in done.stdout
    assert done.stderr.endswith("1 thing to change\n")


def test_a_source_that_is_missing_is_exit_code_2(shell):
    """What doctor cannot read it does not guess."""
    assert shell("doctor", "missing.json").returncode == 2


def test_notes_follow_the_platform(monkeypatch):
    """A slower way to reach a path, what the system lacks, and a missing trace file have their note."""
    for how, is_said in (("walk", True), ("openat2", False)):
        monkeypatch.setattr("pokayoke.runtime.files.confined_open.open_method", lambda how=how: how)
        assert any("folder by folder" in note for note in collect_notes(Policy(), [], None)) is is_said
    monkeypatch.setattr(command, "weaknesses", lambda: iter(["Windows cannot do this."]))
    told = " ".join(collect_notes(Policy(trace=TracePolicy(path="x")), [], "memory://"))
    assert "Windows" in told
    assert "trace.path" not in told


def test_what_is_weaker_about_a_store_is_a_note(tmp_path, monkeypatch):
    """A ledger without a key keeps no output with a secret in it; doctor says so and finds nothing wrong."""
    monkeypatch.delenv("POKAYOKE_STORE_KEY", raising=False)
    url = f"sqlite:///{tmp_path}/ledger.db"
    open_store(url, create=True).close()
    problems, notes = command._store_problems(url)
    assert problems == []
    assert "POKAYOKE_STORE_KEY" in notes[0]


def test_a_store_that_opens_is_no_problem(monkeypatch):
    """Only a store that refuses is one."""
    assert command._store_problems("memory://") == ([], [])
    assert command._store_problems(None) == ([], [])

    def refuse(url):
        raise StoreError("gone")

    monkeypatch.setattr("pokayoke.stores.open_store", refuse)
    assert command._store_problems("sqlite:///x")[0][0].where == "sqlite"
