"""What the tests of the project itself read: its files and their syntax trees."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "pokayoke"
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = [path for path in MODULES if path.is_relative_to(PACKAGE / "core")]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def name(path: Path) -> str:
    """The path as a test id: relative to the repository."""
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_of(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below a node that is there at run time: what only a type checker sees is left out."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"):
            yield from _executed(child)


def imports(node: ast.AST) -> list[tuple[str, tuple[str, ...], int]]:
    """Every import below a node: module, the names taken from it (empty for a plain import), line."""
    found: list[tuple[str, tuple[str, ...], int]] = []
    for child in _executed(node):
        if isinstance(child, ast.Import):
            found += [(alias.name, (), child.lineno) for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import on line {child.lineno}: write the full name"
            found.append((child.module or "", tuple(alias.name for alias in child.names), child.lineno))
    return found
