"""The demo: both columns are executed, and what they say is asked from the world afterwards."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import pokayoke
from pokayoke import demo
from pokayoke.cli.demo import demo as command
from pokayoke.demo import SCENARIOS, guarded, report, unguarded
from pokayoke.demo.endpoint import Endpoint, RunLog, estimate_tokens
from pokayoke.demo.scenario import Scenario, Side, find_number, find_word, judge_side, read_tool_texts, retry_unless
from pokayoke.demo.world import diff_facts, new_world
from pokayoke.stores.lists import EffectFilter
from pokayoke.testing import ask

NAMES = [make().name for make in SCENARIOS]


@pytest.fixture(scope="module")
def results():
    """Every scenario, played once for all tests of this file."""
    return {scenario.name: demo.play(scenario) for scenario in demo.select()}


@pytest.mark.parametrize("name", NAMES)
def test_the_guarded_run_does_what_was_wanted_and_nothing_else(results, name):
    """Behind the guard there is no wrong effect, no harm, and no wanted effect is missing."""
    side = results[name].guarded
    assert (side.wrong, side.lost) == ((), ()), side.calls


@pytest.mark.parametrize("name", NAMES)
def test_the_unguarded_run_goes_wrong_where_it_says_so(results, name):
    """Each failure really does damage without a guard, and each good call really works without one."""
    result = results[name]
    assert result.unguarded.is_clean is result.scenario.good


def test_enough_kinds_of_failure():
    """There are more than twenty kinds of failure and some good calls, each under a name of its own."""
    scenarios = demo.select()
    assert len(set(NAMES)) == len(NAMES)
    assert sum(not scenario.good for scenario in scenarios) >= 20
    assert sum(scenario.good for scenario in scenarios) >= 5
    assert all(scenario.prompt and scenario.kind for scenario in scenarios)


def test_the_crm_incident_is_that_of_the_seed(results):
    """Without a guard 23 customers get a wrong enterprise tag; with it, only the right tag is written."""
    incident = results["crm-incident"]
    assert len(incident.unguarded.wrong) == 23
    assert all(line.endswith(": enterprise") for line in incident.unguarded.wrong)
    assert incident.guarded.kept == incident.unguarded.kept == ("tag U01: pro",)
    assert incident.guarded.stop_reason == "invalid_tool_output"


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("html-field", "degraded", "invalid_tool_output"),
        ("cut-in-number", "refused", "invalid_arguments"),
        ("cut-but-parses", "refused", "invalid_arguments"),
        ("invented-name", "refused", "unknown_tool"),
        ("low-confidence", "refused", "low_confidence"),
        ("charged-twice", "in_doubt", "in_doubt"),
        ("parallel-duplicate", "replayed", None),
        ("duplicate-order", "replayed", None),
        ("hanging-tool", "failed", "tool_failure"),
        ("exiting-tool", "failed", "tool_failure"),
        ("path-escape", "refused", "invalid_arguments"),
        ("ticket-gives-orders", "pending", "awaiting_approval"),
    ],
)
def test_why_the_guard_stopped_it(results, name, status, reason):
    """A failure ends with the status and the stop reason made for it, not with any refusal."""
    assert (status, reason) in [(call["status"], call["stop_reason"]) for call in results[name].guarded.calls]


def test_the_stale_answer_is_told_as_stale(results):
    """The second, broken read hands on the last good answer with its age and says that it is degraded."""
    reads = [call for call in results["stale-profile"].guarded.calls if call["tool"] == "get_profile"]
    assert [call["status"] for call in reads] == ["ok", "degraded", "ok"]
    assert "last valid answer" in reads[1]["reads"]


def test_a_wrong_effect_behind_the_guard_is_not_passed_over(monkeypatch, capsys):
    """If the guard were nothing but the unguarded loop, the demo would say so and exit with 1."""
    monkeypatch.setattr(
        guarded, "run_loop", lambda end, tools, world, scenario, kept: unguarded.run_loop(end, tools, scenario.prompt)
    )
    assert demo.main(only=["two-amounts"]) == 1
    assert "Not as it should be behind the guard: two-amounts" in capsys.readouterr().out


def test_a_lost_good_call_is_not_passed_over(monkeypatch):
    """A guard that runs nothing at all fails the demo: a good call that is lost counts like a wrong one."""
    monkeypatch.setattr(guarded, "run_loop", lambda *_: RunLog(answer="I did nothing."))
    assert demo.main(only=["plain-order"]) == 1


def test_effects_are_differences_of_the_world():
    """What appeared and what vanished are effects; a value that took another's place is one, not two."""
    before = Counter(["contact C1", "price of S1: 5", "tag U1: pro"])
    after = Counter(["price of S1: 7", "tag U1: pro", "tag U1: pro"])
    assert diff_facts(before, after) == Counter(["price of S1: 7", "tag U1: pro", "gone: contact C1"])


def test_the_verdict_counts_repetitions():
    """An effect that was wanted once and happened three times is right once and wrong twice."""
    scenario = Scenario(name="x", kind="x", prompt="x", turns=lambda _: [], wanted=("a", "b"))
    side = judge_side(scenario, Counter({"a": 3, "c": 1}), RunLog(answer="ok"), requests=1, seconds=0.0)
    assert (side.kept, side.wrong, side.lost) == (("a",), ("a", "a", "c"), ("b",))
    assert not side.is_clean


@pytest.mark.parametrize(
    ("log", "harm"),
    [
        (RunLog(answer="ok"), ()),
        (RunLog(), ("no answer after 7 requests to the model",)),
        (RunLog(crash="SystemExit(1)"), ("the agent's process ended: SystemExit(1)",)),
    ],
)
def test_an_end_without_an_answer_is_harm(log, harm):
    """A run that crashed or never answered is not clean, even if nothing was changed."""
    scenario = Scenario(name="x", kind="x", prompt="x", turns=lambda _: [])
    assert judge_side(scenario, Counter(), log, requests=7, seconds=0.0).wrong == harm


def test_the_world_is_taken_down():
    """After a scenario its folder is gone and its web service does not answer."""
    with new_world() as world:
        folder = world.desk.workspace.parent
        assert world.upstream.get_profile("U1")["status"] == 200
    assert not folder.exists()
    with pytest.raises(OSError, match=r"."):
        world.upstream.fetch_record("profiles/U1")


def test_every_tool_is_declared():
    """Each function of the world has a declaration for the guard, and no declaration lacks its function."""
    with new_world() as world:
        assert set(guarded.tool_declarations(world)) == set(world.tools())


def test_the_window_hides_the_oldest():
    """A model behind a window sees the system prompt and the newest messages, and always the last one."""
    messages = [{"role": "system", "content": "s"}, *({"role": "user", "content": "x" * 400} for _ in range(10))]
    endpoint = Endpoint(["a", "b"], window=350)
    endpoint(messages, [])
    (seen,) = endpoint.model.seen
    assert seen == [messages[0], *messages[-3:]]
    assert estimate_tokens(seen) <= 350
    endpoint([messages[0], {"role": "tool", "content": "y" * 9_000}], [])
    assert [message["role"] for message in endpoint.model.seen[-1]] == ["system", "tool"]


def test_what_the_model_takes_out_of_what_it_reads():
    """The scripted habits read the tool messages since the model last spoke, and take words and numbers from them."""
    messages = [
        {"role": "tool", "content": "old"},
        {"role": "assistant", "content": None},
        {"role": "tool", "content": '{"plan": "pro"}'},
        {"role": "tool", "content": '{"units": 2.5}'},
    ]
    text = read_tool_texts(messages)
    assert text == '{"plan": "pro"}\n{"units": 2.5}'
    assert (find_word(text, "plan"), find_word(text, "tier")) == ("pro", None)
    assert (find_number(text, "cents|units"), find_number(text, "plan")) == (2.5, None)
    turn = ask("a")
    assert retry_unless("plan", turn)(messages) == "Done."
    assert retry_unless("price", turn)(messages) is turn


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "Error: Shop.list_orders() missing 1 required positional argument: 'user_id'"),
        ("not json", "Error: Expecting value: line 1 column 1 (char 0)"),
        ('{"user_id": "U2', '{"orders": []}'),
        ('{"user_id": "U2", "extra": 1,}', '{"orders": []}'),
        ("{'user_id': 'U2'}", '{"orders": []}'),
    ],
)
def test_the_unguarded_loop_repairs_and_drops(arguments, said):
    """The loop closes what is open, drops what it does not know, and hands errors to the model."""
    with new_world() as world:
        endpoint = Endpoint([ask("list_orders", arguments), "ok"])
        log = unguarded.run_loop(endpoint, {"list_orders": world.shop.list_orders}, "x")
    assert log.calls[0]["reads"] == said


def test_select_takes_parts_of_names():
    """Scenarios are chosen by name or part of it, in their own order; an unknown word lists the names."""
    assert [scenario.name for scenario in demo.select(["hanging", "crm"])] == ["crm-incident", "hanging-tool"]
    assert [scenario.name for scenario in demo.select(["plain-order"])] == ["plain-order"]
    with pytest.raises(LookupError, match=r"'nonsense'.*crm-incident"):
        demo.select(["nonsense"])


def test_json_holds_everything(capsys):
    """The JSON document names what was wanted and what each run came to; stdout holds nothing else."""
    assert demo.main(json=True, only=["two-amounts", "plain-order"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert document["totals"] == {
        "scenarios": 2,
        "failure_kinds": 1,
        "wanted": 2,
        "unguarded_wrong": 1,
        "unguarded_lost": 1,
        "unguarded_kept": 1,
        "guarded_wrong": 0,
        "guarded_lost": 0,
        "guarded_kept": 2,
    }
    bad, good = document["scenarios"]
    assert bad["unguarded"]["wrong"] == ["refund O-1001: 50000 cents"]
    assert bad["guarded"]["calls"][0]["findings"] == ["duplicate_key"]
    assert good["guarded"]["clean"] is True


def test_the_table_names_every_scenario(results, capsys):
    """The table has a row for each scenario, and the summary has five lines and the totals."""
    everything = list(results.values())
    report.print_table(everything, 1.0, verbose=False)
    out = capsys.readouterr().out
    flat = "".join(char for char in out if char not in " │\n")
    assert [name for name in NAMES if name not in flat] == []
    assert len(report.summary_lines(everything, 1.0)) == 5
    assert report.summary_lines(everything, 1.0)[-1] in out


def test_one_script_is_not_several(results):
    """The summary of a single script counts nothing in the plural."""
    told = " ".join(report.summary_lines([results["crm-incident"]], 1.0))
    assert re.findall(r"\b1 (?!of )\w+s\b", told.replace("1.0 s", "")) == []


def test_verbose_shows_what_the_model_read(capsys):
    """With --verbose every call of both runs is there, with the text the model got."""
    assert demo.main(only=["invented-name"], verbose=True) == 0
    out = capsys.readouterr().out
    assert "list_contacts → refused" in out
    assert "guarded  answer: I can only count them." in out


def test_nothing_reaches_the_terminal_unescaped(capsys):
    """Escape codes and control characters of an effect are shown, not sent."""
    side = Side(kept=(), wrong=("file x: \x1b]52;c;evil\x07\nnext",), lost=())
    scenario = dataclasses.replace(demo.select(["plain-order"])[0])
    report.print_table([demo.ScenarioResult(scenario, side, side)], 0.0, verbose=True)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\\x1b]52" in out


def test_an_unknown_name_is_exit_code_2(capsys):
    """Nothing to play is neither success nor a finding; stdout stays empty."""
    assert demo.main(only=["nonsense"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "crm-incident" in captured.err


def test_the_command_hands_on_its_options():
    """The command prints JSON when asked and ends with the demo's exit code."""
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, ["--json", "--only", "plain-order"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["totals"]["scenarios"] == 1
    assert CliRunner().invoke(app, ["--only", "nonsense"]).exit_code == 2


def test_it_runs_as_a_module():
    """`python -m pokayoke.demo` is the same demo."""
    done = subprocess.run(
        [sys.executable, "-m", "pokayoke.demo", "--json", "--only", "plain-order"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True


def test_the_demo_ends_with_the_command_that_shows_its_runs(capsys):
    """The last line names a ledger and a trace that hold the guarded run, and the dashboard takes both."""
    assert demo.main(only=["charged-twice"]) == 0
    words = capsys.readouterr().out.splitlines()[-1].split()
    store, trace = words[words.index("--store") + 1], words[words.index("--trace") + 1]
    assert words[words.index("--store") - 1] == "dashboard"
    opened = pokayoke.open_store(store)
    assert [record.run_id for record in opened.effects(EffectFilter())]
    opened.close()
    assert "charged-twice" in Path(trace).read_text(encoding="utf-8")
    shutil.rmtree(Path(trace).parent)
