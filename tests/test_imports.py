"""Dependencies point one way: web -> arena -> games, arena -> engine; engine and games know nobody."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "games": set(),
    "engine": set(),
    "arena": {"games", "engine"},
    "web": {"arena", "games"},
}


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_dependencies_point_one_way(package: str) -> None:
    others = set(MAY_IMPORT) - {package} - MAY_IMPORT[package]
    sources = [p for p in (ROOT / package).rglob("*.py") if "node_modules" not in p.parts]
    assert sources
    wrong = {
        str(path.relative_to(ROOT)): sorted(imported_packages(path) & others)
        for path in sources
        if imported_packages(path) & others
    }
    assert not wrong
