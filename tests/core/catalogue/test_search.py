"""Search for tools by the words of a text: the right ones first, in a stable order, within the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.catalogue.search import WordIndex, close_candidates, split_words
from pokayoke.core.contract.contract import Contract


def tool(name, description="", **parameters):
    properties = {
        key: {"type": "string", **({"description": about} if about else {})} for key, about in parameters.items()
    }
    return Contract.from_schema(
        name, {"type": "object", "properties": properties}, description=description, output_schema="text"
    )


TOOLS = [
    tool("get_weather", "Get the current weather of a city.", city="Name of the city."),
    tool("convertCurrency", "Convert an amount from one currency to another.", amount="", to="Such as Euro."),
    tool("find_restaurant", "Find restaurants near a place.", place=""),
    tool("cancel_booking", "Cancel a booking of a restaurant.", booking=""),
    tool("math.factorial", "The factorial of a number.", number=""),
    tool("订单查询", "查询用户的订单状态", order=""),
]
INDEX = WordIndex(TOOLS)


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("What is the weather in Ulm?", "get_weather"),
        ("How many Euros are 20 dollars?", "convertCurrency"),
        ("currency conversion", "convertCurrency"),
        ("a RESTAURANT near me, please", "find_restaurant"),
        ("Please cancel my booking", "cancel_booking"),
        ("factorials!", "math.factorial"),
        ("我的订单状态怎么样", "订单查询"),
    ],
)
def test_the_tool_a_text_is_about_comes_first(text, best):
    """Names, descriptions and parameters count, whatever their case, form or script."""
    assert INDEX.rank_tools(text, 3)[0].name == best


def test_parameters_tell_what_a_tool_is_about():
    """A tool without a description is found by the names and descriptions of its parameters."""
    bare = Contract.from_schema("run", {"properties": {"invoice": {"description": "as in Stripe"}, "x": True}})
    index = WordIndex([bare, *TOOLS])
    assert [one.name for text in ("the invoice", "with Stripe") for one in index.rank_tools(text, 3)] == ["run", "run"]


def test_tools_without_any_word_are_never_found():
    """A name without words, and an empty catalogue, raise no error."""
    for tools in ([], [tool("a")]):
        assert WordIndex(tools).rank_tools("a weather", 5) == []


@pytest.mark.parametrize("text", ["", "  ", "what is the", "qwertz asdf", "!?", "😀"])
def test_a_text_without_a_common_word_has_no_candidates(text):
    """Without a common word no tool is returned."""
    assert INDEX.rank_tools(text, 5) == []
    assert INDEX.choose_tools(text, 5) == []
    assert close_candidates(INDEX.rank_tools(text, 5)) == ()


def test_each_sentence_gets_its_candidates():
    """A text with several requests finds the best tool of each before the second best of any."""
    sky = [
        tool("weather_now", "The current weather of a city."),
        tool("weather_week", "The weather of a city in a week."),
    ]
    index, text = (
        WordIndex([*sky, TOOLS[4]]),
        "How is the current weather in my city, and this week? And the factorial of 5?",
    )
    assert [one.name for one in index.rank_tools(text, 2)] == ["weather_week", "weather_now"]
    assert [one.name for one in index.choose_tools(text, 2)] == ["weather_week", "math.factorial"]


def test_only_those_that_may_be_shown():
    """A tool that a caller may not see is not returned and takes no place."""
    allowed = {"find_restaurant"}
    assert [one.name for one in INDEX.rank_tools("restaurant booking", 1, only=allowed)] == ["find_restaurant"]
    assert [one.name for one in INDEX.choose_tools("restaurant. booking.", 5, only=allowed)] == ["find_restaurant"]


def test_close_candidates_are_named():
    """Several tools with about equal scores are close; one that is clearly best is not."""
    twins = WordIndex(
        [
            tool("refund_order", "Refund an order."),
            tool("refund_item", "Refund an item."),
            tool("weather", "Look at the sky."),
        ]
    )
    assert close_candidates(twins.rank_tools("refund", 5)) == ("refund_order", "refund_item")
    assert close_candidates(twins.rank_tools("refund the item", 5)) == ()
    assert close_candidates([]) == ()


def test_an_empty_catalogue_finds_nothing():
    """Without tools, and with tools without words, nothing is found and nothing fails."""
    assert WordIndex([]).choose_tools("weather", 5) == []
    assert WordIndex([tool("x")]).rank_tools("weather", 5) == []


def test_a_schema_without_properties_counts_by_its_name():
    """A tool without parameters, or with undescribed ones, is found by its name."""
    odd = Contract.from_schema("ping", {"type": "object", "properties": {"host": True}}, output_schema="text")
    bare = Contract.from_schema("pong", {"type": "object"}, output_schema="text")
    found = WordIndex([odd, bare])
    assert [one.name for one in found.rank_tools("ping host", 5)] == ["ping"]
    assert [one.name for one in found.rank_tools("pong", 5)] == ["pong"]


def test_only_the_end_of_a_long_text_counts():
    """The work is bounded for any length of text; its end counts."""
    assert INDEX.choose_tools("weather " + "x " * 30_000, 5) == []
    assert INDEX.choose_tools("x " * 30_000 + "weather", 5)[0].name == "get_weather"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserById", ["user", "id"]),
        ("HTTPServer2", ["http", "serve", "2"]),
        ("snake_case-and.dots", ["snake", "case", "dot"]),
        ("cats gas s", ["cat", "gas", "s"]),
        ("天气", ["天气"]),
        ("查天气a", ["查天", "天气"]),
        ("天", ["天"]),
    ],
)
def test_words(text, expected):
    """Case changes, separators and scripts without spaces make words; long ones are stemmed."""
    assert split_words(text) == expected


@given(st.text(max_size=80), st.integers(0, 6))
def test_a_ranking_is_bounded_sorted_and_repeatable(text, most):
    """At most `most` tools, each once, by score; the same text has the same ranking."""
    found = INDEX.rank_tools(text, most)
    assert len(found) <= most
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert all(one.score > 0 for one in found)
    chosen = INDEX.choose_tools(text, most)
    assert len({one.name for one in chosen}) == len(chosen) <= most
    assert (WordIndex(TOOLS).rank_tools(text, most), INDEX.choose_tools(text, most)) == (found, chosen)


CHINESE = [
    tool("refund_order", "为客户退还款项", order="订单编号"),
    tool("book_room", "预约会议室", room="会议室"),
    tool("delete_note", "删除笔记"),
]


@pytest.mark.parametrize(
    ("text", "best"),
    [("请退款", "refund_order"), ("约个会", "book_room"), ("删掉它", "delete_note")],
)
def test_pieces_find_what_no_whole_word_does(text, best):
    """A request that shares single ideographs with a tool finds it, in a search and in a choice."""
    index = WordIndex(CHINESE)
    assert index.rank_tools(text, 3) == []
    assert index.find_tools(text, 3)[0].name == best
    assert index.choose_tools(text, 3)[0].name == best
    assert index.find_tools(text, 3, only=()) == []


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ("Schickt eine Rechnung", "Monatsrechnungen"),
        ("환불 처리", "주문을환불해줘"),
        ("Käyttäjän tilaukset", "peruutilaus"),
    ],
)
def test_pieces_find_words_inside_words(about, text):
    """Compounds and words with endings share a few letters with the tool they are about."""
    index = WordIndex([tool("a1", about), *TOOLS])
    assert index.rank_tools(text, 3) == []
    assert index.find_tools(text, 3)[0].name == "a1"


def test_whole_words_come_before_pieces():
    """Where a whole word is in common, pieces add nothing."""
    index = WordIndex(CHINESE)
    assert [one.name for one in index.find_tools("订单", 3)] == ["refund_order"]
    assert index.find_tools("what is the 123", 3) == []
