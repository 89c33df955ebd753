"""The shape of the tree: rules that hold for every module."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "kept"
MODULES = sorted(SRC.rglob("*.py"))
MAX_LINES = 400
MAX_FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "util", "helper"}

BROAD_CATCHES = {
    # plugin call
    "providers/loading.py",
    "context/engines.py",
    "agent/mcp_tools.py",
    # tool call
    "agent/tool_calls.py",
    # background task
    "agent/review.py",
    "providers/delivery.py",
    "sessions/embedding/backfill.py",
    "sessions/embedding/models.py",
    # process entry
    "cli/main.py",
}
"""The four boundaries at which foreign or unforeseen failures may be caught whole."""

DRIVERS = {
    "apsw": {"storage"},
    "psycopg": {"storage"},
    "openai": {"llm"},
    "anthropic": {"llm"},
    "xllamacpp": {"llm"},
    "mcp": {"mcp_server", "agent"},
    "fastapi": {"gateway"},
    "starlette": {"gateway"},
    "typer": {"cli"},
    "rich": {"cli"},
    "prompt_toolkit": {"cli"},
}


def _ids(path: Path) -> str:
    return str(path.relative_to(SRC))


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
"""Parsed when tests are collected: CPython 3.11 can lose count of its recursion in a process full of event loops."""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return TREES


def test_modules_are_short() -> None:
    """No module is longer than 400 lines."""
    long = {_ids(path): count for path in MODULES if (count := len(path.read_text().splitlines())) > MAX_LINES}

    assert long == {}


def test_functions_are_short(trees: dict[Path, ast.Module]) -> None:
    """No function is longer than 60 lines."""
    long = [
        f"{_ids(path)}:{node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]

    assert long == []


def test_every_module_says_what_it_is(trees: dict[Path, ast.Module]) -> None:
    """Every module has a docstring whose first line ends as a sentence."""
    silent = [
        _ids(path)
        for path, tree in trees.items()
        if not (text := ast.get_docstring(tree)) or text.splitlines()[0].rstrip()[-1] not in ".:"
    ]

    assert silent == []


def test_no_module_is_a_drawer() -> None:
    """No folder or module is called utils, helpers, common or misc."""
    drawers = [_ids(path) for path in MODULES if FORBIDDEN_NAMES & {path.stem, *path.relative_to(SRC).parts}]

    assert drawers == []


def test_broad_catches_stand_at_the_boundaries(trees: dict[Path, ast.Module]) -> None:
    """`except Exception` stands only at plugin calls, tool calls, background tasks and the process entry."""
    broad = {
        _ids(path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node)
    }

    assert broad <= BROAD_CATCHES


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    broad = any(isinstance(name, ast.Name) and name.id == "Exception" for name in names)
    return broad and not _reraises(handler)


def _reraises(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None


def test_drivers_stay_at_the_edge(trees: dict[Path, ast.Module]) -> None:
    """A driver or SDK is imported only in the one folder that is its adapter."""
    strays = [
        f"{_ids(path)} imports {name}"
        for path, tree in trees.items()
        for name in {module.partition(".")[0] for module in _imported(tree)}
        if name in DRIVERS and path.relative_to(SRC).parts[0] not in DRIVERS[name]
    ]

    assert strays == []


def _imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_a_session_store_is_reached_through_its_port(trees: dict[Path, ast.Module]) -> None:
    """Only the app, which builds it, imports the folder of a session store; the command line knows no database."""
    strays = [
        f"{name} imports {module}"
        for path, tree in trees.items()
        for module in _imported(tree)
        if not (name := _ids(path)).startswith(("app/", "sessions/sqlite/"))
        and (module.startswith("kept.sessions.sqlite") or (name.startswith("cli/") and "sqlite" in module.split(".")))
    ]

    assert strays == []


def test_nothing_is_promised_in_a_comment() -> None:
    """No to-do mark stands in the source."""
    marks = [_ids(path) for path in MODULES if any(mark in path.read_text() for mark in ("TO" + "DO", "FIX" + "ME"))]

    assert marks == []
