"""A changed configuration is taken over as a whole or not at all, beside calls and beside other changes."""

import json
import os
import threading

import pytest

import pokayoke
from pokayoke import Contract, Guard, ToolCall
from pokayoke.errors import ConfigurationError, PolicyError
from pokayoke.runtime.approvals.signature import SECRET
from pokayoke.runtime.tools.view import ToolView
from pokayoke.runtime.versions.lock_file import exclusive_change

ANY = {"type": "object"}
CHECKED = Contract.from_schema("look", ANY, effect="read", output_schema=ANY, handler=dict)
UNCHECKED = Contract.from_schema("unchecked", ANY, effect="read", handler=dict, defined_in_code=True)
LENIENT = "validation: {tool_output: {schema: declared}}\n"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """A file is believed as soon as it is written."""
    monkeypatch.setattr("pokayoke.runtime.config.config._QUIET", 0.0)


@pytest.fixture
def config(tmp_path):
    """A file with the strictest trace."""
    path = tmp_path / "pokayoke.yaml"
    path.write_text(f"{LENIENT}retry: {{retries: 1}}\ntrace: {{path: t.jsonl}}\n")
    return path


def events(guard, tmp_path):
    guard.trace.flush()
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    return [(line["ok"], line["reason"]) for line in lines if line["event"] == "config"]


@pytest.mark.parametrize(
    "content",
    [
        f"{LENIENT}loop: {{off: [no_such_kind]}}\n",
        "validation: {tool_output: {schema: strict}}\n",
        f"{LENIENT}trace: {{path: no/such/folder.jsonl}}\n",
        f"{LENIENT}trace: {{path: ~nosuchuser/t.jsonl}}\n",
        f'{LENIENT}trace: {{path: "a\\0b"}}\n',
        f'{LENIENT}trace: {{path: other.jsonl, sample_path: s.jsonl, sample_key_path: "a\\0b"}}\n',
        f"{LENIENT}trace: {{path: other.jsonl, sample_path: no/such/folder.jsonl}}\n",
        f"{LENIENT}trace: {{path: other.jsonl}}\napprovals: {{webhook: {{url: 'https://there.example/'}}}}\n",
        f"{LENIENT}trace: {{path: other.jsonl, sample_path: s.jsonl}}\nloop: {{off: [no_such_kind]}}\n",
    ],
)
def test_a_policy_that_cannot_be_kept_changes_nothing(config, tmp_path, monkeypatch, content):
    """Whatever part fails: no call fails, all of the old policy stays in force, and the trace says why once."""
    monkeypatch.delenv(SECRET, raising=False)
    guard = Guard([CHECKED, UNCHECKED], config=config)
    before, beside = guard.policy, guard.beside
    config.write_text(f"{content}retry: {{retries: 5}}\n")
    assert [guard.run("r").call(ToolCall("c", "look", {})).status for _ in range(3)] == ["ok"] * 3
    assert guard.policy is before
    assert guard.beside is beside
    [(ok, reason)] = events(guard, tmp_path)
    assert (ok, bool(reason)) == (False, True)
    config.write_text(f"{LENIENT}retry: {{retries: 7}}\ntrace: {{path: t.jsonl}}\n")
    guard.refresh()
    assert guard.policy.retry.retries == 7
    assert events(guard, tmp_path)[1:] == [(True, "reloaded")]


@pytest.mark.timeout(20)
def test_a_file_that_becomes_a_pipe_keeps_nobody_waiting(config, tmp_path):
    """Where the configuration or the lock was there is a pipe that nobody writes to: told once, the old one stays."""
    lock = tmp_path / "contracts.lock"
    with exclusive_change(lock) as change:
        change(lambda empty: empty)
    guard = Guard([CHECKED, UNCHECKED], config=config, contracts=lock)
    before = guard.policy
    for path in (config, lock):
        path.unlink()
        os.mkfifo(path)
    assert [guard.run("r").call(ToolCall("c", "look", {})).status for _ in range(3)] == ["ok"] * 3
    assert guard.policy is before
    guard.trace.flush()
    told = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    refused = [line for line in told if line["event"] in ("config", "contracts")]
    assert [(line["ok"], "no regular file" in line["reason"]) for line in refused] == [(False, True)] * 2


def test_other_tools_give_a_refused_policy_another_chance(config, tmp_path):
    """What only the old tools contradicted comes into force once they are replaced."""
    guard = Guard([CHECKED, UNCHECKED], config=config)
    config.write_text("validation: {tool_output: {schema: strict}}\ntrace: {path: t.jsonl}\n")
    guard.refresh()
    guard.replace([CHECKED])
    guard.refresh()
    assert guard.policy.validation.tool_output.schema == "strict"
    assert [ok for ok, _ in events(guard, tmp_path)] == [False, True]


def test_a_reload_does_not_undo_a_replacement(config, monkeypatch):
    """Tools that are replaced while a policy is taken over are there afterwards, under the new policy."""
    guard = Guard([CHECKED], config=config)
    inside, go_on, prepared = threading.Event(), threading.Event(), ToolView.prepare_swap

    def slowly(*args, **kwargs):
        if threading.current_thread() is reloading:
            inside.set()
            assert go_on.wait(20)
        return prepared(*args, **kwargs)

    monkeypatch.setattr(ToolView, "prepare_swap", slowly)
    config.write_text(f"{LENIENT}retry: {{retries: 5}}\n")
    reloading = threading.Thread(target=guard.refresh)
    replacing = threading.Thread(target=guard.replace, args=([UNCHECKED],))
    reloading.start()
    assert inside.wait(20)
    replacing.start()
    guard.refresh()  # whoever looks meanwhile neither waits nor begins once more
    assert guard.policy.retry.retries == 1
    go_on.set()
    for thread in (reloading, replacing):
        thread.join(20)
    assert [tool.name for tool in guard.tools] == ["unchecked"]
    assert guard.policy.retry.retries == 5


@pytest.mark.parametrize("name", ["path", "sample_path", "sample_key_path"])
@pytest.mark.parametrize("path", ["a\0b", "\ud800", "~nosuchuser/t"])
def test_what_is_no_path_is_an_error_of_the_configuration(name, path):
    """A text that can be no file's is named, in a mapping as in a file."""
    with pytest.raises(PolicyError, match=rf"trace\.{name}` is not a valid path"):
        pokayoke.Guard([], config={"trace": {"sample_path": "s"} | {name: path}})


def test_a_configuration_at_no_path_is_one_that_cannot_be_read():
    """The path of the file itself may be wrong, too."""
    with pytest.raises(PolicyError, match="cannot be read"):
        Guard([], config="a\0b")


def test_a_name_that_means_no_tool_is_refused(config, tmp_path):
    """A misspelt tool in a policy or in `sources` builds no guard and replaces nothing; the error says what was meant."""
    config.write_text(f"{LENIENT}trace: {{path: t.jsonl}}\naccess: {{deny: [unchekced]}}\n")
    with pytest.raises(ConfigurationError, match=r"`access.deny\[0\]` names 'unchekced'.*Did you mean 'unchecked'\?"):
        Guard([CHECKED, UNCHECKED], config=config)
    config.write_text(f"{LENIENT}trace: {{path: t.jsonl}}\naccess: {{deny: [look]}}\n")
    guard = Guard([CHECKED, UNCHECKED], config=config)
    with pytest.raises(ConfigurationError, match="put@1: sources names 'loook'"):
        guard.replace([CHECKED, pokayoke.Contract.from_schema("put", ANY, sources=("loook",), output_schema=ANY)])
    config.write_text(f"{LENIENT}trace: {{path: t.jsonl}}\naccess: {{deny: [lok]}}\n")
    statuses = [guard.run().call(ToolCall("c", name, {})).status for name in ("look", "unchecked")]
    assert statuses == ["refused", "ok"]
    [(ok, reason)] = events(guard, tmp_path)
    assert not ok
    assert "Did you mean 'look'?" in reason
