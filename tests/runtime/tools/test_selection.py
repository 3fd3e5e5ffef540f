"""Staged selection over real runs: few schemas go out, others are found by search, and the guard checks all as always."""

import json

import pytest

import pokayoke
from pokayoke.errors import UsageError
from pokayoke.testing import ScriptedModel, ask

THINGS = ["invoice", "parcel", "meeting", "ticket", "contract", "vehicle", "server", "recipe", "flight", "photo"]
VERBS = ["create", "find", "cancel", "rename", "archive"]
KEY = {"type": "object", "properties": {"key": {"type": "string", "description": "Which one is meant. " * 20}}, "required": ["key"], "additionalProperties": False}  # fmt: skip
done = []


def catalogue(*more):
    def handler(name):
        def run(key):
            done.append(name)
            return {"key": key}

        return run

    names = [f"{verb}_{thing}" for thing in THINGS for verb in VERBS]
    made = [
        pokayoke.Contract.from_schema(
            name, KEY, output_schema={"type": "object"}, handler=handler(name),
            effect="read" if name.startswith("find") else "write", description=f"{name.replace('_', ' ').capitalize()}.",
        )
        for name in names
    ]  # fmt: skip
    return [*made, *more]


def guarded(*more, **config):
    return pokayoke.Guard(catalogue(*more), config=config)


def named(tools):
    return [tool["function"]["name"] for tool in tools]


@pytest.fixture(autouse=True)
def fresh():
    done.clear()


def test_only_candidates_and_the_search_are_offered():
    """Of fifty tools, those the text is about go out with their schemas, and one by which others are found."""
    run = guarded().run()
    whole = len(json.dumps(run.tools()))
    chosen = run.select("Please cancel the flight to Rome", 3)
    assert named(run.tools())[:-1] == sorted(chosen.names, key=[c.name for c in run.guard.tools].index)
    assert "cancel_flight" in chosen.names
    assert named(run.tools())[-1] == "find_tools"
    assert len(json.dumps(run.tools())) < whole / 8


def test_a_search_names_them_and_offers_their_schemas(driver):
    """The answer holds names and one line each, no schema; from then on these tools are offered."""
    run = guarded().run(prompt="hello")
    run.select("hello", 3)
    assert named(run.tools()) == ["find_tools"]
    outcome = driver.batch(run, [ask("find_tools", query="rename a photo")])[0]
    assert outcome.ok
    assert outcome.value["tools"][0] == {"name": "rename_photo", "about": "Rename photo."}
    assert "Which one is meant" not in outcome.text
    assert "rename_photo" in named(run.tools())
    assert driver.batch(run, [ask("rename_photo", key="a")])[0].ok


def test_several_that_fit_equally_lead_to_a_question(driver):
    """Where candidates are close, the answer names them and says to ask the user; a clear one is just offered."""
    run = guarded().run()
    selected = run.select("cancel", 10)
    assert set(selected.close) == {f"cancel_{thing}" for thing in THINGS}
    note = driver.batch(run, [ask("find_tools", query="cancel")])[0].value["note"]
    assert "cancel_parcel" in note
    assert "ask the user instead of choosing" in note
    clear = driver.batch(run, [ask("find_tools", query="cancel the parcel")])[0].value["note"]
    assert clear == "These tools can be called from now on."
    nothing = driver.batch(run, [ask("find_tools", query="zzz")])[0].value
    assert (nothing["tools"], nothing["note"][:26]) == ([], "Nothing fits these words. ")


def test_a_tool_that_was_not_offered_is_checked_as_always(driver):
    """What is offered decides nothing: a call of another tool runs if it fits, is refused if not, and is offered then."""
    run = guarded().run()
    run.select("hello", 3)
    wrong = driver.batch(run, [ask("create_recipe", wrong=1)])[0]
    assert (wrong.status, done) == ("refused", [])
    assert named(run.tools()) == ["create_recipe", "find_tools"]
    assert driver.batch(run, [ask("create_invoice", key="a")])[0].ok
    assert driver.batch(run, [ask("invented", key="a")])[0].stop_reason == "unknown_tool"
    assert named(run.tools()) == ["create_invoice", "create_recipe", "find_tools"]


def test_who_may_not_use_a_tool_does_not_find_it(driver):
    """Neither candidates nor search show what the caller may not use, and it cannot be smuggled in."""
    run = guarded(access={"deny": ["cancel_flight"]}).run()
    chosen = run.select("cancel the flight", 5, used=["cancel_flight", "create_flight"])
    found = driver.batch(run, [ask("find_tools", query="cancel flight")])[0].value["tools"]
    assert "cancel_flight" not in [*chosen.names, *(one["name"] for one in found), *named(run.tools())]
    assert "create_flight" in chosen.names


def test_an_allow_list_does_not_take_the_search_away(driver):
    """Who may use some tools only is offered the search for them, and it runs."""
    run = guarded(access={"allow": ["create_invoice", "create_recipe"]}).run()
    run.select("invoice", 1)
    assert named(run.tools()) == ["create_invoice", "find_tools"]
    [found] = driver.batch(run, [ask("find_tools", query="recipe")])
    assert [one["name"] for one in found.value["tools"]] == ["create_recipe"]


def test_a_tool_of_the_same_name_is_the_hosts():
    """A host's own `find_tools` stays what it is; ours takes another name."""
    own = pokayoke.Contract.from_schema(
        "findTools", KEY, output_schema={"type": "object"}, effect="read", handler=lambda key: {}
    )
    run = guarded(own).run()
    run.select("hello", 3)
    assert named(run.tools()) == ["search_tools"]


def test_names_given_by_hand():
    """A host may choose itself; what it names is offered and nothing else."""
    run = guarded().run()
    assert named(run.tools(names=["find_parcel"])) == ["find_parcel"]
    assert run.tools(names=[]) == []


def test_a_name_of_no_tool_is_the_programmers_mistake():
    """It is refused with the name that was meant, or those there are; one that is only hidden, or off now, is not."""
    guard = guarded(access={"deny": ["cancel_flight"], "roles": {"find_flight": ["boss"]}})
    run = guard.run(principal="ann")
    assert named(run.tools(names={"cancel_flight", "find_flight", "find_photo", "read_more", "find_tools"})) == [
        "find_photo"
    ]
    run.select("photo", 1)
    assert run.tools(names=["cancel_flight"]) == []
    with pytest.raises(UsageError, match=r"'find_fligth'.* Did you mean 'find_flight'"):
        run.tools(names=["find_photo", "find_fligth"])
    with pytest.raises(UsageError, match=r"'xyz'.* Known: archive_contract, "):
        run.tools(names=["xyz"])
    guard.replace([one for one in catalogue() if one.name != "find_photo"])
    with pytest.raises(UsageError, match="'find_photo'"):
        run.tools(names=["find_photo"])


def test_names_first():
    """With 0 candidates only the search is offered; a negative number is an error."""
    run = guarded().run()
    assert run.select("cancel the flight", 0).names == ()
    assert named(run.tools()) == ["find_tools"]
    with pytest.raises(UsageError, match="cannot offer -1 tools"):
        run.select("x", -1)


def test_exchanged_tools_are_found(driver):
    """After the guard's tools were exchanged, the next selection knows the new ones."""
    guard = guarded()
    run = guard.run()
    run.select("hello", 3)
    sing = pokayoke.Contract.from_schema(
        "sing", KEY, output_schema={"type": "object"}, effect="read", handler=lambda key: {"la": key}
    )
    guard.replace([*catalogue(), sing])
    assert guard.view.catalogue_index is guard.view.catalogue_index
    run.select("sing something", 3)
    assert named(run.tools()) == ["sing", "find_tools"]
    assert driver.batch(run, [ask("sing", key="a")])[0].ok


def test_a_large_output_can_still_be_paged():
    """The tool that pages is offered when there is something to page, and not before."""
    long = pokayoke.Contract.from_schema(
        "find_essay", KEY, output_schema="text", effect="read", handler=lambda key: "word " * 9_000
    )
    run = guarded(long).run()
    run.select("find the essay", 1)
    assert "read_more" not in named(run.tools())
    assert run.call(ask("find_essay", key="a")).ok
    assert "read_more" in named(run.tools())


@pytest.mark.parametrize("kind", ["openai", "json"])
def test_the_loop_selects(kind):
    """`guard.loop(select=...)` offers few, lets the model search, and goes on with what it found or used before."""

    def written(turn):
        if kind == "openai":
            return turn
        return json.dumps({"name": turn.name, "arguments": json.loads(turn.arguments)})

    turns = [ask("find_tools", query="cancel a parcel"), ask("cancel_parcel", key="a")]
    model = ScriptedModel([*map(written, turns), "Done."])
    used = {"id": "c0", "type": "function", "function": {"name": "find_photo", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "look at my photo"},
        {"role": "assistant", "content": None, "tool_calls": [used]},
        {"role": "tool", "tool_call_id": "c0", "content": "x"},
    ]
    if kind == "json":  # behind a native call, a call in a text is no write
        history[1:] = [{"role": "assistant", "content": '{"name": "find_photo", "arguments": {}}'}]
    ended = guarded().loop(model, "Get rid of that flight of mine", messages=history, select=3, format=kind)
    assert (ended.text, done) == ("Done.", ["cancel_parcel"])
    shown = [json.dumps([seen[0], offered]) for seen, offered in zip(model.seen, model.offered, strict=True)]
    if kind == "openai":
        assert ["find_photo" in one for one in shown] == [True] * 3
    assert ["rename_flight" in one or "cancel_flight" in one for one in shown] == [True] * 3
    assert ["cancel_parcel" in one for one in shown] == [False, True, True]
    assert max(map(len, shown)) < len(json.dumps(guarded().run().tools())) / 2


def test_the_hosts_ranking_takes_the_place_of_words(driver):
    """What the host's function names is chosen and found, in its order; other names are left out."""
    asked = []

    def by_meaning(text, tools):
        asked.append((text, len(tools)))
        return ["cancel_flight", "no_such_tool", "cancel_flight", "find_flight"]

    run = pokayoke.Guard(catalogue(), ranking=by_meaning).run()
    chosen = run.select("Ich fliege doch nicht", 1)
    assert (chosen.names, chosen.close) == (("cancel_flight",), ())
    outcome = driver.batch(run, [ask("find_tools", query="取消航班")])[0]
    assert [one["name"] for one in outcome.value["tools"]] == ["cancel_flight", "find_flight"]
    assert asked == [("Ich fliege doch nicht", 50), ("取消航班", 50)]


@pytest.mark.parametrize("ranking", [lambda _text, _tools: [], lambda _text, _tools: 1 / 0])
def test_words_rank_where_the_host_has_no_answer(ranking):
    """A ranking that finds nothing, or fails, leaves the choice to the words of the catalogue."""
    run = pokayoke.Guard(catalogue(), ranking=ranking).run()
    assert "cancel_flight" in run.select("cancel the flight", 3).names


def test_a_ranking_is_a_function_of_two_arguments():
    """What cannot be called with a text and the tools is refused while building."""
    for odd in ("words", lambda text: text):
        with pytest.raises(pokayoke.ConfigurationError, match="ranking"):
            pokayoke.Guard([], ranking=odd)
