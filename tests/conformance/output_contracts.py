"""Hand-written output contracts for tools whose answers were recorded, read from those answers' shapes."""

from typing import Any

from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.terms import Equal, Format, Range

TEXT = {"type": "string", "minLength": 1}
AMOUNT = {"type": "number"}
PRICE = {"type": "number", "minimum": 0}
COUNT = {"type": "integer", "minimum": 0}
DAY = {"type": "string", "format": "date"}


def record(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """A closed object."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def many(items: dict[str, Any]) -> dict[str, Any]:
    """A list of equal things."""
    return {"type": "array", "items": items}


def mapping(values: dict[str, Any]) -> dict[str, Any]:
    """An object whose keys are data."""
    return {"type": "object", "additionalProperties": values}


ADDRESS = record(
    {"address1": TEXT, "address2": {"type": "string"}, "city": TEXT, "country": TEXT, "zip": TEXT},
    {"state": TEXT, "province": TEXT},
)
PAYMENT_METHOD = record(
    {"source": {"enum": ["credit_card", "paypal", "gift_card", "certificate"]}, "id": TEXT},
    {"brand": TEXT, "last_four": {"type": "string", "pattern": "^[0-9]{4}$"}, "amount": AMOUNT, "balance": AMOUNT},
)
USER = record(
    {
        "name": record({"first_name": TEXT, "last_name": TEXT}),
        "address": ADDRESS,
        "email": {"type": "string", "format": "email"},
        "payment_methods": mapping(PAYMENT_METHOD),
    },
    {
        "orders": many(TEXT),
        "dob": DAY,
        "membership": {"enum": ["regular", "silver", "gold"]},
        "reservations": many(TEXT),
        "saved_passengers": many(record({"first_name": TEXT, "last_name": TEXT, "dob": DAY})),
    },
)
ORDER_STATES = [
    "pending",
    "pending (item modified)",
    "processed",
    "delivered",
    "cancelled",
    "exchange requested",
    "return requested",
]
ORDER = record(
    {
        "order_id": {"type": "string", "pattern": "^#W[0-9]+$"},
        "user_id": TEXT,
        "address": ADDRESS,
        "items": many(
            record({"name": TEXT, "product_id": TEXT, "item_id": TEXT, "price": PRICE, "options": mapping(TEXT)})
        ),
        "fulfillments": many(record({"tracking_id": many(TEXT), "item_ids": many(TEXT)})),
        "status": {"enum": ORDER_STATES},
        "payment_history": many(
            record(
                {
                    "transaction_type": {"enum": ["payment", "refund"]},
                    "amount": AMOUNT,
                    "payment_method_id": TEXT,
                }
            )
        ),
    },
    {
        "cancel_reason": TEXT,
        "return_items": many(TEXT),
        "return_payment_method_id": TEXT,
        "exchange_items": many(TEXT),
        "exchange_new_items": many(TEXT),
        "exchange_payment_method_id": TEXT,
        "exchange_price_difference": AMOUNT,
    },
)
CABIN = {"enum": ["basic_economy", "economy", "business"]}
RESERVATION = record(
    {
        "reservation_id": {"type": "string", "pattern": "^[A-Z0-9]{6}$"},
        "user_id": TEXT,
        "origin": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "destination": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "flight_type": {"enum": ["one_way", "round_trip"]},
        "cabin": CABIN,
        "flights": many(
            record({"origin": TEXT, "destination": TEXT, "flight_number": TEXT, "date": DAY, "price": PRICE})
        ),
        "passengers": many(record({"first_name": TEXT, "last_name": TEXT, "dob": DAY})),
        "payment_history": many(record({"payment_id": TEXT, "amount": AMOUNT})),
        "created_at": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}$"},
        "total_baggages": COUNT,
        "nonfree_baggages": COUNT,
        "insurance": {"enum": ["yes", "no"]},
    },
    {"status": {"enum": ["cancelled"]}},
)
SEATS = record({"basic_economy": COUNT, "economy": COUNT, "business": COUNT})
FLIGHT = record(
    {
        "flight_number": TEXT,
        "origin": TEXT,
        "destination": TEXT,
        "scheduled_departure_time_est": TEXT,
        "scheduled_arrival_time_est": TEXT,
        "status": {"enum": ["available", "on time", "delayed", "cancelled", "landed", "flying"]},
        "available_seats": SEATS,
        "prices": SEATS,
    },
    {"date": {"type": ["string", "null"]}},
)
PRODUCT = record(
    {
        "name": TEXT,
        "product_id": TEXT,
        "variants": mapping(
            record({"item_id": TEXT, "options": mapping(TEXT), "available": {"type": "boolean"}, "price": PRICE})
        ),
    }
)


def contract(name: str, output: dict[str, Any], *invariants: Any, **fields: Any) -> Contract:
    """A read tool that takes any values for the arguments its invariants speak of."""
    named = {rule.argument[1:]: {} for rule in invariants if isinstance(rule, Equal)}
    arguments = {"type": "object", "properties": named}
    return Contract.from_schema(name, arguments, output_schema=output, effect="read", invariants=invariants, **fields)


def flights_leave_from_origin(output: Any, arguments: dict[str, Any]) -> bool:
    """The search answers the question that was asked."""
    return all(one["origin"] == arguments["origin"] for one in output)


TAU = [
    contract("get_order_details", ORDER, Equal("/order_id", "/order_id"), Range("/items/*/price", 0, 100_000)),
    contract("get_reservation_details", RESERVATION, Equal("/reservation_id", "/reservation_id")),
    contract("cancel_reservation", RESERVATION, Equal("/reservation_id", "/reservation_id")),
    contract("get_user_details", USER, Format("/email", "email")),
    contract("get_product_details", PRODUCT, Equal("/product_id", "/product_id")),
    contract("search_direct_flight", many(FLIGHT), flights_leave_from_origin),
    contract("search_onestop_flight", many(many(FLIGHT))),
    contract("cancel_pending_order", ORDER, Equal("/order_id", "/order_id")),
    contract("modify_pending_order_items", ORDER, Equal("/order_id", "/order_id")),
    contract("return_delivered_order_items", ORDER, Equal("/order_id", "/order_id")),
    contract("exchange_delivered_order_items", ORDER, Equal("/order_id", "/order_id")),
    contract("list_all_airports", mapping(TEXT)),
]

BFCL = [
    contract(
        "get_stock_info",
        record({"price": PRICE, "percent_change": AMOUNT, "volume": PRICE, "MA(5)": PRICE, "MA(20)": PRICE}),
    ),
    contract(
        "book_flight",
        record(
            {
                "booking_id": TEXT,
                "transaction_id": TEXT,
                "booking_status": {"const": True},
                "booking_history": {"type": "object"},
            }
        ),
    ),
    contract(
        "place_order",
        record(
            {
                "order_id": COUNT,
                "order_type": {"enum": ["Buy", "Sell"]},
                "status": {"enum": ["Open", "Pending", "Completed", "Cancelled"]},
                "price": PRICE,
                "amount": COUNT,
            }
        ),
        Equal("/amount", "/amount"),
    ),
    contract(
        "check_tire_pressure",
        record(
            {
                "frontLeftTirePressure": PRICE,
                "frontRightTirePressure": PRICE,
                "rearLeftTirePressure": PRICE,
                "rearRightTirePressure": PRICE,
                "healthy_tire_pressure": {"type": "boolean"},
                "car_info": {"type": "object"},
            }
        ),
    ),
    contract(
        "retrieve_invoice",
        record(
            {
                "invoice": record(
                    {
                        "booking_id": TEXT,
                        "travel_date": DAY,
                        "travel_from": TEXT,
                        "travel_to": TEXT,
                        "travel_class": {"enum": ["economy", "business", "first"]},
                        "travel_cost": PRICE,
                        "transaction_id": TEXT,
                    }
                )
            }
        ),
        Equal("/invoice/booking_id", "/booking_id"),
    ),
    contract("get_account_info", record({"account_id": COUNT, "balance": AMOUNT, "binding_card": COUNT})),
    contract("ls", record({"current_directory_content": many(TEXT)})),
    contract(
        "create_ticket",
        record(
            {
                "id": COUNT,
                "title": TEXT,
                "description": {"type": "string"},
                "status": {"enum": ["Open", "Closed", "Resolved"]},
                "priority": {"type": "integer", "minimum": 1, "maximum": 5},
                "created_by": TEXT,
            }
        ),
        Equal("/title", "/title"),
    ),
    contract("get_flight_cost", record({"travel_cost_list": many(PRICE)})),
    contract(
        "post_tweet",
        record({"id": COUNT, "username": TEXT, "content": TEXT, "tags": many(TEXT), "mentions": many(TEXT)}),
        Equal("/content", "/content"),
    ),
    contract("fillFuelTank", record({"fuelLevel": PRICE})),
    contract("cat", record({"file_content": {"type": "string"}})),
    contract("get_symbol_by_name", record({"symbol": TEXT})),
]
