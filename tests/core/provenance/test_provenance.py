"""Whether a call may run by itself, by where its values come from."""

import json

import pytest

from pokayoke.core.provenance import outputs as outputs_module
from pokayoke.core.provenance import private_values as private_values_module
from pokayoke.core.provenance import provenance as provenance_module
from pokayoke.core.provenance.index import ValueIndex, may_hold, token_bits
from pokayoke.core.provenance.labels import Labels, derive_labels
from pokayoke.core.provenance.private_values import PrivateValues
from pokayoke.core.provenance.provenance import Provenance
from pokayoke.core.provenance.records import cut_into_records

TEXT, NUMBER = {"type": "string"}, {"type": "number"}


def tool(name, written=None, **properties):
    return derive_labels(name, "", {"properties": properties}, written)


READ = tool("list_repairs")
ONE = tool("get_repair", repair_id=TEXT)
CLOSE = tool("close_repair", repair_id=TEXT)
SEND = tool("send_message", to={"type": "string", "format": "email"}, body=TEXT)
PAY = tool("pay_invoice", invoice_id=TEXT, iban=TEXT, amount=NUMBER)
BOOK = tool("book_slot", start={"type": "string", "format": "date-time"}, title=TEXT)
PAGE = tool("fetch_page", url=TEXT)

REPAIRS = [
    {
        "repair_id": "R-501",
        "what": "Leaking kitchen tap",
        "email": "g.olsen@fjord.example",
        "opened": "2026-10-02",
        "cost": 120,
    },
    {
        "repair_id": "R-502",
        "what": "Hall light dead",
        "email": "ida@post.example",
        "opened": "2026-10-05",
        "cost": 80,
        "details": "x" * 70,
    },
    {
        "repair_id": "R-503",
        "what": "Broken shutter",
        "email": "v.crane@mill.example",
        "opened": "2026-09-11",
        "cost": 300,
    },
]


def run(words, *calls, level="careful"):
    found = Provenance(level)
    found.set_words(words)
    for step, (labels, arguments, output, *approved) in enumerate(calls):
        data = output if isinstance(output, (str, bytes)) else json.dumps(output).encode()
        found.add_call(labels, json.dumps(arguments).encode(), data, step=step, is_approved=bool(approved))
    return found


def rules(found, labels, **arguments):
    return [(reason.rule, reason.argument, reason.tier) for reason in found.judge(labels, arguments).reasons]


LISTED = (READ, {}, REPAIRS)


@pytest.mark.parametrize(
    ("words", "labels", "arguments", "expected"),
    [
        # things
        ("Close the repair about the leaking kitchen tap", CLOSE, {"repair_id": "R-501"}, []),
        ("Close the repair about the leaking kitchen tap", CLOSE, {"repair_id": "R-502"}, [("value", "repair_id", "leaf")]),
        ("Close R-502", CLOSE, {"repair_id": "R-502"}, []),
        ("Close the newest repair", CLOSE, {"repair_id": "R-502"}, []),
        ("Close the repair opened on 5 October", CLOSE, {"repair_id": "R-502"}, []),
        ("Close the newest repair", CLOSE, {"repair_id": "R-503"}, [("value", "repair_id", "leaf")]),
        ("Close the cheapest repair", CLOSE, {"repair_id": "R-502"}, []),
        ("Close all repairs", CLOSE, {"repair_id": "R-502"}, [("value", "repair_id", "leaf")]),
        ("Close it", CLOSE, {"repair_id": "R-999"}, [("value", "repair_id", "none")]),
        # acts
        ("Show the leaking kitchen tap", CLOSE, {"repair_id": "R-501"}, [("act", "", "none")]),
        # whom it reaches
        ("Mail who reported the leaking kitchen tap", SEND, {"to": "g.olsen@fjord.example", "body": "ok"}, []),
        ("Mail who reported the hall light", SEND, {"to": "ida@post.example", "body": "ok"}, [("value", "to", "anchored")]),
        ("Mail eve@x.example", SEND, {"to": "eve@x.example", "body": "ok"}, []),
        ("Never mail eve@x.example", SEND, {"to": "eve@x.example", "body": "ok"}, [("value", "to", "prompt")]),
        # texts
        ("Mail eve@x.example", SEND, {"to": "eve@x.example", "body": "write to a@b.example"}, [("contact", "body", "none")]),
        ("Mail eve@x.example", SEND, {"to": "eve@x.example", "body": "write to ida@post.example"}, [("contact", "body", "leaf")]),
        ("Mail who reported the leaking kitchen tap", SEND, {"to": "g.olsen@fjord.example", "body": "see R-503"}, [("private", "body", "leaf")]),
        # amounts
        ("Pay R-501 to NO8330001234567", PAY, {"invoice_id": "R-501", "iban": "NO8330001234567", "amount": 100}, []),
        ("Pay R-501 to NO8330001234567", PAY, {"invoice_id": "R-501", "iban": "NO8330001234567", "amount": 121}, [("amount", "amount", "none")]),
        ("Pay 999 for R-501 to NO8330001234567", PAY, {"invoice_id": "R-501", "iban": "NO8330001234567", "amount": 999}, []),
        ("Pay R-501 to NO8330001234567", PAY, {"invoice_id": "R-501", "iban": "NO8330001234567", "amount": "many"}, [("amount", "amount", "none")]),
        # moments
        ("Book a slot on 14 October", BOOK, {"start": "2026-10-14T09:00", "title": "x"}, []),
        ("Book a slot on 14 October", BOOK, {"start": "2026-10-15T09:00", "title": "x"}, [("when", "start", "none")]),
        ("Book a slot", BOOK, {"start": "tomorrow", "title": True}, []),
        # reads
        ("Open it", PAGE, {"url": "https://evil.example/x"}, [("host", "url", "none")]),
        ("Open evil.example/x", PAGE, {"url": "https://evil.example/x"}, []),
        ("Look", ONE, {"repair_id": "R-999"}, []),
    ],
)  # fmt: skip
def test_a_call_is_judged_by_where_its_values_stand(words, labels, arguments, expected):
    """Each rule with its two sides, after a list of three repairs was read."""
    assert rules(run(words, LISTED), labels, **arguments) == expected


def test_nothing_is_asked_before_anything_was_read():
    """Without an untrusted text there is nobody who could steer the agent; where values stand is told all the same."""
    found = run("Hello")
    assert rules(found, SEND, to="eve@x.example", body="x") == []
    assert [(one.argument, one.tier) for one in found.judge(SEND, {"to": "eve@x.example", "body": "x"}).sources] == [
        ("to", "none")
    ]
    assert found.judge(PAGE, {"url": "https://x.example"}).reasons == ()
    trusted = tool("get_day", Labels(effect="read", trusted=True))
    found = run("Close it", (trusted, {}, "2026-11-26"), (trusted, {}, {"id": "R-77"}))
    assert rules(found, CLOSE, repair_id="R-999") == []
    assert found.tier_of("2026-11-26") == "trusted"
    assert found.tier_of("R-77") == "trusted"


@pytest.mark.parametrize(("level", "asked"), [("strict", True), ("careful", False), ("balanced", False)])
def test_a_level_says_how_far_a_described_thing_goes(level, asked):
    """Strict asks also for what the user's words single out."""
    found = run("Close the repair about the leaking kitchen tap", LISTED, level=level)
    assert found.judge(CLOSE, {"repair_id": "R-501"}).asks is asked


def test_balanced_trusts_a_record_with_prose_in_it():
    """Whom a record with somebody's prose names is asked about at the level below."""
    found = run("Mail who reported the hall light", LISTED, level="balanced")
    assert rules(found, SEND, to="ida@post.example", body="ok") == []


def test_approved_values_and_made_records_are_the_runs_own():
    """A person's yes covers the values of the call, and what a write made may be used; nothing else of a document."""
    found = run(
        "Tidy up and close things", LISTED, (SEND, {"to": "new@x.example", "body": "b"}, {"queued": "Q-17"}, True)
    )
    assert found.tier_of("new@x.example") == "own"
    assert rules(found, CLOSE, repair_id="Q-17") == []
    assert found.tier_of("R-502") == "leaf"


def test_what_the_agent_brought_up_first_gains_nothing_by_an_echo():
    """A search that echoes an attacker's value does not make it a record's."""
    search = tool("search_repairs", query=TEXT)
    found = run(
        "Close the repair of eve", LISTED, (search, {"query": "R-666"}, [{"repair_id": "R-666", "title": "eve"}])
    )
    assert found.tier_of("R-666") == "leaf"
    assert rules(found, CLOSE, repair_id="R-666") == [("value", "repair_id", "leaf")]


def test_a_read_by_the_users_words_singles_its_record_out():
    """The only record of a keyed read, and what its identifier leads to; never through a value that merely repeats."""
    people = tool("list_people")
    found = run(
        "For repair R-502 find out who is assigned and mail them",
        (people, {}, [{"person_id": "P-1", "email": "a@x.example"}, {"person_id": "P-2", "email": "b@x.example"}]),
        (ONE, {"repair_id": "R-502"}, {"repair_id": "R-502", "person_id": "P-2"}),
        (people, {}, [{"person_id": "P-2", "phone": "+49 30 5550101"}, {"note": "P-2", "phone": "+49 30 5550999"}]),
    )
    assert rules(found, SEND, to="b@x.example", body="hello") == []
    assert rules(found, SEND, to="a@x.example", body="hello") == [("value", "to", "leaf")]
    assert rules(found, SEND, to="b@x.example", body="see 8 or 2026-12-24") == []
    assert found.tier_of("+49305550101") == "anchored"
    assert found.tier_of("+49305550999") == "leaf"


def test_a_twin_makes_a_tie():
    """Two records that match equally are asked about; with a word such as "both" they are meant."""
    twins = [
        {"id": "T-1", "name": "Ida Brandt", "email": "ida@a.example"},
        {"id": "T-2", "name": "Ida Brandt", "email": "ida@b.example"},
    ]
    assert rules(run("Mail Ida Brandt", (READ, {}, twins)), SEND, to="ida@b.example", body="x") == [
        ("value", "to", "leaf")
    ]
    assert rules(run("Mail both called Ida Brandt", (READ, {}, twins)), SEND, to="ida@b.example", body="x") == []


def test_every_record_of_a_directory_is_meant_by_all():
    """What operators curate, read as a whole."""
    people = tool("list_people", Labels(effect="read", directory=True))
    rows = [{"name": f"n{n}", "email": f"p{n}@x.example"} for n in range(3)]
    assert rules(run("Write to everybody", (people, {}, rows)), SEND, to="p2@x.example", body="x") == []
    assert rules(run("Write to somebody", (people, {}, rows)), SEND, to="p2@x.example", body="x") == [
        ("value", "to", "leaf")
    ]


def test_a_moment_of_a_record_is_said_by_day_and_hour():
    """The visit at three singles one of two visits of a day out; a superlative needs the field in every record."""
    visits = [
        {"id": "V-1", "at": "2026-10-14T09:00"},
        {"id": "V-2", "at": "2026-10-14T15:00"},
        {"id": "V-3", "due": "x"},
    ]
    cancel = tool("cancel_visit", id=TEXT)
    assert rules(run("Cancel the visit on 14 October at 15:00", (READ, {}, visits)), cancel, id="V-2") == []
    assert rules(run("Cancel the visit on 14 October", (READ, {}, visits)), cancel, id="V-2") == [
        ("value", "id", "leaf")
    ]
    assert rules(run("Cancel the latest visit", (READ, {}, visits)), cancel, id="V-2") == [("value", "id", "leaf")]
    assert rules(run("Cancel the latest visit", (READ, {}, visits[:1])), cancel, id="V-1") == [("value", "id", "leaf")]


def test_a_record_that_comes_later_is_joined_too():
    """The order singled out before leads to the customer that is read afterwards."""
    found = run(
        "Mail the customer of order O-7",
        (tool("get_order", order_no=TEXT), {"order_no": "O-7"}, {"order_no": "O-7", "customer_id": "C-1"}),
        (
            tool("list_customers"),
            {},
            [{"customer_id": "C-1", "email": "c1@x.example"}, {"customer_id": "C-2", "email": "c2@x.example"}],
        ),
    )
    assert rules(found, SEND, to="c1@x.example", body="x") == []
    assert rules(found, SEND, to="c2@x.example", body="x") == [("value", "to", "leaf")]
    found.set_words("Mail the customer of order O-7\n\nO-7 it is")
    assert rules(found, SEND, to="c1@x.example", body="x") == []
    found.set_words("Mail the customer of order O-7\n\nO-7 it is")
    assert found.judge(SEND, {"to": None, "body": "x", "extra": {"deep": [{"er": None}]}}).reasons == ()


def test_new_words_single_out_what_was_read_before():
    """The user's next turn is about what the first one showed; words that stand nowhere change nothing."""
    found = run("List the repairs", LISTED)
    assert found.judge(CLOSE, {"repair_id": "R-502"}).asks
    found.set_words("List the repairs\n\nThanks, close the one with the hall light dead")
    assert rules(found, CLOSE, repair_id="R-502") == []
    found.set_words("List the repairs\n\nThanks, close the one with the hall light dead\n\nHm")
    assert rules(found, CLOSE, repair_id="R-502") == []
    found.set_words("List the repairs\n\nThanks, close both, the hall light dead and the kitchen tap")
    assert rules(found, CLOSE, repair_id="R-503") == [("value", "repair_id", "leaf")]


def test_private_values_stay_inside():
    """Labels, names of fields, and values of a read that nobody asked for; unless the user names value or field."""
    private = tool("list_accounts", Labels(effect="read", private=True))
    rows = [{"name": "Ida", "iban": "DE40100100100000010101", "deposit": 2460}]
    body = "It is DE40 1001 0010 0000 0101 01 for you"
    assert ("private", "body", "leaf") in rules(
        run("Mail eve@x.example", (private, {}, rows)), SEND, to="eve@x.example", body=body
    )
    assert (
        rules(run("Mail eve@x.example the deposit", (private, {}, rows)), SEND, to="eve@x.example", body="It is 2460.")
        == []
    )
    assert (
        rules(
            run("Mail eve@x.example that it is 2460", (private, {}, rows)), SEND, to="eve@x.example", body="It is 2460."
        )
        == []
    )
    later = run("Mail eve@x.example", (READ, {}, REPAIRS))
    assert ("private", "body", "leaf") not in rules(later, SEND, to="eve@x.example", body=body)
    later.add_call(private, b"{}", json.dumps(rows).encode(), step=1)
    assert ("private", "body", "leaf") in rules(later, SEND, to="eve@x.example", body=body)
    stray = run("Mail eve@x.example", (ONE, {"repair_id": "R-9"}, {"code": "K-4711", "street": "Rue de Rivoli 8"}))
    assert rules(stray, SEND, to="eve@x.example", body="K-4711") == [("private", "body", "leaf")]
    assert rules(stray, SEND, to="eve@x.example", body="Rue de Rivoli 8") == []


def test_a_closed_write_may_repeat_what_was_read():
    """Text may fill text where nobody outside reads it."""
    note = tool("store_note", Labels(effect="write", open_world=False, targets=()), text=TEXT)
    assert rules(run("Note it", LISTED), note, text="from ida@post.example") == []
    assert rules(run("Note it", LISTED), note, text="from eve@x.example") == [("contact", "text", "none")]


def test_an_amount_follows_a_name_in_a_field():
    """A payee may be one word of the field that names him."""
    rows = [{"id": "T-1", "subject": "Spotify Premium", "total": 50}, {"id": "T-2", "subject": "Rent", "total": 1100}]
    pay = tool(
        "send_money",
        Labels(effect="write", open_world=True, targets=("recipient",), amounts=("amount",)),
        recipient=TEXT,
        amount=NUMBER,
    )
    assert rules(run("Please pay Spotify the difference", (READ, {}, rows)), pay, recipient="Spotify", amount=5) == []
    assert rules(run("Please pay Spotify the difference", (READ, {}, rows)), pay, recipient="Spotify", amount=51) == [
        ("amount", "amount", "none")
    ]
    assert (
        rules(run("Please pay for Spotify Premium", (READ, {}, rows)), pay, recipient="spotify premium", amount=50)
        == []
    )


def test_a_question_says_where_a_value_stands():
    """The step, the tool and the record, for the person who decides."""
    reason = run("Close it", LISTED).judge(CLOSE, {"repair_id": "R-503"}).reasons[0]
    assert (reason.value, reason.tier, reason.step, reason.place) == ("R-503", "leaf", 0, "list_repairs, record 3 of 3")


def test_texts_give_no_values():
    """Plain text, broken JSON and lone surrogates name nothing, but they taint."""
    found = run(
        "Close it",
        (READ, {}, "R-1 is open"),
        (READ, {}, '{"id": "R-1"'),
        (READ, {}, '["\ud800"]'),
        (READ, {}, ' [{"id": "R-2"}]'),
    )
    assert found.is_tainted
    found.add_call(READ, json.dumps({"open": True, "note": "x" * 200}).encode(), "nothing", step=9)
    assert found.tier_of("x" * 200) == "none"
    assert [found.tier_of(value) for value in ("R-1", "R-2")] == ["none", "leaf"]


def test_the_oldest_outputs_are_forgotten_before_memory_ends(monkeypatch):
    """What waits to be read is bounded; a value of what was dropped stands nowhere, so it is asked about."""
    monkeypatch.setattr(provenance_module, "_MOST_WAITING", 60)
    found = run("Close it", (READ, {}, [{"id": "R-1", "x": "y" * 40}]), (READ, {}, [{"id": "R-2", "x": "y" * 40}]))
    assert [found.tier_of(value) for value in ("R-1", "R-2")] == ["none", "leaf"]


def test_what_a_run_reads_is_bounded_as_a_whole(monkeypatch):
    """Outputs beyond the bound are not searched, also where each was read in time; their values stand nowhere."""
    monkeypatch.setattr(provenance_module, "_MOST_READ", 60)
    found = run("Close it", (READ, {}, [{"id": "R-1", "x": "y" * 30}]))
    assert found.tier_of("R-1") == "leaf"
    found.add_call(READ, b"{}", json.dumps([{"id": "R-2", "x": "y" * 30}]).encode(), step=2)
    assert [found.tier_of(value) for value in ("R-1", "R-2")] == ["leaf", "none"]


def test_records_beyond_the_bound_stand_nowhere(monkeypatch):
    """Numbers of records are bounded as well."""
    monkeypatch.setattr(outputs_module, "MOST_NUMBERS", 2)
    found = run("Close the newest", (READ, {}, REPAIRS), (READ, {}, [{"id": "R-9"}]))
    assert [found.tier_of(value) for value in ("R-501", "R-503", "R-9")] == ["leaf", "none", "none"]
    found.set_words("Close the repair with the broken shutter")
    assert [found.tier_of(value) for value in ("R-501", "R-503")] == ["leaf", "none"]


# -- parts -----------------------------------------------------------------------------------------


def forms(value):
    return [
        [[(field.key, field.form) for field in record.fields] for record in group] for group in cut_into_records(value)
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": {"c": 2}, "d": [3, 4]}, [[[("a", "1"), ("c", "2"), ("d", "3"), ("d", "4")]]]),
        ([{"a": 1}, {"a": 2}], [[[("a", "1")], [("a", "2")]]]),
        (["x", None, "y"], [[[("entry", "x")], [("entry", "y")]]]),
        (
            {"a@x.example": "rw", "b@x.example": "r"},
            [[[("entry", "a@x.example"), ("value", "rw")], [("entry", "b@x.example"), ("value", "r")]]],
        ),
        ({"one": {"a": 1}, "two": {"a": 2}}, [[[("entry", "one"), ("a", "1")], [("entry", "two"), ("a", "2")]]]),
        ({"id": 1, "rows": [{"a": 2}]}, [[[("id", "1")]], [[("a", "2")]]]),
        ({"id": 1, "by": {"x y": 2}}, [[[("id", "1")]], [[("entry", "x y"), ("value", "2")]]]),
        ([[1], [{"a": 2}]], [[[("entry", "1")]], [[("a", "2")]]]),
        ([{"x y": 1}, {"a": 2}], [[[("a", "2")]], [[("entry", "x y"), ("value", "1")]]]),
        ({"a": None, "b": True, "c": 1, "d": " ", "e": "x" * 200}, [[[("c", "1")]]]),
        ({}, []),
        ("text", []),
        (None, []),
    ],
)
def test_an_output_is_cut_into_records(value, expected):
    """Objects of lists, top-level objects and entries of tables; nested objects belong to their record."""
    assert forms(value) == expected


def test_deep_outputs_are_cut_without_recursion():
    """Objects are read at any depth; lists in lists end where nobody would have put a record."""
    deep, many = {"a": 1}, [1]
    for _ in range(1_000):
        deep, many = {"n": deep}, [many]
    assert forms(deep) == [[[("a", "1")]]]
    assert forms([[deep]]) == [[[("a", "1")]]]
    assert forms(many) == []


def test_an_index_finds_every_number_of_a_value():
    """Before and after its entries are sorted in."""
    index = ValueIndex()
    for number in range(2_000):
        index.add((f"v{number % 700}",), number)
    assert list(index.find("v5")) == [5, 705, 1405]
    assert list(index.find("v699")) == [699, 1399]
    assert list(index.find("missing")) == []


def test_a_set_of_tokens_denies_only_what_it_never_saw():
    """It may take another token for one of its own, never the other way round."""
    bits = token_bits(f"t{number}" for number in range(300))
    assert all(may_hold(bits, [f"t{number}"]) for number in range(300))
    assert not may_hold(bits, [])
    assert sum(may_hold(bits, [f"u{number}"]) for number in range(1_000)) < 300


def test_names_of_private_fields_are_bounded(monkeypatch):
    """A value whose name is no longer told apart is private all the same."""
    monkeypatch.setattr(private_values_module, "_MOST_NAMES", 2)
    private = PrivateValues()
    for number in range(3):
        private.add(f"code-{number}", f"name{number}")
    assert list(private.find_in("code-0, code-2, code")) == [("code0", "name0"), ("code2", "")]


def test_private_values_are_found_however_they_are_grouped():
    """Whole values from the beginning of a word, and only those with a digit."""
    private = PrivateValues()
    assert list(private.find_in("anything")) == []
    for form, key in (
        ("de40100100100000010101", "iban"),
        ("de4010", "short"),
        ("secret", "word"),
        ("a1", "tiny"),
        ("k-4711", "code"),
    ):
        private.add(form, key)
    assert [key for _, key in private.find_in("x DE40 1001 0010 0000 0101 01")] == ["iban", "short"]
    assert [key for _, key in private.find_in("code:k-4711!")] == ["code"]
    assert list(private.find_in("secret, a1, xde4010")) == []


def test_what_a_run_remembers_of_equal_calls_is_bounded(monkeypatch):
    """Of more calls than that, the oldest are forgotten: their values are not stale any more, and still known."""
    monkeypatch.setattr(provenance_module, "_MOST_CALLS", 4)
    calls = [(READ, {"page": number % 3}, [{"repair_id": f"R-{number}"}]) for number in range(30)]
    found = run("Close a repair", *calls, *[(READ, {"page": 100 + number}, []) for number in range(9)])
    assert len(found._latest) <= 4
    assert len(found._superseded) <= 4
    assert found.tier_of("R-0") == "leaf"
