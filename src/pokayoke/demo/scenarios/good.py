"""Correct calls. A guard that stops these would be switched off, so they count as much as the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pokayoke.demo.endpoint import Message
from pokayoke.demo.scenario import Scenario, find_word, read_tool_texts
from pokayoke.testing import ask


def plain_order() -> Scenario:
    """An order without a fault."""
    return Scenario(
        name="plain-order",
        kind="a plain order",
        prompt="Order three S1 for U1.",
        turns=lambda _: [ask("place_order", user_id="U1", sku="S1", amount=3, currency="USD"), "Ordered."],
        wanted=("order U1: 3 x S1 in USD to home",),
        good=True,
    )


def two_orders() -> Scenario:
    """Two different orders in one message."""
    return Scenario(
        name="two-orders",
        kind="two different orders in one message",
        prompt="Order an S1 and two S2 for U1.",
        turns=lambda _: [
            [
                ask("place_order", user_id="U1", sku="S1", amount=1, currency="EUR"),
                ask("place_order", user_id="U1", sku="S2", amount=2, currency="EUR"),
            ],
            "Ordered.",
        ],
        wanted=("order U1: 1 x S1 in EUR to home", "order U1: 2 x S2 in EUR to home"),
        good=True,
    )


def wanted_repetition() -> Scenario:
    """The user wants the same order a second time; the host marks it by its occurrence number."""
    order = {"user_id": "U1", "sku": "S1", "amount": 1, "currency": "EUR"}
    return Scenario(
        name="wanted-repetition",
        kind="the same order a second time, on purpose",
        prompt="Order an S1 for U1, and then exactly the same again.",
        turns=lambda _: [ask("place_order", order), ask("place_order", order, occurrence=1), "Ordered twice."],
        wanted=("order U1: 1 x S1 in EUR to home",) * 2,
        good=True,
    )


def counting_word() -> Scenario:
    """An order: `2件` is two, and the contract says how to read it."""
    return Scenario(
        name="counting-word",
        kind='counting word ("2件")',
        prompt="给U1下单两件S1。",
        turns=lambda _: [ask("place_order", user_id="U1", sku="S1", amount="2件", currency="CNY"), "好了。"],
        wanted=("order U1: 2 x S1 in CNY to home",),
        good=True,
    )


def other_spelling() -> Scenario:
    """Another spelling of the name and of the number: the same meaning, and no other one is possible."""
    return Scenario(
        name="other-spelling",
        kind='another spelling (Place-Order, "2")',
        prompt="Order two S1 for U1.",
        turns=lambda _: [ask("Place-Order", user_id="U1", sku="S1", amount="2", currency="EUR"), "Ordered."],
        wanted=("order U1: 2 x S1 in EUR to home",),
        good=True,
    )


def read_then_write() -> Scenario:
    """A profile is read over HTTP and the tag is written from it."""

    def tag_from_profile(messages: Sequence[Message]) -> Any:
        return ask("tag_contact", user_id="U07", tag=find_word(read_tool_texts(messages), "plan"))

    return Scenario(
        name="read-then-write",
        kind="a write based on a good read",
        prompt="Tag U07 with their plan.",
        turns=lambda _: [ask("get_profile", user_id="U07"), tag_from_profile, "Tagged."],
        wanted=("tag U07: pro",),
        good=True,
    )


def note_in_workspace() -> Scenario:
    """A path that looks odd and stays inside."""
    return Scenario(
        name="note-inside",
        kind="a path that stays inside (./x/../)",
        prompt="Note down the word pear.",
        turns=lambda _: [ask("write_note", path="./drafts/../pear.md", text="pear"), "Noted."],
        wanted=("file workspace/pear.md: pear",),
        prepare=lambda world: (world.desk.workspace / "drafts").mkdir(),
        good=True,
    )


def same_read_twice() -> Scenario:
    """A read may be repeated: the tool is called again, not answered from memory."""
    look = ask("count_contacts", segment="paying")
    return Scenario(
        name="same-read-twice",
        kind="the same read again",
        prompt="How many paying contacts? Look twice, then mail the boss.",
        turns=lambda _: [look, look, ask("send_email", to="boss@shop.example", body="1 paying"), "Mailed."],
        wanted=("e-mail to boss@shop.example: 1 paying",),
        good=True,
    )
