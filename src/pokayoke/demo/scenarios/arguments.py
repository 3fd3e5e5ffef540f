"""Wrong arguments, and one kind that only looks wrong."""

from __future__ import annotations

from pokayoke.demo.scenario import Scenario, retry_unless
from pokayoke.testing import Reply, ask


def cut_in_number() -> Scenario:
    """The text of the arguments ends inside a number; closing the brace changes the amount."""
    return Scenario(
        name="cut-in-number",
        kind="argument JSON cut inside a number",
        prompt="Pay back 15 euros for order O-1001.",
        turns=lambda _: [
            ask("refund", '{"order_id": "O-1001", "cents": 15'),
            retry_unless('"refunded"', ask("refund", order_id="O-1001", cents=1500)),
        ],
        wanted=("refund O-1001: 1500 cents",),
    )


def cut_but_parses() -> Scenario:
    """The message was cut and a stream helper completed it: the JSON parses, only the stop reason shows it."""
    return Scenario(
        name="cut-but-parses",
        kind="cut message whose JSON parses (finish_reason=length)",
        prompt="Order 12 S2 for U1 and send them to Pier 9.",
        turns=lambda _: [
            Reply(calls=(ask("place_order", user_id="U1", sku="S2", amount=1, currency="EUR"),), stop_reason="length"),
            retry_unless(
                '"placed"', ask("place_order", user_id="U1", sku="S2", amount=12, currency="EUR", address="Pier 9")
            ),
        ],
        wanted=("order U1: 12 x S2 in EUR to Pier 9",),
    )


def misspelt_field() -> Scenario:
    """A misspelt optional field is dropped, and the parcel goes where the default says."""
    return Scenario(
        name="misspelt-field",
        kind="misspelt field (adress)",
        prompt="Order two S1 for U1, to 5 Quay Street.",
        turns=lambda _: [
            ask("place_order", user_id="U1", sku="S1", amount=2, currency="EUR", adress="5 Quay Street"),
            retry_unless(
                '"placed"',
                ask("place_order", user_id="U1", sku="S1", amount=2, currency="EUR", address="5 Quay Street"),
            ),
        ],
        wanted=("order U1: 2 x S1 in EUR to 5 Quay Street",),
    )


def wrong_unit() -> Scenario:
    """A weight in kilograms, where the tool counts grams."""
    return Scenario(
        name="wrong-unit",
        kind='wrong unit ("1.5 kg" for grams)',
        prompt="S1 weighs 1.5 kg now.",
        turns=lambda _: [
            ask("set_weight", sku="S1", grams="1.5 kg"),
            retry_unless('"weighed"', ask("set_weight", sku="S1", grams=1500)),
        ],
        wanted=("weight of S1: 1500 g",),
    )


def half_a_piece() -> Scenario:
    """Joining the digits of `1.5件` orders fifteen."""
    return Scenario(
        name="half-a-piece",
        kind='counting word with a fraction ("1.5件")',
        prompt="Order one and a half S2 for U1.",
        turns=lambda _: [
            ask("place_order", user_id="U1", sku="S2", amount="1.5件", currency="CNY"),
            "S2 is only sold whole. How many do you want?",
        ],
    )


def number_word() -> Scenario:
    """A number as a word: nothing converts it, and SQLite stores the word."""
    return Scenario(
        name="number-word",
        kind='string "two" for a number',
        prompt="Order two S1 for U1.",
        turns=lambda _: [
            ask("place_order", user_id="U1", sku="S1", amount="two", currency="EUR"),
            retry_unless('"placed"', ask("place_order", user_id="U1", sku="S1", amount=2, currency="EUR")),
        ],
        wanted=("order U1: 2 x S1 in EUR to home",),
    )


def two_amounts() -> Scenario:
    """One key, two values: parsers keep the last without notice."""
    return Scenario(
        name="two-amounts",
        kind="duplicate key with two amounts",
        prompt="Pay back 5 euros for order O-1001.",
        turns=lambda _: [
            ask("refund", '{"order_id": "O-1001", "cents": 500, "cents": 50000}'),
            retry_unless('"refunded"', ask("refund", order_id="O-1001", cents=500)),
        ],
        wanted=("refund O-1001: 500 cents",),
    )


def placeholder_argument() -> Scenario:
    """The model does not know the customer and leaves its template's placeholder in."""
    return Scenario(
        name="placeholder",
        kind='placeholder argument ("<user_id>")',
        prompt="Order an S1.",
        turns=lambda _: [
            ask("place_order", user_id="<user_id>", sku="S1", amount=1, currency="EUR"),
            "For which customer?",
        ],
    )


def not_a_number() -> Scenario:
    """NaN is no JSON, but Python's parser takes it, and the database makes it NULL."""
    return Scenario(
        name="nan-price",
        kind="NaN in the arguments",
        prompt="Set the price of S1 to the average of the offers.",
        turns=lambda _: [ask("set_price", '{"sku": "S1", "cents": NaN}'), "There are no offers for S1 yet."],
    )


def out_of_range() -> Scenario:
    """An amount outside what one order may hold."""
    return Scenario(
        name="out-of-range",
        kind="value out of range (1000 of at most 100)",
        prompt="Order ten S1 for U1.",
        turns=lambda _: [
            ask("place_order", user_id="U1", sku="S1", amount=1000, currency="EUR"),
            retry_unless('"placed"', ask("place_order", user_id="U1", sku="S1", amount=10, currency="EUR")),
        ],
        wanted=("order U1: 10 x S1 in EUR to home",),
    )


def low_confidence() -> Scenario:
    """The host knows from the token probabilities that this call is a guess."""
    return Scenario(
        name="low-confidence",
        kind="a guess (confidence 0.41)",
        prompt="Pay back that order, you know which one.",
        turns=lambda _: [
            ask("refund", order_id="O-1001", cents=1500, confidence=0.41),
            "Which order do you mean, and how much?",
        ],
    )


def malformed_json() -> Scenario:
    """Python quotes, an apostrophe in a value, a trailing comma: one reading, nothing lost."""
    return Scenario(
        name="malformed-json",
        kind="malformed JSON (quotes, apostrophe, trailing comma)",
        prompt="Order an S1 for U1, to Via Roma 1, L'Aquila.",
        turns=lambda _: [
            ask(
                "place_order",
                """{'user_id': 'U1', 'sku': 'S1', 'amount': 1, 'currency': 'EUR', """
                """'address': "Via Roma 1, L'Aquila",}""",
            ),
            "Ordered.",
        ],
        wanted=("order U1: 1 x S1 in EUR to Via Roma 1, L'Aquila",),
    )
