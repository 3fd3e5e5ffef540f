"""The catalogue: which contract a called name means, and the hint for an unknown one."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke.core.call import Finding
from pokayoke.core.catalogue.catalogue import Catalogue
from pokayoke.core.contract.contract import Contract
from pokayoke.core.contract.names import fold_name, provider_name
from pokayoke.core.finding_codes import CODES_BY_ROOM
from pokayoke.core.messages.tool_definitions import build_definitions
from pokayoke.errors import ContractError


def contract(name, **fields):
    """A contract without arguments."""
    return Contract.from_schema(name, {"type": "object", "properties": {}}, **fields)


def catalogue(*names, **options):
    """A catalogue of contracts without arguments."""
    return Catalogue([contract(name) for name in names], **options)


TOOLS = catalogue("get_user", "http.get", "bank_create_transfer", "查询天气", "createIssue", prefixes=("crm", "github"))


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("get_user", "get_user"),
        ("get_user@1", "get_user"),
        ("GET_USER", "get_user"),
        ("get-user", "get_user"),
        ("get.user", "get_user"),
        ("get user", "get_user"),
        ("  get_user\n", "get_user"),
        ("getUser", "get_user"),
        ("GetUser", "get_user"),
        ("create_issue", "createIssue"),
        ("http_get", "http.get"),
        ("functions.get_user", "get_user"),
        ("functions.http.get", "http.get"),
        ("tools/get_user", "get_user"),
        ("default_api:get_user", "get_user"),
        ("crm.get_user", "get_user"),
        ("crm__get_user", "get_user"),
        ("CRM/get-user", "get_user"),
        ("mcp__github__create_issue", "createIssue"),
        ('get_user"}', "get_user"),
        ("get_user</name>", "get_user"),
        ("get_user<|channel|>commentary", "get_user"),
        ('get_user", "arguments": {', "get_user"),
        ("get_user(", "get_user"),
        ("get_user()", "get_user"),
        ("get_user</name", "get_user"),
        ("`get_user`", "get_user"),
        ("functions.get_user</tool>", "get_user"),
        ("查询天气", "查询天气"),
        ("functions.查询天气", "查询天气"),
    ],
)
def test_spellings_that_carry_no_meaning_lead_to_the_tool(called, name):
    """Case, separators, wrappers, known server prefixes and leaked markup do not change the tool."""
    assert TOOLS.resolve_name(called).name == name


@pytest.mark.parametrize(
    "called",
    [
        "get_usr", "get_users", "bank_list_transfers", "bank_delete_transfer", "evil.get_user", "evil__get_user",
        "http", "get", "user", "get_user2", "crm.", "crmget_user", "delete_user</name>", "get_user@2", "查询", "functions",
        'get_user(id="*")', 'get_user{"id":7}', 'get_user\n{"id":7}', "get_user=dry", 'get_user" id="93">',
        "get_user, createIssue", "createIssue;get_user", "get_user|createIssue", "get_user<arg_key>id",
    ],
)  # fmt: skip
def test_similarity_never_executes(called):
    """A name that is only close, carries an unknown prefix, arguments or a second name, is an unknown tool."""
    found = TOOLS.resolve_name(called)
    assert isinstance(found, Finding)
    assert (found.code, found.blame) == ("unknown_tool", "model")
    assert found.code in CODES_BY_ROOM["catalogue"]


@pytest.mark.parametrize(
    "called",
    [
        "get_us\u0435r",
        "get_user\u200b",
        "\u202eget_user",
        "ｇet_user",
        "get_user\u00a0",
        "\ufeffget_user",
        "get\u2060_user",
    ],
)
def test_a_name_with_deceiving_characters_is_never_corrected(called):
    """Cyrillic letters, zero-width and full-width characters make it an unknown tool, shown without them."""
    found = TOOLS.resolve_name(called)
    assert isinstance(found, Finding)
    assert not set("\u200b\u202e\ufeff\u2060\u00a0") & set(found.hint + found.message + str(found.data))


def test_a_separator_between_digits_is_part_of_a_name():
    """`v1_0` is not `v10`, and `delete_1_1` is not `delete_11`."""
    tools = Catalogue([Contract.from_schema(name, {"type": "object"}) for name in ("v1_0", "delete_1_1")])
    assert tools.find_contract("V1.0").name == "v1_0"
    assert tools.find_contract("v10") is None
    assert tools.find_contract("delete_11") is None


def test_two_tools_that_a_spelling_could_mean_are_not_chosen_between():
    """An ambiguous spelling is unknown; both exact names still work."""
    both = catalogue("getUser", "get_user_")
    assert both.resolve_name("getUser").name == "getUser"
    assert both.resolve_name("get_user_").name == "get_user_"
    assert isinstance(both.resolve_name("get-user"), Finding)


def test_the_finding_names_the_nearest_and_the_list():
    """The model reads what it asked for, the nearest names and which tools exist."""
    found = TOOLS.resolve_name("bank_list_transfers")
    assert found.hint == (
        "There is no tool `bank_list_transfers`. Nearest: bank_create_transfer. "
        "Tools: get_user, http.get, bank_create_transfer, 查询天气, createIssue."
    )
    assert found.data == {"called": "bank_list_transfers", "nearest": ["bank_create_transfer"]}
    assert "'bank_list_transfers'" in found.message


@pytest.mark.parametrize("called", ["get_user\u200b", "\ufeffget_user", "get_user\u0301"])
def test_a_known_name_with_invisible_signs_gets_its_own_hint(called):
    """The hint says that the name has invisible signs, and not that there is no such tool."""
    found = TOOLS.resolve_name(called)
    assert isinstance(found, Finding)
    assert found.hint.startswith("`get_user` holds signs that cannot be seen here.")


@pytest.mark.parametrize("called", ["", "   ", "\n", "\u200b", "\ud800", None, 5])
def test_a_blank_name_gets_no_list(called):
    """A call without a visible name is unknown, and its hint does not invite another guess."""
    found = TOOLS.resolve_name(called)
    assert found.code == "unknown_tool"
    assert "get_user" not in found.hint


def test_a_long_list_is_capped_and_counted():
    """With 500 tools the hint stays under 600 characters and says how many are not listed."""
    many = catalogue(*(f"some_rather_long_tool_name_{i:03}" for i in range(500)))
    found = many.resolve_name("x" * 5000)
    assert len(found.hint) < 600
    listed = found.hint.count("some_rather")
    assert f"and {500 - listed} more." in found.hint
    assert len(found.message) < 300
    long_names = catalogue(*(f"{i}{'n' * 120}" for i in range(9)))
    assert len(long_names.resolve_name("n" * 100).hint) < 600


def test_only_offered_tools_are_named():
    """unknown(offered=...) neither lists nor suggests anything else; without tools it says so."""
    found = TOOLS.unknown_tool_finding("get_usr", offered=("http.get",))
    assert "get_user" not in found.hint
    assert found.data["nearest"] in ([], ["http.get"])
    assert "There are no tools" in TOOLS.unknown_tool_finding("get_usr", offered=()).hint


@given(st.text(max_size=80))
def test_any_text_is_answered_with_a_short_hint(called):
    """For any called name the result is a contract, or a finding whose hint is printable and short."""
    found = TOOLS.resolve_name(called)
    if isinstance(found, Finding):
        assert len(found.hint) < 600
        assert found.hint.replace("…", "").isprintable()


@given(st.text(string.ascii_letters + string.digits + "_-. /", min_size=1, max_size=30))
def test_a_resolved_name_differs_in_meaningless_characters_only(called):
    """A resolved name has the tool's letters in their order, or is longer by a prefix or markup."""
    found = TOOLS.resolve_name(called)
    if isinstance(found, Contract):
        assert fold_name(called).endswith(fold_name(found.name))


def test_a_name_is_that_of_one_version():
    """Two versions of one tool are refused, and so is one version twice."""
    with pytest.raises(ContractError, match="several versions, 1 and 2"):
        Catalogue([contract("pay"), contract("pay", version="2")])
    with pytest.raises(ContractError, match="registered twice"):
        catalogue("pay", "pay")
    chosen = Catalogue([contract("pay", version="2")])
    assert [one.id for one in chosen.contracts] == ["pay@2"]
    assert isinstance(chosen.resolve_name("pay@1"), Finding)


def test_names_a_provider_cannot_tell_apart_are_refused():
    """Two tools with one provider name, or a tool named like another's provider name, cannot be built."""
    for pair in (("http.get", "http_get"), ("http_get", "http.get"), ("a b", "a/b")):
        with pytest.raises(ContractError, match="called"):
            catalogue(*pair)
    with pytest.raises(ContractError, match="two tools are called 'a_b' in the format openai"):
        build_definitions([contract("a b"), contract("a_b")])


@pytest.mark.parametrize("written", ["openai", "anthropic", "mcp"])
@pytest.mark.parametrize("name", ["get_user", "http.get", "a b/c", "查询天气", "x" * 100, "crm/" + "x" * 90, "é"])
def test_provider_names_fit_and_lead_back(written, name):
    """The mapped name has the provider's alphabet and length, is stable, and resolves to the tool."""
    mapped = provider_name(name, written)
    allowed = set(string.ascii_letters + string.digits + "_-" + ("." if written == "mcp" else ""))
    assert set(mapped) <= allowed
    assert 1 <= len(mapped) <= (128 if written == "mcp" else 64)
    assert mapped == provider_name(name, written)
    assert catalogue(name, "other").resolve_name(mapped).name == name


def test_definitions_have_each_providers_shape():
    """Name, description and the schema the model may see, and MCP's output schema and hints."""
    tool = Contract.from_schema(
        "crm.pay",
        {"type": "object", "properties": {"user": {"type": "string"}, "key": {"type": "string"}}},
        key_argument="key",
        description="Pay.",
        effect="destructive",
        output_schema={"type": "object"},
    )
    schema = {"type": "object", "properties": {"user": {"type": "string"}}}
    assert build_definitions([tool]) == [
        {"type": "function", "function": {"name": "crm_pay", "description": "Pay.", "parameters": schema}}
    ]
    assert build_definitions([tool], "anthropic") == [
        {"name": "crm_pay", "description": "Pay.", "input_schema": schema}
    ]
    hints = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    assert build_definitions([tool], "mcp") == [
        {"name": "crm.pay", "description": "Pay.", "inputSchema": schema, "outputSchema": {"type": "object"}, "annotations": hints}
    ]  # fmt: skip
    silent = contract("x", output_schema={"type": "array"})
    assert all("description" not in str(build_definitions([silent], one)) for one in ("openai", "anthropic", "mcp"))
    assert "outputSchema" not in build_definitions([silent], "mcp")[0]
    with pytest.raises(ContractError, match="unknown format"):
        build_definitions([tool], "gemini")
