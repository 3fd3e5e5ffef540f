"""Every finding code is one row of one table, is made somewhere, and means one thing."""

import ast
import re

import pytest
from source import MODULES, PACKAGE, name, tree

from pokayoke.core.finding_codes import CODES_BY_ROOM, FINDING_CODES, codes_counted_as
from pokayoke.core.state.loop_guard import KINDS

TABLE = PACKAGE / "core" / "finding_codes.py"


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
    """A code given to Finding has a row."""
    assert [f"line {line}: {code}" for code, line in made_in(tree(path)) if code not in FINDING_CODES] == []


def test_every_documented_code_is_made_somewhere():
    """A code of the table is written in the package at least once outside of it."""
    used = {
        node.value
        for path in MODULES
        if path != TABLE
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(FINDING_CODES.keys() - used) == []


def test_a_code_has_one_row():
    """No code stands in the groups of two rooms."""
    assert sum(map(len, CODES_BY_ROOM.values())) == len(FINDING_CODES)


@pytest.mark.parametrize("code", FINDING_CODES)
def test_a_code_is_spelt_and_explained(code):
    """A code is snake_case and its meaning is one non-empty line."""
    meaning = FINDING_CODES[code].meaning
    assert re.fullmatch(r"[a-z][a-z0-9_]*", code)
    assert meaning.strip() == meaning != ""
    assert "\n" not in meaning


def test_a_code_counts_as_a_kind_that_exists():
    """What a row says of the loop guard names one of its kinds, and that kind holds the code."""
    kinds = {kind.name: kind.codes for kind in KINDS}
    for code, row in FINDING_CODES.items():
        if row.counts_as:
            assert code in kinds[row.counts_as] == codes_counted_as(row.counts_as)
