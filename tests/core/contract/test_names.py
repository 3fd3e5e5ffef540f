"""Tool names that may be registered, and those that can be mistaken for others."""

import pytest

from pokayoke.core.contract.contract import Contract
from pokayoke.errors import ContractError


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "it is blank"), ("  ", "it is blank"), (None, "it is blank"), (" a", "white space"), ("a\u00a0b", "white space"),
        ("a\tb", "U+0009|white space"), ("x" * 129, "more than 128"), ("é" * 129, "more than 128"), ("é\u3000é", "white space"), ("pa\u200by", "U+200B"), ("pay\u202e", "U+202E"),
        ("p\u0430y", "mixes scripts"), ("ｐａｙ", "displays like 'pay'"), ("\u0440\u0430\u0443", "look like Latin"), ("e\u0301", "U+0301"),
    ],
)  # fmt: skip
def test_names_that_can_be_mistaken_are_refused(name, words):
    """Blank, invisible, full-width, mixed and imitated names cannot be registered."""
    with pytest.raises(ContractError, match="cannot be registered") as caught:
        Contract.from_schema(name, {"type": "object"})
    assert any(word in str(caught.value) for word in words.split("|"))


@pytest.mark.parametrize(
    "name", ["get_user", "http.get", "a b", "查询天气", "find_査詢", "перевод", "größe", "get-user/v2", "검색tool"]
)
def test_honest_names_of_any_language_are_accepted(name):
    """One script, or Latin with Chinese, Japanese or Korean, is accepted."""
    assert Contract.from_schema(name, {"type": "object"}).name == name
