"""Path arguments of any shape: each is refused, or reaches the tool confined."""

import datetime as dt
import json
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Annotated, NewType, TypeVar

import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType, TypedDict

from pokayoke import ConfinedPath, Contract, Guard, ToolCall, tool
from pokayoke.core.contract.python_types import mentions_type
from pokayoke.core.versions.lock import StepReason, add_version
from pokayoke.errors import ContractError
from pokayoke.runtime.versions.lock_file import exclusive_change

NOTE = StepReason("2026-11-21T08:00:00Z", "mo", "test")

PATHS = st.sampled_from(
    ["notes.txt", "new/notes.txt", "/etc/passwd", "../notes.txt", "", "~", "C:\\x", "link", "a\x00b", "\ud800"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | PATHS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | PATHS, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A root with a file, and a link in it that leads out."""
    root = tmp_path_factory.mktemp("root")
    (root / "notes.txt").write_text("inside")
    (root / "link").symlink_to("/etc/passwd")
    return root


@pytest.fixture(scope="module", params=["enforce", "monitor"])
def opened(request, workspace):
    """A run with a tool whose path argument may be anything, and what the tool was given."""
    given_to_tool = []
    schema = {"type": "object", "properties": {"p": {}}}
    tool = Contract.from_schema(
        "cat", schema, effect="read", output_schema={}, paths={"p": (str(workspace),)},
        handler=lambda p: given_to_tool.append(p) or {},
    )  # fmt: skip
    return Guard([tool], config={"mode": request.param}).run("r"), given_to_tool


def confined(value, root):
    """Whether this is nothing, a confined path inside the root, or a list of those."""
    if isinstance(value, list):
        return all(isinstance(item, ConfinedPath) and confined(item, root) for item in value)
    return value is None or (isinstance(value, ConfinedPath) and os.path.commonpath([value, root]) == str(root))


@given(value=JSON)
@example(value=[["/etc/passwd"]])
@example(value={"p": "/etc/passwd"})
@example(value=[{"p": "/etc/passwd"}])
@example(value=["notes.txt", None])
@example(value=0)
@example(value=False)
@example(value=[])
def test_every_value_is_refused_or_arrives_confined(opened, workspace, value):
    """No JSON value in a path argument brings a text, number or object to the tool that is not confined."""
    run, given_to_tool = opened
    given_to_tool.clear()
    outcome = run.call(ToolCall("c", "cat", {"p": value}))
    assert (outcome.status == "ok") is bool(given_to_tool)
    assert all(confined(one, workspace) for one in given_to_tool)
    if value is None or value == ["notes.txt"]:
        assert given_to_tool


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (0, "/p"),
        ({"p": "/etc/passwd"}, "/p"),
        ([["/etc/passwd"]], "/p/0"),
        (["notes.txt", {"p": "notes.txt"}], "/p/1"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(opened, value, at):
    """A path that is not text is a bad path, and the finding names where it stands."""
    run, given_to_tool = opened
    given_to_tool.clear()
    outcome = run.call(ToolCall("c", "cat", {"p": value}))
    assert (outcome.status, given_to_tool) == ("refused", [])
    assert (outcome.findings[0].code, outcome.findings[0].at) == ("bad_path", at)
    assert outcome.findings[0].data["rule"] == "type"


class Model(pydantic.BaseModel):
    """Arguments as a model, one of them with another name in JSON."""

    model_config = pydantic.ConfigDict(frozen=True)
    path: str
    more: list[str] = pydantic.Field(default=[], alias="moreFiles")
    own: ConfinedPath | None = None


@dataclass(frozen=True)
class Data:
    """The same as a dataclass."""

    path: str
    moreFiles: tuple[str, ...] = ()  # noqa: N815 - the name of the argument
    own: ConfinedPath | None = None


class Plain(TypedDict):
    """The same as a dict."""

    path: str
    moreFiles: list[str]
    own: ConfinedPath | None


@pytest.mark.parametrize(
    ("model", "read"),
    [
        (Model, lambda made: (made.path, *made.more, made.own)),
        (Data, lambda made: (made.path, *made.moreFiles, made.own)),
        (Plain, lambda made: (made["path"], *made["moreFiles"], made["own"])),
    ],
)
def test_the_paths_of_a_model_arrive_confined(workspace, model, read):
    """A field declared as text holds the confined path, under whatever name the model sends it."""
    seen = []
    paths = dict.fromkeys(("path", "moreFiles", "own"), str(workspace))
    contract = Contract.from_model(
        "cat", model, output={}, effect="read", paths=paths, handler=lambda made: seen.extend(read(made)) or {}
    )
    sent = {"path": "notes.txt", "moreFiles": ["a", "b"], "own": "notes.txt"}
    assert Guard([contract]).run("r").call(ToolCall("c", "cat", sent)).ok
    assert len(seen) == 4
    assert all(isinstance(one, ConfinedPath) and confined(one, workspace) for one in seen)


def outcome_of(function, workspace, sent, **fields):
    """What a tool made of this function answers, all its parameters but `when` being paths."""
    names = [name for name in function.__annotations__ if name not in ("when", "return")]
    made = tool(effect="read", output={}, paths={name: [str(workspace)] for name in names}, **fields)(function)
    return Guard([made]).run("r").call(ToolCall("c", function.__name__, sent))


def test_paths_arrive_confined_beside_arguments_that_are_converted(workspace):
    """Lists keep their confined paths too where another argument makes pydantic read them all."""

    def cat(
        one: str, own: ConfinedPath, several: list[str], pair: tuple[str, ...], any_of: set[str], when: dt.date
    ) -> dict:
        assert when == dt.date(2024, 1, 1)
        assert len(any_of) == 2
        return {"kinds": sorted({type(path).__name__ for path in (one, own, *several, *pair, *any_of)})}

    sent = {
        "one": "a", "own": "b", "several": ["c", "d"], "pair": ["e", "f"], "any_of": ["g", "h", "./g"],
        "when": "2024-01-01",
    }  # fmt: skip
    assert outcome_of(cat, workspace, sent).value == {"kinds": ["ConfinedPath"]}


@pytest.mark.parametrize("default", ["notes.txt", "new.txt", "."])
def test_a_declared_default_arrives_confined(workspace, default):
    """A path the model did not send is opened as safely as one it sent."""

    def cat(path: str = default) -> dict:
        return {"path": path.relative}

    assert outcome_of(cat, workspace, {}).value == {"path": default}
    assert outcome_of(cat, workspace, {"path": "other"}).value == {"path": "other"}


LISTS = [
    (list[str], ["notes.txt", "new.txt"]), (tuple[str, ...], ("notes.txt",)), (list[ConfinedPath], ["."]),
    (frozenset[str], frozenset({"notes.txt"})), (set[str], {"new.txt"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "default"), LISTS)
def test_a_declared_default_of_several_arrives_confined(workspace, kind, default):
    """Each of them, in the kind of list that the tool declares; and the next call gets the same again."""

    def cat(path: kind = default) -> dict:
        assert isinstance(path, type(default))
        paths = sorted(one.relative for one in path)
        if isinstance(path, list):
            path.clear()
        return {"paths": paths}

    for _ in range(2):
        assert outcome_of(cat, workspace, {}).value == {"paths": sorted(default)}


@pytest.mark.parametrize("default", [["notes.txt", "/etc/hostname"], ["/etc/hostname"], [""], []])
def test_several_defaults_that_are_not_all_in_the_roots_are_the_tools_own(workspace, default):
    """The list reaches the tool as it is written."""

    def cat(path: list[str] = default) -> dict:
        return {"same": path == default and not any(isinstance(one, ConfinedPath) for one in path)}

    assert outcome_of(cat, workspace, {}).value == {"same": True}


def test_a_declared_default_does_not_follow_a_link_out(workspace):
    """A default that has become a link out of the root is refused like the same path from the model."""

    def cat(path: str = "link") -> dict:
        raise AssertionError(path)

    assert outcome_of(cat, workspace, {}).findings[0].code == "path_escape"


@pytest.mark.parametrize("default", [None, "", "/etc/hostname"])
def test_a_default_that_is_no_path_in_the_roots_is_the_tools_own(workspace, default):
    """What the programmer wrote for "none" or for a place of its own reaches the tool as it is written."""

    def cat(path: str | None = default) -> dict:
        return {"same": path == default}

    assert outcome_of(cat, workspace, {}).value == {"same": True}


Named = NewType("Named", Path)
Alias = TypeAliasType("Alias", Path | None)
Bounded = TypeVar("Bounded", bound=Path)


@pytest.mark.parametrize(
    "kind",
    [Path, PurePosixPath, Path | None, list[Path], Annotated[Path, "where"], Named, list[Named], Alias, Bounded],
)
def test_a_pathlib_path_is_refused_while_building(workspace, kind):
    """Its own open would follow a link that was swapped after the check, so the contract says what to declare."""

    def cat(path: kind) -> dict:
        return {}

    class Arguments(pydantic.BaseModel):
        where: kind = pydantic.Field(alias="path")

    with pytest.raises(ContractError, match=r"pokayoke\.ConfinedPath"):
        tool(paths={"path": [str(workspace)]}, output={})(cat)
    with pytest.raises(ContractError, match=r"pokayoke\.ConfinedPath"):
        Contract.from_model("cat", Arguments, paths={"path": [str(workspace)]})
    assert tool(output={})(cat).paths == {}


def test_an_alias_may_be_a_part_of_itself():
    """As `type Tree = dict[str, Tree]` is: looking into it comes to an end."""
    tree = SimpleNamespace()
    tree.__value__ = tree
    assert not mentions_type(tree, Path)


def test_a_confined_path_needs_a_root():
    """A type that promises a check is refused where no check was declared."""

    def cat(path: ConfinedPath | None = None) -> dict:
        return {}

    with pytest.raises(ContractError, match="where it may lead"):
        tool(output={})(cat)


def test_the_model_is_asked_for_a_text(workspace):
    """A confined path is a string in the schema, and pydantic reads one from any text."""

    def cat(path: ConfinedPath) -> dict:
        return {}

    made = tool(paths={"path": [str(workspace)]}, output={})(cat)
    assert made.input_schema["properties"] == {"path": {"type": "string"}}
    kept = ConfinedPath(str(workspace), "a")
    assert pydantic.TypeAdapter(ConfinedPath).validate_python(kept) is kept
    assert pydantic.TypeAdapter(ConfinedPath).validate_python("a") == "a"
    with pytest.raises(pydantic.ValidationError):
        pydantic.TypeAdapter(ConfinedPath).validate_python(5)


def test_a_root_that_a_link_has_taken_the_place_of_stays_refused(tmp_path):
    """A guard goes by what the root was at registration, before the first call and after any number of other roots."""
    root, outside = tmp_path / "ws", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("SECRET")

    @tool(effect="read", output="text", paths={"p": [str(root)]})
    def show(p: ConfinedPath) -> str:
        """Show a file."""
        with p.open() as file:
            return file.read()

    run = Guard([show]).run()
    root.rmdir()
    root.symlink_to(outside)
    assert [found.code for found in run.call(ToolCall("1", "show", {"p": "secret"})).findings] == ["root_moved"]
    root.unlink()
    assert [found.code for found in run.call(ToolCall("2", "show", {"p": "secret"})).findings] == ["root_moved"]


def show(p: ConfinedPath) -> str:
    """Show a file."""
    with p.open() as file:
        return file.read()


@pytest.mark.parametrize("written", ["in code", "in code and locked", "in a file"])
@pytest.mark.parametrize("meanwhile", ["swapped", "elsewhere", "gone"])
def test_another_configuration_leaves_a_root_what_it_was(tmp_path, monkeypatch, written, meanwhile):
    """A policy that is taken over finds no other folder under a root's name, and misses none that is gone."""
    monkeypatch.setattr("pokayoke.runtime.config.config._QUIET", 0.0)
    for place, said in (("here", "right"), ("there", "wrong")):
        (tmp_path / place / "ws").mkdir(parents=True)
        (tmp_path / place / "ws" / "file").write_text(said)
    monkeypatch.chdir(tmp_path / "here")
    made = tool(effect="read", output="text", paths={"p": ["ws"]})(show)
    source, lock, config = (tmp_path / name for name in ("contracts.json", "contracts.lock", "pokayoke.yaml"))
    source.write_text(json.dumps([made.to_mapping()]))
    with exclusive_change(lock) as change:
        change(lambda empty: add_version(empty, made, source.name, NOTE, stable=True))
    config.write_text("retry: {retries: 1}\n")
    guard = Guard(
        [show if written == "in a file" else made], config=config, contracts=None if written == "in code" else lock
    )
    if meanwhile == "swapped":
        Path("ws").rename("old")
        Path("ws").symlink_to(tmp_path / "there" / "ws")
    monkeypatch.chdir(tmp_path / "there" if meanwhile == "elsewhere" else tmp_path)
    config.write_text("retry: {retries: 2}\n")
    outcome = guard.run().call(ToolCall("1", "show", {"p": "file"}))
    assert guard.policy.retry.retries == 2
    assert (outcome.value, [found.code for found in outcome.findings]) == (
        (None, ["root_moved"]) if meanwhile == "swapped" else ("right", [])
    )


@pytest.mark.parametrize("named", [(), ("ws",)])
def test_a_tool_that_a_guard_has_prepared_is_locked_as_it_was_written(tmp_path, monkeypatch, named):
    """A lock of a guard's tools is one of the tools it was given, also where a root is relative or leads over a link."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "link").symlink_to("ws")
    monkeypatch.chdir(tmp_path)
    schema = {"type": "object", "properties": {"p": {"type": "string"}}}
    fields = {"effect": "read", "output_schema": "text", "handler": str, "defined_in_code": True}
    given = Contract.from_schema("show", schema, paths={"p": (Path("link"), *named)}, **fields)
    [prepared] = Guard([given]).tools
    assert prepared.to_mapping() == given.to_mapping()
    assert prepared.to_mapping()["paths"] == {"p": ["link", *named]}
    with exclusive_change(tmp_path / "contracts.lock") as change:
        change(lambda empty: add_version(empty, prepared, "code:guard", NOTE, stable=True))
    for one in (given, prepared):
        assert [found.id for found in Guard([one], contracts=tmp_path / "contracts.lock").tools] == ["show@1"]
