"""Tools that answer with something else than they promised.

The model in these scenarios behaves as models do: it takes the field it needs out of what it reads, fills in what is
missing, and writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from pokayoke.demo.crm import CUSTOMERS
from pokayoke.demo.endpoint import Message
from pokayoke.demo.scenario import Scenario, find_number, find_word, read_tool_texts, retry_unless
from pokayoke.demo.upstream import MAINTENANCE_PAGE, Response
from pokayoke.demo.world import World
from pokayoke.testing import Faults, ask

ResponseMaker = Callable[[dict[str, Any]], Response]


def _html_page(_: dict[str, Any]) -> Response:
    return 200, "text/html; charset=utf-8", MAINTENANCE_PAGE


def _html_in_field(record: dict[str, Any]) -> Response:
    body = {**record, "ok": True, "plan": MAINTENANCE_PAGE, "note": "upstream returned HTML inside JSON wrapper"}
    return _json_response(body)


def _cut_body(_: dict[str, Any]) -> Response:
    return 200, "application/json", '{"user_id": "U01", "seats": 3, "plan": "enterprise-trial-exp'


def _break_upstream(spoil: ResponseMaker) -> Callable[[World], None]:
    return lambda world: world.upstream.break_with(spoil)


def _tag_from_profile(user: str) -> Callable[[Sequence[Message]], Any]:
    """Tag a customer with the plan in the output that was read, or with a guess."""

    def tag_customer(messages: Sequence[Message]) -> Any:
        plan = find_word(read_tool_texts(messages), "plan")
        return ask("tag_contact", user_id=user, tag=plan if plan in ("free", "pro") else "enterprise")

    return tag_customer


def crm_incident() -> Scenario:
    """A maintenance page with status 200 becomes 23 enterprise tags."""

    def build_turns(world: World) -> Sequence[Any]:
        def begin_maintenance(_: Sequence[Message]) -> Any:
            world.upstream.break_with(_html_page)
            return ask("get_profile", user_id=CUSTOMERS[1])

        first, second, *others = CUSTOMERS
        script = [
            ask("get_profile", user_id=first),
            _tag_from_profile(first),
            begin_maintenance,
            _tag_from_profile(second),
        ]
        for user in others:
            script += [ask("get_profile", user_id=user), _tag_from_profile(user)]
        return script

    return Scenario(
        name="crm-incident",
        kind="HTML maintenance page with status 200 (23 customers)",
        prompt="Tag every customer with the plan in their profile.",
        turns=build_turns,
        wanted=("tag U01: pro",),
    )


def html_field() -> Scenario:
    """Valid JSON with a web page in place of the plan."""
    return Scenario(
        name="html-field",
        kind="HTML inside a field of valid JSON",
        prompt="Tag U01 with the plan in their profile.",
        turns=lambda _: [ask("get_profile", user_id="U01"), _tag_from_profile("U01")],
        prepare=_break_upstream(_html_in_field),
    )


def truncated_output() -> Scenario:
    """The profile breaks off in the middle of the decisive word."""
    return Scenario(
        name="truncated-output",
        kind="tool output cut mid-stream",
        prompt="Tag U01 with the plan in their profile.",
        turns=lambda _: [ask("get_profile", user_id="U01"), _tag_from_profile("U01")],
        prepare=_break_upstream(_cut_body),
    )


def drifted_schema() -> Scenario:
    """The supplier renamed the field and changed its unit to euros."""

    def copy_price(messages: Sequence[Message]) -> Any:
        return ask("set_price", sku="S1", cents=int(find_number(read_tool_texts(messages), "cents|price") or 1))

    return Scenario(
        name="drifted-schema",
        kind="drifted schema (cents became euros)",
        prompt="Set S1 to the recommended price.",
        turns=lambda _: [ask("get_price", sku="S1"), copy_price],
        prepare=_break_upstream(lambda record: _json_response({"sku": record["sku"], "price": 17.0})),
    )


def error_inside_success() -> Scenario:
    """`ok`, a zero, and an error next to them: the model sees an empty shelf and buys."""

    def buy_if_sold_out(messages: Sequence[Message]) -> Any:
        sold_out = find_number(read_tool_texts(messages), "units") == 0
        return ask("restock", sku="S1", units=500) if sold_out else "I cannot tell whether S1 is sold out."

    return Scenario(
        name="error-inside-success",
        kind="error inside a success",
        prompt="If S1 is sold out, buy 500.",
        turns=lambda _: [ask("get_stock", sku="S1"), buy_if_sold_out],
        prepare=_break_upstream(
            lambda record: _json_response({**record, "units": 0, "ok": True, "error": "inventory unreachable"})
        ),
    )


def unserialisable_output() -> Scenario:
    """A tool returns a generator; its repr is sent to the customer."""

    def mail_figures(messages: Sequence[Message]) -> Any:
        orders = find_number(read_tool_texts(messages), "orders")
        figures = read_tool_texts(messages)[:17] if orders is None else f"{orders:g} orders"
        return ask("send_email", to="boss@shop.example", body=f"This month: {figures}")

    def break_report(world: World) -> None:
        world.faults["monthly_report"] = Faults(["generator"])

    return Scenario(
        name="unserialisable",
        kind="tool returns a generator",
        prompt="Mail the figures of the month to the boss.",
        turns=lambda _: [
            ask("monthly_report"),
            mail_figures,
            retry_unless('"sent"', ask("monthly_report")),
            mail_figures,
        ],
        wanted=("e-mail to boss@shop.example: This month: 41 orders",),
        prepare=break_report,
    )


def oversized_output() -> Scenario:
    """A search returns a million characters; the user's own words fall out of the window."""

    def ship_items(messages: Sequence[Message]) -> Any:
        if "hits" not in read_tool_texts(messages):
            return ask("search_catalogue", query="S1")
        told = any("not to C3" in str(message["content"]) for message in messages if message["role"] == "user")
        return [ask("ship", user_id=user, sku="S1") for user in (("C1", "C2") if told else ("C1", "C2", "C3"))]

    def ship_unless_done(messages: Sequence[Message]) -> Any:
        return "Shipped." if '"shipped"' in read_tool_texts(messages) else ship_items(messages)

    def flood_search(world: World) -> None:
        world.faults["search_catalogue"] = Faults(["oversized"])

    return Scenario(
        name="oversized-output",
        kind="tool output of a million characters",
        prompt="Look up S1 and ship one to each of C1 to C3, but not to C3, who has not paid.",
        turns=lambda _: [ask("search_catalogue", query="S1"), ship_items, ship_unless_done, "Shipped."],
        wanted=("shipment of S1 to C1", "shipment of S1 to C2"),
        prepare=flood_search,
        window=20_000,
    )


def stale_profile() -> Scenario:
    """The second read of a profile fails: the last good answer may be read, but no write may build on it."""

    def build_turns(world: World) -> Sequence[Any]:
        def profile_turn(spoil: ResponseMaker | None) -> Callable[[Sequence[Message]], Any]:
            def ask_profile(_: Sequence[Message]) -> Any:
                world.upstream.break_with(spoil)
                return ask("get_profile", user_id="U01")

            return ask_profile

        return [
            profile_turn(None),
            profile_turn(_html_page),
            _tag_from_profile("U01"),
            retry_unless('"tagged"', profile_turn(None)),
            _tag_from_profile("U01"),
        ]

    return Scenario(
        name="stale-profile",
        kind="second read fails, an older answer is cached",
        prompt="Read U01's profile, and again right before you tag them.",
        turns=build_turns,
        wanted=("tag U01: pro",),
    )


def _json_response(body: dict[str, Any]) -> Response:
    return 200, "application/json", json.dumps(body)
