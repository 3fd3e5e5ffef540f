"""Calls that would happen twice, hang, or end the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pokayoke.demo.endpoint import Message, RunLog
from pokayoke.demo.scenario import Scenario, retry_unless
from pokayoke.demo.world import World
from pokayoke.testing import Fault, Faults, ask, hang

HANG_SECONDS = 1.5
"""A run that waits until the tool returns counts as harmed; the tool's contract allows 0.3 s."""


def charged_twice() -> Scenario:
    """The charge goes through and the answer is lost; a retry charges again."""
    charge = ask("charge_card", order_id="O-1001", cents=1500)
    return Scenario(
        name="charged-twice",
        kind="connection lost after the charge, then a retry",
        prompt="Charge 15 euros for O-1001.",
        turns=lambda _: [charge, retry_unless('"charged"', charge), "Please check the charge."],
        wanted=("charge O-1001: 1500 cents",),
        prepare=_prepare_faults("charge_card", "raise_after"),
    )


def parallel_duplicate() -> Scenario:
    """One message asks for the same charge twice."""
    charge = ask("charge_card", order_id="O-1001", cents=1500)
    return Scenario(
        name="parallel-duplicate",
        kind="the same call twice in one message",
        prompt="Charge 15 euros for O-1001.",
        turns=lambda _: [[charge, charge], "Charged."],
        wanted=("charge O-1001: 1500 cents",),
    )


def duplicate_order() -> Scenario:
    """An order, repeated three turns later because the model forgot that it had ordered."""
    order = ask("place_order", user_id="U1", sku="S1", amount=2, currency="CNY")
    return Scenario(
        name="duplicate-order",
        kind="the same order again, later in the run",
        prompt="Order two S1 for U1 and tell me where they are.",
        turns=lambda _: [order, ask("track_parcel", order_id="O-1002"), order, "Ordered, it is in Leipzig."],
        wanted=("order U1: 2 x S1 in CNY to home",),
    )


def hanging_tool() -> Scenario:
    """The carrier does not answer; every later call waits."""

    def find_harm(log: RunLog) -> list[str]:
        return [f"the run stood still for {log.longest:.1f} s"] if log.longest >= HANG_SECONDS else []

    return Scenario(
        name="hanging-tool",
        kind="tool that hangs",
        prompt="Tell U1 by mail where O-1001 is; say so if you cannot find out.",
        turns=lambda _: [
            ask("track_parcel", order_id="O-1001"),
            ask("send_email", to="u1@shop.example", body="We are looking for your parcel."),
            "Mailed.",
        ],
        wanted=("e-mail to u1@shop.example: We are looking for your parcel.",),
        prepare=_prepare_faults("track_parcel", hang(HANG_SECONDS)),
        harm=find_harm,
    )


def exiting_tool() -> Scenario:
    """A script made for the command line calls `sys.exit`."""
    return Scenario(
        name="exiting-tool",
        kind="tool that calls sys.exit",
        prompt="Mail the boss whether the monthly report works.",
        turns=lambda _: [
            ask("monthly_report"),
            ask("send_email", to="boss@shop.example", body="The report does not work."),
            "Mailed.",
        ],
        wanted=("e-mail to boss@shop.example: The report does not work.",),
        prepare=_prepare_faults("monthly_report", "exits"),
    )


def failing_before() -> Scenario:
    """The carrier refuses the first connection; a read may be retried."""

    def mail_place(messages: Sequence[Message]) -> Any:
        place = "Leipzig" if "Leipzig" in str(messages[-1]["content"]) else "somewhere"
        return ask("send_email", to="u1@shop.example", body=f"Your parcel is in {place}.")

    return Scenario(
        name="read-retried",
        kind="read that fails once and is tried again",
        prompt="Mail U1 where O-1001 is.",
        turns=lambda _: [ask("track_parcel", order_id="O-1001"), mail_place, "Mailed."],
        wanted=("e-mail to u1@shop.example: Your parcel is in Leipzig.",),
        prepare=_prepare_faults("track_parcel", "raise_before"),
        good=True,
    )


def _prepare_faults(tool: str, *faults: str | Fault) -> Callable[[World], None]:
    def set_faults(world: World) -> None:
        world.faults[tool] = Faults(faults)

    return set_faults
