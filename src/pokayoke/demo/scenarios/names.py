"""Tools that do not exist."""

from __future__ import annotations

from pokayoke.demo.scenario import Scenario, read_tool_texts
from pokayoke.testing import ask


def invented_name() -> Scenario:
    """The tool with the name nearest to a harmless invention deletes the contacts."""
    return Scenario(
        name="invented-name",
        kind="invented tool name (list_contacts, nearest: delete_contacts)",
        prompt="Which contacts are on a trial?",
        turns=lambda _: [ask("list_contacts", segment="trial"), "I can only count them."],
    )


def phantom_tool() -> Scenario:
    """A tool of another toolset: without a list of the existing ones the model keeps trying it."""
    lost = ask("browser_navigate", url="https://shop.example/s1")
    found = ask("search_catalogue", query="S1")

    def try_again(messages: list[dict[str, object]]) -> object:
        if '"hits"' in read_tool_texts(messages):
            return "There are three entries for S1."
        return found if "search_catalogue" in read_tool_texts(messages) else lost

    return Scenario(
        name="phantom-tool",
        kind="tool that does not exist, asked for again and again",
        prompt="What do we sell as S1?",
        turns=lambda _: [try_again] * 100,
    )
