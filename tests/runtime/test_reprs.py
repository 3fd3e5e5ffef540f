"""What a debugger and an error message show of the four objects a user holds."""

import pytest

import pokayoke


@pokayoke.tool(effect="read")
def find_customer(customer_id: str, region: str = "eu") -> str:
    """Find a customer."""
    return customer_id + region


GUARD = pokayoke.Guard([find_customer])
RUN = GUARD.run("order-7")


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (find_customer, "<Tool find_customer@1(customer_id, region): read>"),
        (GUARD, "<Guard enforce: find_customer@1; MemoryStore>"),
        (RUN, "<Run 'order-7': normal>"),
        (
            RUN.call(pokayoke.ToolCall("c-1", "find_customer", {"customer_id": "C-1"})),
            "<Outcome ok: find_customer, call 'c-1'>",
        ),
        (
            RUN.call(pokayoke.ToolCall("c-2", "find", {})),
            "<Outcome refused: find, call 'c-2' (unknown_tool)>",
        ),
    ],
)
def test_a_repr_fits_on_a_line_and_says_what_it_is(shown, text):
    """Guard, run, contract and outcome have a repr of one line that names the object and its state."""
    assert repr(shown) == text


def test_the_repr_of_many_tools_stays_short():
    """A guard of a hundred tools is still one line of less than 150 characters."""
    contracts = [pokayoke.Contract.from_schema(f"tool_{n}", {"type": "object"}, effect="read") for n in range(100)]
    assert len(repr(pokayoke.Guard(contracts))) < 150
