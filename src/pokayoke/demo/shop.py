"""The shop: orders, refunds, charges, prices, parcels and stock on a real SQLite file.

The functions are tools as people write them. They trust their arguments, and SQLite stores a text in an integer
column without complaint. Validation is left to others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from pokayoke.demo.database import Database

Cents = Annotated[int, Field(ge=1, le=100_000)]

_SCHEMA = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, user_id TEXT, sku TEXT, amount INTEGER, currency TEXT, address TEXT);
CREATE TABLE refunds (id INTEGER PRIMARY KEY, order_id TEXT, cents INTEGER);
CREATE TABLE charges (id INTEGER PRIMARY KEY, order_id TEXT, cents INTEGER);
CREATE TABLE shipments (id INTEGER PRIMARY KEY, user_id TEXT, sku TEXT);
CREATE TABLE items (sku TEXT PRIMARY KEY, cents INTEGER, grams INTEGER, units INTEGER);
INSERT INTO orders VALUES (1001, 'U1', 'S1', 1, 'EUR', 'home');
INSERT INTO items VALUES ('S1', 1500, 400, 70), ('S2', 900, 250, 12);
"""


class Shop:
    """The shop's database and the tools over it."""

    def __init__(self, path: Path) -> None:
        self._db = Database(path, _SCHEMA)

    def read_facts(self) -> list[str]:
        """Return what the database holds, one line per fact."""
        return [
            *(
                f"order {user}: {amount!r} x {sku} in {currency} to {address}"
                for user, sku, amount, currency, address in self._db.read(
                    "SELECT user_id, sku, amount, currency, address FROM orders"
                )
            ),
            *(
                f"refund {order}: {cents} cents"
                for order, cents in self._db.read("SELECT order_id, cents FROM refunds")
            ),
            *(
                f"charge {order}: {cents} cents"
                for order, cents in self._db.read("SELECT order_id, cents FROM charges")
            ),
            *(f"shipment of {sku} to {user}" for user, sku in self._db.read("SELECT user_id, sku FROM shipments")),
            *(f"price of {sku}: {cents} cents" for sku, cents in self._db.read("SELECT sku, cents FROM items")),
            *(f"weight of {sku}: {grams} g" for sku, grams in self._db.read("SELECT sku, grams FROM items")),
            *(f"stock of {sku}: {units}" for sku, units in self._db.read("SELECT sku, units FROM items")),
        ]

    def place_order(
        self,
        user_id: str,
        sku: str,
        amount: Annotated[int, Field(ge=1, le=100)],
        currency: Literal["CNY", "EUR", "USD"],
        address: str = "home",
    ) -> dict[str, Any]:
        """Place one order. `address` is where it goes; without one it goes to the customer's home."""
        order = self._db.write(
            "INSERT INTO orders (user_id, sku, amount, currency, address) VALUES (?, ?, ?, ?, ?)",
            user_id, sku, amount, currency, address,
        )  # fmt: skip
        return {"placed": f"O-{order}"}

    def list_orders(self, user_id: str) -> dict[str, Any]:
        """List the orders of a customer."""
        rows = self._db.read("SELECT id, sku, amount FROM orders WHERE user_id = ?", user_id)
        return {"orders": [{"order_id": f"O-{order}", "sku": sku, "amount": amount} for order, sku, amount in rows]}

    def refund(self, order_id: str, cents: Cents) -> dict[str, Any]:
        """Pay money back for an order, in cents."""
        return {"refunded": self._db.write("INSERT INTO refunds (order_id, cents) VALUES (?, ?)", order_id, cents)}

    def charge_card(self, order_id: str, cents: Cents) -> dict[str, Any]:
        """Charge the card on file for an order, in cents."""
        return {"charged": self._db.write("INSERT INTO charges (order_id, cents) VALUES (?, ?)", order_id, cents)}

    def ship(self, user_id: str, sku: str) -> dict[str, Any]:
        """Send an item to a customer."""
        shipment = self._db.write("INSERT INTO shipments (user_id, sku) VALUES (?, ?)", user_id, sku)
        return {"shipped": shipment}

    def set_price(self, sku: str, cents: Cents) -> dict[str, Any]:
        """Set the price of an item, in cents."""
        self._db.write("UPDATE items SET cents = ? WHERE sku = ?", cents, sku)
        return {"priced": sku}

    def set_weight(self, sku: str, grams: Annotated[int, Field(ge=1, le=50_000)]) -> dict[str, Any]:
        """Set the weight of an item, in grams."""
        self._db.write("UPDATE items SET grams = ? WHERE sku = ?", grams, sku)
        return {"weighed": sku}

    def restock(self, sku: str, units: Annotated[int, Field(ge=1, le=1000)]) -> dict[str, Any]:
        """Buy more units of an item from the supplier."""
        self._db.write("UPDATE items SET units = units + ? WHERE sku = ?", units, sku)
        return {"restocked": sku}

    def track_parcel(self, order_id: str) -> dict[str, Any]:
        """Ask the carrier where a parcel is."""
        return {"order_id": order_id, "place": "Leipzig"}
