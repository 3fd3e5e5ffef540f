"""The official JSON Schema test suite (draft 7 and 2020-12, required tests), through our contract layer."""

import json
import socket

import pytest

from pokayoke.core.schema.schema import compile_schema
from pokayoke.errors import ContractError

pytestmark = pytest.mark.conformance

REMOTES_AT = "http://localhost:1234/"
# The suite calls formats annotations in 2020-12; our default asserts them. These tests of format.json
# say so themselves ("... is only an annotation by default") and are the only ones that differ.
ASSERTED = (
    "email", "idn-email", "regex", "ipv4", "ipv6", "idn-hostname", "hostname", "date", "date-time", "time",
    "json-pointer", "relative-json-pointer", "iri", "iri-reference", "uri", "uri-reference", "uri-template", "uuid",
    "duration",
)  # fmt: skip


@pytest.fixture(scope="module")
def groups(shared):
    """Every group of the suite, with the dialect as we name it."""
    lines = (shared / "data" / "jsonschema_suite.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        {**row, "draft": row["draft"] if row["draft"] == "draft7" else row["draft"].removeprefix("draft")}
        for row in map(json.loads, lines)
    ]


@pytest.fixture(scope="module")
def remotes(shared):
    """The suite's remote documents by the address the suite gives them."""
    documents = json.loads((shared / "data" / "jsonschema_remotes.json").read_text(encoding="utf-8"))
    return {REMOTES_AT + path: document for path, document in documents.items()}


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch):
    """Any attempt to open a socket fails the test."""

    def forbidden(*_args, **_kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", forbidden)


def compiled(group, **options):
    """The schema of a group."""
    return compile_schema(group["schema"], draft=group["draft"], **options)


def test_every_required_test_passes_with_remotes_handed_in(groups, remotes):
    """All 2,226 verdicts are the suite's, formats being annotations."""
    wrong, total = [], 0
    for group in groups:
        schema = compiled(group, formats=False, resources=remotes)
        for test in group["tests"]:
            total += 1
            if schema.is_valid(test["data"]) is not test["valid"]:
                wrong.append((group["draft"], group["file"], group["group"], test["description"]))
    assert wrong == []
    assert total == 2226


def test_problems_exist_exactly_where_the_suite_says_invalid(groups, remotes):
    """problems() is empty for every valid value and not empty for every invalid one; few need the general answer."""
    general = 0
    for group in groups:
        schema = compiled(group, formats=False, resources=remotes)
        for test in group["tests"]:
            problems = schema.find_problems(test["data"])
            assert bool(problems) is not test["valid"]
            general += any(problem.keyword == "schema" for problem in problems)
    assert general <= 42, "unevaluatedItems and $dynamicRef are not explained in detail, everything else is"


def test_in_the_default_only_asserted_formats_differ(groups, remotes):
    """With formats asserted, exactly the suite's annotation tests of the listed formats have another verdict."""
    differing = [
        (group["draft"], group["file"], group["group"], test["description"])
        for group in groups
        for schema in [compiled(group, resources=remotes)]
        for test in group["tests"]
        if schema.is_valid(test["data"]) is not test["valid"]
    ]
    assert differing == [
        (
            "2020-12",
            "format.json",
            f"{name} format",
            f"invalid {name} string is only an annotation by default",
        )
        for name in ASSERTED
    ]


def test_in_the_default_every_remote_schema_is_refused_at_registration(groups):
    """Nothing handed in: exactly the schemas that mention a remote address are refused, and nothing is fetched."""
    refused = {}
    for group in groups:
        try:
            compiled(group)
        except ContractError as exc:
            refused[group["draft"], group["file"], group["group"]] = str(exc)
    assert all("points outside" in why or "dialect" in why for why in refused.values())
    of_remotes = {(g["draft"], g["file"], g["group"]) for g in groups if g["file"] == "refRemote.json"}
    assert of_remotes <= refused.keys()
    mentioned = {(g["draft"], g["file"], g["group"]) for g in groups if REMOTES_AT in json.dumps(g["schema"])}
    assert refused.keys() <= mentioned
