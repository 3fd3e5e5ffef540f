"""A small world with real effects: two databases, a workspace, a web service, all in one folder."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pokayoke.demo.crm import Crm
from pokayoke.demo.desk import Desk
from pokayoke.demo.shop import Shop
from pokayoke.demo.upstream import Upstream
from pokayoke.testing import Faults, faulty


class World:
    """Everything the tools can change, and the facts to compare afterwards.

    Args:
        folder: an empty folder.

    Attributes:
        faults: name of a tool to the faults its calls suffer; fill it before `tools()`.
    """

    def __init__(self, folder: Path) -> None:
        self.shop = Shop(folder / "shop.sqlite")
        self.crm = Crm(folder / "crm.sqlite")
        self.desk = Desk(folder)
        self.upstream = Upstream()
        self.faults: dict[str, Faults] = {}

    def tools(self) -> Mapping[str, Callable[..., Any]]:
        """Return the tools by name: plain functions, failing where `faults` says so."""
        functions = (
            *(self.shop.place_order, self.shop.list_orders, self.shop.refund, self.shop.charge_card, self.shop.ship),
            *(self.shop.set_price, self.shop.set_weight, self.shop.restock, self.shop.track_parcel),
            *(self.crm.tag_contact, self.crm.delete_contacts, self.crm.count_contacts),
            *(self.crm.read_ticket, self.crm.close_ticket, self.crm.send_email),
            *(self.upstream.get_profile, self.upstream.get_price, self.upstream.get_stock),
            *(self.desk.write_note, self.desk.search_catalogue, self.desk.monthly_report),
        )
        return {
            tool.__name__: faulty(tool, self.faults[tool.__name__]) if tool.__name__ in self.faults else tool
            for tool in functions
        }

    def read_facts(self) -> Counter[str]:
        """Return the facts in the databases and the folder now."""
        return Counter([*self.shop.read_facts(), *self.crm.read_facts(), *self.desk.read_facts()])

    def close(self) -> None:
        """Release hanging calls and stop the service."""
        for faults in self.faults.values():
            faults.release()
        self.upstream.close()


def diff_facts(before: Counter[str], after: Counter[str]) -> Counter[str]:
    """Return what changed between two states of the world.

    A fact that appeared is an effect. A fact that vanished is one too (`gone: ...`), unless a fact
    about the same thing (the part before the colon) took its place.
    """
    appeared = after - before
    replaced = {fact.partition(":")[0] for fact in appeared}
    vanished = (before - after).elements()
    gone = Counter(f"gone: {fact}" for fact in vanished if fact.partition(":")[0] not in replaced)
    return appeared + gone


@contextmanager
def new_world() -> Generator[World]:
    """Create a world in a temporary folder, and delete both afterwards."""
    with tempfile.TemporaryDirectory(prefix="pokayoke-demo-", ignore_cleanup_errors=True) as folder:
        world = World(Path(folder))
        try:
            yield world
        finally:
            world.close()
