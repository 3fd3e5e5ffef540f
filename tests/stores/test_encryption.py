"""Values at rest: what the key protects, and what stays readable without it."""

import base64
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.ledger.admission import AdmissionRequest, Approval
from pokayoke.core.ledger.records import Claim, Settlement
from pokayoke.errors import MissingExtraError, StoreError
from pokayoke.stores import encryption as seals
from pokayoke.stores.encryption import Seal, seal_from_environment
from pokayoke.stores.sql import rows
from pokayoke.stores.values import RecordQuery

OLD, NEW = b"o" * 32, b"n" * 32
CANARY = "4111-canary-1111"


def keys(monkeypatch, *given_):
    monkeypatch.setenv(seals.VARIABLE, ",".join(base64.b64encode(key).decode() for key in given_))


@given(st.binary(max_size=40), st.booleans())
def test_a_value_comes_back(value, sealed):
    """Any bytes come back unchanged, with and without a key."""
    seal = Seal([NEW]) if sealed else Seal()
    assert seal.open(seal.seal(value, "t", "r"), "t", "r") == value


def test_a_sealed_value_says_nothing():
    """The value does not stand in what is stored, and the same value looks different each time."""
    seal = Seal([NEW])
    stored = [seal.seal(CANARY.encode(), "t", "r") for _ in range(2)]
    assert all(CANARY.encode() not in one for one in stored)
    assert stored[0] != stored[1]


def test_a_value_without_a_key_is_stored_as_it_is():
    """Without a key an ordinary value is readable in the table, also after a key was set."""
    assert Seal().seal(b'{"a":1}', "t", "r") == b'{"a":1}'
    assert Seal([NEW]).open(b'{"a":1}', "t", "r") == b'{"a":1}'


@pytest.mark.parametrize(("table", "row"), [("t", "other"), ("other", "r"), ("t\x00r", "")])
def test_a_value_is_bound_to_its_row(table, row):
    """A sealed value that was moved to another table or row does not open."""
    seal = Seal([NEW])
    with pytest.raises(StoreError, match="altered or belongs to another row"):
        seal.open(seal.seal(b"x", "t", "r"), table, row)


@pytest.mark.parametrize("place", [5, 20, -1])
def test_an_altered_value_does_not_open(place):
    """One flipped bit in nonce, text or tag is noticed; so is a value that was cut."""
    seal = Seal([NEW])
    stored = bytearray(seal.seal(b"some value", "t", "r"))
    stored[place] ^= 1
    for broken in (bytes(stored), bytes(stored[:9])):
        with pytest.raises(StoreError, match="altered"):
            seal.open(broken, "t", "r")


def test_keys_are_changed_by_putting_a_new_one_first():
    """The first key seals, all open; a key that is gone is asked for by the name of its variable."""
    old = Seal([OLD]).seal(b"x", "t", "r")
    both = Seal([NEW, OLD])
    assert both.open(old, "t", "r") == b"x"
    new = both.seal(b"y", "t", "r")
    assert Seal([NEW]).open(new, "t", "r") == b"y"
    with pytest.raises(StoreError, match=f"not in {seals.VARIABLE}"):
        Seal([NEW]).open(old, "t", "r")
    with pytest.raises(StoreError, match=seals.VARIABLE):
        Seal().open(new, "t", "r")


@pytest.mark.parametrize(
    "text", ["no base64!", base64.b64encode(b"short").decode(), base64.b64encode(b"x" * 33).decode()]
)
def test_a_bad_key_is_an_error_that_says_how_to_make_one(monkeypatch, text):
    """A key that is no base64, or not 32 bytes, is refused when the store is opened."""
    monkeypatch.setenv(seals.VARIABLE, text)
    with pytest.raises(StoreError, match="openssl rand -base64 32"):
        seal_from_environment()


@pytest.mark.parametrize("text", [None, "", " , "])
def test_without_a_key_nothing_is_sealed(monkeypatch, text):
    """No variable, or an empty one, means no key."""
    monkeypatch.delenv(seals.VARIABLE, raising=False)
    if text is not None:
        monkeypatch.setenv(seals.VARIABLE, text)
    assert not seal_from_environment().has_key


def test_a_missing_package_names_the_extra(monkeypatch):
    """A key without `cryptography` is an error with the command that installs it; without a key nobody needs it."""
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    Seal()
    with pytest.raises(MissingExtraError, match=r"pokayoke\[seal\]"):
        Seal([NEW])


# -- in a store -----------------------------------------------------------------------------------


def filled(store):
    wish = Claim("k", "h", "c1", "pay", "pay@1", "r", 100.0, 10.0)
    store.admit(AdmissionRequest("r", "pay", "write", None, 100.0, wish))
    store.settle(Settlement("k", "c1", "completed", 101.0, output=f'"{CANARY}"'.encode()))
    store.propose(Approval("a", "f", "pay", "pay@1", {"card": CANARY}, "r", 100.0, 900.0, marks=("card",)))


def again(store, key="k"):
    return store.admit(
        AdmissionRequest("r", "pay", "write", None, 102.0, Claim(key, "h", "c2", "pay", "pay@1", "r", 102.0, 10.0))
    )


def test_values_are_sealed_and_come_back(durable, monkeypatch, tmp_path):
    """With a key, outputs and arguments are nowhere in the files, and are read back by who has the key."""
    keys(monkeypatch, NEW)
    store = durable.open()
    filled(store)
    assert store.sealed
    assert CANARY.encode() in store.record("k").output
    assert (store.approvals()[0].arguments, store.approvals()[0].marks) == ({"card": CANARY}, ("card",))
    assert again(store).record.output == store.record("k").output
    assert not [path for path in tmp_path.iterdir() if CANARY.encode() in path.read_bytes()]


def test_without_a_key_a_store_says_that_it_is_open(durable, monkeypatch):
    """A durable store without a key is not sealed: its caller decides what may be kept there."""
    monkeypatch.delenv(seals.VARIABLE, raising=False)
    assert not durable.open().sealed


def test_a_wrong_key_hides_values_and_nothing_else(durable, monkeypatch):
    """With another key, states are listed and new effects run; the old value is an error, not a guess."""
    keys(monkeypatch, OLD)
    filled(durable.open())
    keys(monkeypatch, NEW)
    store = durable.open(create=False)
    assert [record.state for record in store.records(RecordQuery())] == ["completed"]
    assert again(store, "other").kind == "execute"
    assert [(asked.id, asked.arguments) for asked in store.approvals()] == [("a", rows.SEALED)]
    for read in (
        lambda: store.record("k"),
        lambda: again(store),
        lambda: store.approval("a"),
        lambda: store.answer("a", approved=True, by="ann", reason="", now=103.0),
    ):
        with pytest.raises(StoreError, match=f"not in {seals.VARIABLE}"):
            read()
    keys(monkeypatch, NEW, OLD)
    store = durable.open(create=False)
    assert CANARY.encode() in store.record("k").output
    assert store.approval("a") == store.approvals()[0]
    assert store.approval("b") is None
