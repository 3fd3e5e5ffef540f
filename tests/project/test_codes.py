"""Every finding code is documented where it is made, once, and means one thing."""

import ast
import importlib
import re

import pytest
from source import MODULES, module_of, name, tree


def tables() -> dict[str, dict[str, str]]:
    """Module name to its CODES table, of the modules that have one of their own."""
    return {
        module_of(path): importlib.import_module(module_of(path)).CODES
        for path in MODULES
        if re.search(r"^CODES\b.*=", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


TABLES = tables()
DOCUMENTED = {code: text for table in TABLES.values() for code, text in table.items()}


def made_in(node: ast.AST) -> list[tuple[str, int]]:
    """The codes written as constants in calls of Finding, also inside a conditional expression."""
    made: list[tuple[str, int]] = []
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Finding"):
            continue
        given = [word.value for word in call.keywords if word.arg == "code"] + call.args[:1]
        for value in given:
            made += [
                (c.value, c.lineno) for c in ast.walk(value) if isinstance(c, ast.Constant) and isinstance(c.value, str)
            ]
    return made


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_every_code_that_is_made_is_documented(path):
    """A code given to Finding stands in some CODES table."""
    assert [f"line {line}: {code}" for code, line in made_in(tree(path)) if code not in DOCUMENTED] == []


@pytest.mark.parametrize("module", sorted(TABLES))
def test_every_documented_code_is_made_somewhere(module):
    """A code in a CODES table is written in the package at least once outside the tables."""
    used: set[str] = set()
    for path in MODULES:
        constants = [n.value for n in ast.walk(tree(path)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        keys = set(TABLES.get(module_of(path), {}))
        # A code in its own module counts when it is written twice: once in the table, once where it is made.
        used |= {text for text in set(constants) if text not in keys or constants.count(text) > 1}
    assert sorted(set(TABLES[module]) - used) == []


@pytest.mark.parametrize("module", sorted(TABLES))
def test_a_code_is_spelt_and_explained(module):
    """A code is snake_case and its meaning is one non-empty line."""
    for code, text in TABLES[module].items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", code), code
        assert text.strip() == text, code
        assert text, code
        assert "\n" not in text, code
