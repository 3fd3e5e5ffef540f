"""What a tool may do with values, from its name and schema."""

import pytest

from pokayoke.core.provenance.labels import Labels, derive_labels, name_words, withdraw_trust


def labels(name, description="", written=None, **properties):
    return derive_labels(name, description, {"type": "object", "properties": properties}, written)


@pytest.mark.parametrize(
    ("name", "description", "effect", "acts"),
    [
        ("list_tenants", "", "read", set()),
        ("findStudent", "", "read", set()),
        ("mail.search", "", "read", set()),
        ("send_message", "", "write", {"send"}),
        ("answerMail", "", "write", {"send"}),
        ("pay_invoice", "", "write", {"pay"}),
        ("close_repair", "", "write", {"remove"}),
        ("order_cancel", "", "write", {"remove"}),
        ("invoice", "Deletes an invoice.", "write", {"remove"}),
        ("invoice", "Get an invoice.", "read", set()),
        ("inbox", "Mails in the inbox.", "write", set()),
        ("frobnicate", "", "write", set()),
        ("mark_read", "", "write", {"change"}),
        ("bulk_get_and_delete", "", "write", set()),
        ("", "", "write", set()),
    ],
)
def test_the_effect_is_derived_from_the_verb(name, description, effect, acts):
    """Read only with a read verb and no other one; unknown is a write."""
    got = labels(name, description)
    assert (got.effect, set(got.acts)) == (effect, acts)


def test_written_labels_have_the_last_word():
    """Effect, reach, targets and amounts as the host says."""
    written = Labels(
        effect="destructive", open_world=False, trusted=True, private=True, targets=("note", "to"), amounts=("n",)
    )
    got = labels(
        "send_it",
        "",
        written,
        to={"type": "string"},
        note={"type": "string"},
        n={"type": "string"},
        unit={"type": "string"},
        text={"type": "string"},
    )
    assert got.effect == "destructive"
    assert not got.open_world
    assert "remove" in got.acts
    assert got.kinds == {"to": "who", "note": "thing", "n": "amount", "unit": "choice", "text": "text"}
    assert got.makes
    assert not got.reads
    assert labels("read_x", "", Labels(effect="read", targets=("a",)), a={"type": "string"}).kinds == {"a": "thing"}


def test_an_object_is_no_choice_because_its_target_stands_inside():
    """Labels name the field that counts, and a schema may hold it below another argument: all of that is a thing."""
    written = Labels(effect="write", targets=("shipment", "street"))
    address = {"type": "object", "properties": {"street": {"type": "string"}}}
    got = labels("reroute", "", written, shipment={"type": "string"}, destination=address, unit={"type": "string"})
    assert got.kinds == {"shipment": "thing", "destination": "thing", "unit": "choice"}


@pytest.mark.parametrize(
    ("name", "schema", "kind"),
    [
        ("role", {"enum": ["a", "b"]}, "choice"),
        ("urgent", {"type": "boolean"}, "choice"),
        ("contact", {"type": "string", "format": "email"}, "who"),
        ("recipients", {"type": "array", "items": {"type": "string"}}, "who"),
        ("to", {"anyOf": [{"type": "null"}, {"type": "string"}]}, "who"),
        ("user", {"$ref": "#/$defs/user"}, "who"),
        ("account_id", {"type": "string"}, "thing"),
        ("mail_id", {"type": "integer"}, "thing"),
        ("body", {"type": "string"}, "text"),
        ("note_id", {"type": "string"}, "thing"),
        ("startDate", {"type": "string"}, "when"),
        ("valid_from", {"type": "string", "format": "date"}, "when"),
        ("amount", {"type": "number"}, "amount"),
        ("order_no", {"type": "integer"}, "thing"),
        ("unit", {"type": "string"}, "thing"),
        ("odd", {"items": {"items": {"items": {"items": {"type": "string"}}}}}, "thing"),
        ("odd", True, "thing"),
    ],
)
def test_the_kind_of_an_argument_is_derived(name, schema, kind):
    """From its schema first, then from the words of its name; "id" at the end decides nothing but that it is a thing."""
    assert labels("change_it", "", None, **{name: schema}).kinds == {name: kind}


def test_hosts_and_reach():
    """A read that contacts a host, and a write that reaches somebody."""
    assert labels("fetch_page", "", None, url={"type": "string"}).hosts == {"url"}
    assert labels("fetch_page", "", None, page={"type": "string", "format": "uri"}).hosts == {"page"}
    assert labels("store_it", "", None, owner={"type": "string"}).open_world
    assert not labels("store_it", "", None, unit={"type": "string"}).open_world


def test_a_store_that_the_agent_writes_is_not_trusted():
    """What an attacker has it store comes back from there in a later run."""
    trusted = Labels(effect="read", trusted=True)
    tools = {
        "list_todos": labels("list_todos", "", trusted),
        "get_day": labels("get_day", "", trusted),
        "add_todo": labels("add_todo", "", None, text={"type": "string"}),
        "set_mode": labels("set_mode", "", None, mode={"enum": ["a"]}),
    }
    got = withdraw_trust(tools)
    assert [got[name].trusted for name in tools] == [False, True, False, False]


def test_names_are_cut_into_words():
    """Camel case, snake case, dots, digits and other scripts."""
    assert name_words("getHTTPUrl2_fromMail.v3") == ("get", "http", "url", "2", "from", "mail", "v", "3")
    assert name_words("发送") == ("发送",)
