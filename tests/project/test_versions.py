"""The table of framework versions in the guide, against the project file, the locks and the hosts."""

import ast
import re
import tomllib

import pytest
from scenarios import SCENARIOS

from tools.environments import LOWEST, LOWESTS, ROOT, lock_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FRAMEWORKS = [name.removesuffix(LOWEST) for name in LOWESTS]
ROW = re.compile(
    r"^\| [^|]+ \| `([\w-]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+ to [\d.]+) \| (\d+) of (\d+) \|$", re.MULTILINE
)
ROWS = {row[1]: row for row in ROW.finditer((ROOT / "docs" / "guides" / "frameworks.md").read_text(encoding="utf-8"))}


def bound_of(extra):
    """The first distribution of an extra, and its lower bound."""
    found = re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", PROJECT["project"]["optional-dependencies"][extra][0])
    return found[1], found[2]


def locked(environment, package):
    """The version of a package in the lock of an environment."""
    return re.search(rf"^{package}==(\S+)", lock_of(environment).read_text(encoding="utf-8"), re.MULTILINE)[1]


def release(version):
    """A version in the form in which 1.2 and 1.2.0 are equal."""
    return tuple(int(part) for part in re.sub(r"(\.0)+$", "", version).split("."))


def constants_of(name):
    """The constants of a host, without importing its framework."""
    tree = ast.parse((ROOT / "tests" / "frameworks" / "hosts" / f"{name.replace('-', '_')}.py").read_text("utf-8"))
    values = {"dict": dict}
    wanted = {"MODES", "WIRES", "IMPOSSIBLE", "LOOP", "NULL", "NO_SIGNAL"}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id in wanted:
            values[target.id] = eval(compile(ast.Expression(node.value), name, "eval"), values)
    return values


def pythons():
    """The first and last version of Python that the project names."""
    versions = [one.rpartition(" ")[2] for one in PROJECT["project"]["classifiers"] if "Python :: 3." in one]
    return f"{versions[0]} to {versions[-1]}"


def counts(name):
    """How many scenarios a host plays, and how many of them it declares impossible nowhere."""
    host = constants_of(name)
    modes = {one.name: [m for m in host["MODES"] if not (one.blocking and m == "sync")] for one in SCENARIOS}
    played = [one.name for one in SCENARIOS if any(one.plays(w, m) for w in host["WIRES"] for m in modes[one.name])]
    impossible = {entry.split(" @")[0] for entry in host["IMPOSSIBLE"]}
    return str(len(set(played) - impossible)), str(len(played))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_table_has_the_versions_that_are_tested(name):
    """Lowest: the bound of the extra, which its lowest lock has. Newest tested: the lock. Scenarios: what its host plays."""
    package, lowest = bound_of(name)
    assert release(locked(name + LOWEST, package)) == release(lowest)
    row = (package, lowest, locked(name, package), pythons(), *counts(name))
    assert ROWS[package].groups() == row


def test_the_table_has_every_framework():
    """No row is left of a framework that is gone."""
    assert len(ROWS) == len(FRAMEWORKS)
