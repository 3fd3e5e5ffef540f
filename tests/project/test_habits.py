"""The habits of the project: sizes, docstrings, one place for each fact."""

import ast
import re
import subprocess
import sys
import tokenize
import tomllib
from functools import cache

import pytest
from source import MODULES, PACKAGE, ROOT, TESTS, imports, name, tree

from tools import environments

LINES_PER_FILE = 600
LINES_PER_FUNCTION = 50  # code lines, docstring not counted; 40 is the aim


def functions(node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function below a node."""
    return [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Physical lines of a function without its docstring and decorators."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_file_stays_small(path):
    """A file of the package has at most 600 lines."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES_PER_FILE


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_function_stays_small(path):
    """A function of the package has at most 50 lines of code."""
    long = [
        f"{f.name} (line {f.lineno}): {code_lines(f)}"
        for f in functions(tree(path))
        if code_lines(f) > LINES_PER_FUNCTION
    ]
    assert long == []


@pytest.mark.parametrize("path", [path for path in TESTS if path.name.startswith("test_")], ids=name)
def test_a_test_states_its_claim(path):
    """Every test function has a docstring: a claim that can be false."""
    assert [f.name for f in functions(tree(path)) if f.name.startswith("test_") and not ast.get_docstring(f)] == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_file_holds_no_promise(path):
    """No file of the package holds a comment that puts work off, a stub or a coverage exception."""
    with tokenize.open(path) as file:
        comments = [token.string for token in tokenize.generate_tokens(file.readline) if token.type == tokenize.COMMENT]
    assert [one for one in comments if re.search(r"\b(TODO|FIXME|XXX|HACK)\b|pragma: no cover", one)] == []
    assert not any(isinstance(node, ast.Name) and node.id == "NotImplementedError" for node in ast.walk(tree(path)))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_a_regular_expression_repeats_no_group_possessively(path):
    """No text of the package holds `(...)*+` or `(?>...)`: Python before 3.11.5 matches such groups wrongly."""
    texts = [node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)]
    written = [one if isinstance(one, str) else one.decode("latin-1") for one in texts if isinstance(one, str | bytes)]
    assert [one for one in written if re.search(r"(?<!\\)\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>", one)] == []


def test_every_public_name_has_a_docstring():
    """Each name in `pokayoke.__all__` resolves, is documented, and the list is sorted."""
    script = (
        "import pokayoke, typing\n"
        "order = lambda n: (not n.isupper(), n)\n"
        "assert list(pokayoke.__all__) == sorted(pokayoke.__all__, key=order), 'not sorted'\n"
        "bad = [n for n in pokayoke.__all__ if not n.startswith('__')\n"
        "       and typing.get_origin(getattr(pokayoke, n)) is None\n"
        "       and not (getattr(pokayoke, n).__doc__ or '').strip()]\n"
        "assert not bad, bad\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def project() -> dict:
    """The project file, parsed."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def locked(lock: str) -> set[str]:
    """Names of the distributions in a lock file."""
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    return {normal(found) for found in re.findall(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==", text, re.MULTILINE)}


def normal(distribution: str) -> str:
    """A distribution's name in its one comparable spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def asked(requirements: list[str]) -> set[str]:
    """Names of the distributions in a list of requirements."""
    return {normal(re.split(r"[\s\[<>=!~;]", requirement)[0]) for requirement in requirements}


@pytest.mark.parametrize(
    ("lock", "groups"),
    [
        ("runtime.lock", ["build"]),
        ("test.lock", ["build", "test"]),
        ("dev.lock", ["build", "test", "check", "bench", "environments"]),
    ],
)
def test_a_lock_holds_what_the_project_asks_for(lock, groups):
    """Each dependency and each group of the project file is pinned in its lock."""
    wanted = asked(project()["project"]["dependencies"])
    for group in groups:
        wanted |= asked(project()["dependency-groups"][group])
    assert wanted - locked(lock) == set()


FRAMEWORKS = ROOT / "tests" / "frameworks"
HOSTS = (FRAMEWORKS / "hosts", FRAMEWORKS / "chats")
DISTRIBUTIONS = {
    "attr": "attrs",
    "agent_framework": "agent-framework-core",
    "agents": "openai-agents",
    "google": "google-adk",
    "jwt": "pyjwt",
    "pydantic_ai": "pydantic-ai-slim",
    "ruamel": "ruamel.yaml",
}
"""Distributions that are not named like their module."""


SEVERAL = {"framework_policy.py": ("frameworks/langchain.lock", "frameworks/pydantic-ai.lock")}
"""Files that are about several frameworks, of which an environment has one."""


def locks_of(path) -> tuple[str, ...]:
    """The locks of the environments in which a test file runs: that of a framework, if it is about one."""
    if path.name in SEVERAL:
        return SEVERAL[path.name]
    if FRAMEWORKS in path.parents:
        place = path if path.parent in (FRAMEWORKS, *HOSTS) else path.parent
        stem = place.stem.removeprefix("test_").replace("_", "-")
        for name_ in environments.NAMES:
            if name_ != "plain" and (stem == name_ or stem.startswith(f"{name_}-")):
                return (f"frameworks/{name_}.lock",)
    return ("test.lock",)


def test_the_locks_hold_what_the_tests_import():
    """What a test outside of tests/conformance imports is installed by `make test`, or by `make frameworks`."""
    local = {path.stem for path in TESTS if path.parent not in HOSTS} | {"bench", "pokayoke", "tests", "tools"}
    missing = set()
    for path in TESTS:
        if "conformance" not in path.parts and "typing" not in path.parts:
            for module, _, _ in imports(tree(path)):
                top = module.split(".", maxsplit=1)[0]
                if top in sys.stdlib_module_names or top in local:
                    continue
                if normal(DISTRIBUTIONS.get(top, top)) not in set().union(*map(locked, locks_of(path))):
                    missing.add((name(path), top))
    assert missing == set()


@pytest.mark.parametrize("framework", environments.NAMES + environments.OTHERS)
def test_the_lock_of_a_framework_holds_what_it_asks_for(framework):
    """Its extra, its own group and what every environment needs are pinned."""
    known = project()
    wanted = asked(known["project"]["dependencies"])
    for extra in environments.EXTRAS.get(framework, (framework,)):
        wanted |= asked(known["project"]["optional-dependencies"][extra])
    for group in (*environments.GROUPS, f"host-{framework}"):
        wanted |= asked(known["dependency-groups"].get(group, []))
    assert wanted - locked(f"frameworks/{framework}.lock") == set()


def test_the_locks_agree():
    """A distribution has the same version in every lock."""
    pins: dict[str, set[str]] = {}
    for lock in sorted((ROOT / "requirements").glob("*.lock")):
        for pin in re.findall(r"^([A-Za-z0-9._-]+==\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
            pins.setdefault(pin.split("==")[0], set()).add(pin)
    assert {one: found for one, found in pins.items() if len(found) > 1} == {}


def test_no_file_names_a_package_index():
    """Where packages come from is the installer's business: no project file names an index or a host."""
    files = [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / ".ci" / "run", *(ROOT / "requirements").rglob("*.lock")]
    pattern = re.compile(r"(extra-)?index-url|find-links|trusted-host|https?://[^\s\"')]*(pypi|simple|registry)")
    assert [
        f"{name(path)}: {hit.group()}" for path in files for hit in pattern.finditer(path.read_text(encoding="utf-8"))
    ] == []


def test_the_version_stands_in_the_changelog():
    """The version of the project file has a section in CHANGELOG.md."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {project()['project']['version']}" in changelog


def test_the_package_says_it_is_typed():
    """The package ships the marker that makes its types count for users."""
    assert (PACKAGE / "py.typed").is_file()


def test_the_readme_is_short_and_shows_code_early():
    """README.md has fewer than 150 lines and its first Python block starts before line 30."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 150
    assert lines.index("```python") + 1 < 30
