"""URL arguments through the guard: each is refused before the tool runs, or reaches it under its rule."""

import pickle
from dataclasses import dataclass
from typing import Annotated

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pokayoke import ConfinedPath, ConfinedUrl, Contract, ContractError, Guard, ToolCall, UrlRefused, UrlRule, tool
from pokayoke.urls import confine_url

SITE = UrlRule(hosts=("example.com", "*.example.com"))
URLS = st.sampled_from(
    [
        "https://example.com/a",
        "https://EXAMPLE.com",
        "https://127.0.0.1/",
        "https://a@example.com/",
        "",
        "x",
        "https://127.1",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | URLS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | URLS, inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module", params=["enforce", "monitor"])
def opened(request):
    """A run with a tool whose URL argument may be anything, and what the tool was given."""
    given_to_tool = []
    fetch = Contract.from_schema(
        "fetch", {"type": "object", "properties": {"u": {}}}, effect="read", output_schema={}, urls={"u": SITE},
        handler=lambda u: given_to_tool.append(u) or {},
    )  # fmt: skip
    return Guard([fetch], config={"mode": request.param}).run("r"), given_to_tool


def confined(value):
    """Whether this is nothing, a URL under the rule, or a list of those."""
    if isinstance(value, list):
        return all(isinstance(item, ConfinedUrl) and confined(item) for item in value)
    return value is None or (isinstance(value, ConfinedUrl) and value.host == "example.com" and value.rule == SITE)


@given(value=JSON)
def test_every_value_is_refused_or_arrives_under_its_rule(opened, value):
    """No JSON value in a URL argument brings a text, number or object to the tool that its rule does not allow."""
    run, given_to_tool = opened
    given_to_tool.clear()
    outcome = run.call(ToolCall("c", "fetch", {"u": value}))
    assert (outcome.status == "ok") is bool(given_to_tool)
    assert all(map(confined, given_to_tool))
    if value is None or value == ["https://example.com/a"]:
        assert given_to_tool


@pytest.mark.parametrize(
    ("value", "at", "rule"),
    [
        (0, "/u", "type"),
        ({"u": "https://example.com"}, "/u", "type"),
        (["https://example.com", "https://127.0.0.1"], "/u/1", "outside"),
        ("http://example.com", "/u", "scheme"),
        ("https://example.com@127.0.0.1/", "/u", "user"),
    ],
)
def test_a_refusal_names_its_place(opened, value, at, rule):
    """The finding says which URL of which argument broke which rule."""
    run, given_to_tool = opened
    given_to_tool.clear()
    outcome = run.call(ToolCall("c", "fetch", {"u": value}))
    assert (outcome.status, outcome.effect, given_to_tool) == ("refused", "none", [])
    assert (outcome.findings[0].at, outcome.findings[0].data["rule"]) == (at, rule)
    assert outcome.stop_reason == "invalid_arguments"


def test_the_tool_gets_the_one_form(opened):
    """What was checked is what the tool gets: the text in one form, in lists too."""
    run, given_to_tool = opened
    given_to_tool.clear()
    assert run.call(ToolCall("c", "fetch", {"u": ["HTTPS://Docs.Example.COM.:443/é", "https://example.com"]})).ok
    assert given_to_tool == [["https://docs.example.com/%C3%A9", "https://example.com/"]]


PRIVATE = ["http://10.0.0.1/", "https://169.254.169.254/", "https://localhost/", "https://0x7f.1/", "https://[::1]/"]


@pytest.mark.parametrize("url", PRIVATE)
@pytest.mark.parametrize("effect", ["read", "write", "destructive"])
def test_a_private_url_is_refused_before_the_tool_runs(url, effect):
    """Under the default rule a write with a private URL neither runs nor leaves anything in the ledger."""
    ran = []
    post = Contract.from_schema(
        "post", {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
        effect=effect, output_schema="text", urls={"url": UrlRule()}, handler=lambda url: ran.append(url) or "done",
    )  # fmt: skip
    guard = Guard([post])
    with guard.run("r") as run:
        call = ToolCall("c", "post", {"url": url})
        assert run.check(call).decision == "refuse"
        outcome = run.call(call)
        assert (outcome.status, outcome.effect, ran) == ("refused", "none", [])
        assert outcome.findings[0].code in ("url_refused", "bad_url")
        assert run.call(ToolCall("d", "post", {"url": "https://example.com/"})).ok
    assert ran == ["https://example.com/"]


async def test_an_asynchronous_call_is_confined_too():
    """`acall` takes the same step."""
    seen = []

    @tool(effect="read", output="text", urls={"url": SITE})
    async def fetch(url: ConfinedUrl) -> str:
        """Fetch a page."""
        seen.append(url)
        return "page"

    async with Guard([fetch]).run() as run:
        assert (await run.acall(ToolCall("a", "fetch", {"url": "https://EXAMPLE.com/x"}))).ok
        assert (await run.acall(ToolCall("b", "fetch", {"url": "https://evil.test/"}))).status == "refused"
    assert [(str(one), type(one)) for one in seen] == [("https://example.com/x", ConfinedUrl)]


def test_a_typed_tool_keeps_the_confined_url():
    """Where pydantic makes plain texts, in a list, a model and a dataclass, the URL stays under its rule."""
    seen = []

    class Page(pydantic.BaseModel):
        url: str
        more: list[ConfinedUrl] = []

    @dataclass
    class Data:
        url: str

    @tool(effect="read", output="text", urls={"url": SITE, "more": SITE})
    def typed(
        url: Annotated[str, pydantic.Field(description="page")], more: tuple[str, ...] = (), n: float = 1.0
    ) -> str:
        """Fetch pages."""
        seen.extend([url, *more])
        return "page"

    model = Contract.from_model(
        "model", Page, output="text", effect="read", urls={"url": SITE, "more": SITE},
        handler=lambda page: seen.extend([page.url, *page.more]) or "page",
    )  # fmt: skip
    data = Contract.from_model(
        "data",
        Data,
        output="text",
        effect="read",
        urls={"url": SITE},
        handler=lambda one: seen.append(one.url) or "page",
    )
    with Guard([typed, model, data]).run() as run:
        for number, name in enumerate(("typed", "model")):
            given = {"url": "https://example.com", "more": ["https://a.example.com"]}
            assert run.call(ToolCall(str(number), name, given)).ok
        assert run.call(ToolCall("2", "data", {"url": "https://example.com"})).ok
    assert [type(one) for one in seen] == [ConfinedUrl] * 5


def test_a_declared_default_is_confined():
    """A default that the rule allows reaches the tool like a value that the model sent; another is its own affair."""
    seen = []
    for default in ("https://Example.com", ["https://example.com"], "http://127.0.0.1"):
        fetch = Contract.from_schema(
            "fetch", {"type": "object", "properties": {"url": {"default": default}}}, effect="read",
            output_schema="text", urls={"url": SITE}, handler=lambda url=None: seen.append(url) or "page",
        )  # fmt: skip
        with Guard([fetch]).run() as run:
            assert run.call(ToolCall("c", "fetch", {})).ok
    assert seen == ["https://example.com/", ["https://example.com/"], None]


def test_paths_and_urls_stand_side_by_side(tmp_path):
    """A tool may have both; the path is resolved, the URL is checked, and either refuses the call."""

    @tool(effect="write", output="text", urls={"url": SITE}, paths={"path": [str(tmp_path)]})
    def save(url: ConfinedUrl, path: str) -> str:
        """Save a page."""
        return f"{url} {path}"

    with Guard([save]).run() as run:
        assert (
            run.call(ToolCall("a", "save", {"url": "https://example.com", "path": "x"})).value
            == f"https://example.com/ {tmp_path}/x"
        )
        assert (
            run.call(ToolCall("b", "save", {"url": "https://evil.test", "path": "x"})).findings[0].code == "url_refused"
        )
        assert (
            run.call(ToolCall("c", "save", {"url": "https://example.com", "path": "../x"})).findings[0].code
            == "path_escape"
        )


def test_a_confined_url_without_a_rule_is_an_error():
    """A type that promises a check needs the rule that says what is checked."""
    with pytest.raises(ContractError, match=r"is a ConfinedUrl\. Say with urls= what it may reach"):

        @tool(effect="read", output="text")
        def fetch(url: ConfinedUrl) -> str:
            """Fetch a page."""


def test_the_confined_types_hide_no_validator(tmp_path):
    """Their schema says what they take, so the guard has no reason to warn of a validator of the author's."""

    @tool(effect="read", output="text", urls={"url": SITE}, paths={"path": [str(tmp_path)]})
    def save(url: ConfinedUrl, path: ConfinedPath) -> str:
        """Save a page."""
        return ""

    assert save.before_validators == ()
    assert save.input_schema["properties"]["url"]["type"] == "string"


def test_a_placeholder_is_no_url():
    """A text that stands for no value is named as that."""

    @tool(effect="read", output="text", urls={"page": UrlRule()})
    def fetch(page: str) -> str:
        """Fetch a page."""
        return page

    with Guard([fetch]).run() as run:
        assert run.call(ToolCall("a", "fetch", {"page": "<page_url>"})).findings[0].code == "placeholder"


def test_a_confined_url_is_a_text_with_its_parts():
    """It works wherever a text does, survives pickling with its rule, and is made by hand under the same check."""
    url = confine_url("HTTPS://Example.com:443/a", SITE)
    assert (url, url.scheme, url.host, url.port, url.rule) == (
        "https://example.com/a",
        "https",
        "example.com",
        443,
        SITE,
    )
    copy = pickle.loads(pickle.dumps(url))
    assert (copy, type(copy), copy.rule) == (url, ConfinedUrl, SITE)
    assert confine_url(url, SITE) is url
    with pytest.raises(UrlRefused) as refused:
        confine_url(url, UrlRule(hosts=("other.test",)))
    assert refused.value.finding.data["rule"] == "outside"
    assert pydantic.TypeAdapter(ConfinedUrl).json_schema() == {"type": "string"}
