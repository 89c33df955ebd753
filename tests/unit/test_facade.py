"""The package root: every public name, each loaded only when it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import wellkept

SPECIFIED = {
    "Add", "Agent", "App", "ContextCompressor", "ContextEngine", "DEFAULT_MEMORY_CHAR_LIMIT",
    "DEFAULT_USER_CHAR_LIMIT", "ENTRY_DELIMITER", "MemoryManager", "MemoryProvider", "MemoryStore", "Remove", "Replace",
    "SessionStore", "SkillLibrary", "StreamingContextScrubber", "apply_cache_markers", "build_memory_context_block",
    "sanitize_context",
}  # fmt: skip


def test_every_public_name_resolves():
    """Each name of `__all__` is there, and so is every name that the library promises."""
    missing = [name for name in wellkept.__all__ if getattr(wellkept, name, None) is None]

    assert missing == []
    assert set(wellkept.__all__) >= SPECIFIED
    assert wellkept.__all__ == sorted(wellkept.__all__)


def test_checkers_and_imports_find_the_same_names():
    """What a type checker reads is what an import gives."""
    tree = ast.parse(Path(wellkept.__file__).read_text(encoding="utf-8"))
    aliases = {
        node.value.id: node.target.id for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Name)
    }  # fmt: skip
    declared = {
        aliases.get(name.name, name.asname): f"{node.module}:{name.name}"
        for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and str(node.module).startswith("wellkept.")
        for name in node.names
    }  # fmt: skip

    assert declared == wellkept._HOMES


RIGHT = """
from wellkept import {names}
from wellkept.memory.page import Target

def keep(memory: MemoryStore, text: str) -> str:
    outcome = memory.apply(Target.USER, Add(text))
    return outcome.error if isinstance(outcome, Refused) else outcome.message

def ask(store: SessionStore, question: str) -> list[str]:
    return [hit.session_id for hit in store.search(SearchRequest(question)).sessions]
"""
WRONG = """
from pathlib import Path
from wellkept import Add, MemoryStor, MemoryStore, SessionStore

def keep(memory: MemoryStore) -> None:
    memory.aply("usr", Add(3))

def open_store() -> SessionStore:
    return SessionStore(42, nonsense=True)
"""


def test_mistakes_in_the_code_of_users_are_found(tmp_path):
    """A type checker in strict mode accepts right use of every public name, and reports each mistake."""
    (tmp_path / "right.py").write_text(RIGHT.format(names=", ".join(wellkept.__all__)))
    (tmp_path / "wrong.py").write_text(WRONG)

    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "wrong.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert [line for line in errors if line.startswith("right.py")] == []
    for mistake in (
        'no attribute "MemoryStor"', 'has no attribute "aply"', 'Argument 1 to "Add"',
        'Unexpected keyword argument "nonsense"', 'Argument 1 to "SqliteSessionStore"',
    ):  # fmt: skip
        assert sum(mistake in line for line in errors) == 1, (mistake, checked.stdout, checked.stderr)


def test_an_unknown_name_is_an_attribute_error():
    """A misspelt name fails as it does in any module."""
    assert not hasattr(wellkept, "MemoryStor")


def test_importing_the_root_imports_nothing_else():
    """`import wellkept` loads no other module of ours and no library."""
    code = "import sys; before = set(sys.modules); import wellkept; print(*sorted(set(sys.modules) - before))"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    ours = [name for name in loaded if name.startswith("wellkept")]
    outside = [name for name in loaded if name.partition(".")[0] not in {*sys.stdlib_module_names, "wellkept"}]
    assert ours == ["wellkept"]
    assert outside == []


def test_the_version_is_the_package_s():
    """The root and the installed package say the same version."""
    from importlib.metadata import version

    assert wellkept.__version__ == version("wellkept")


def test_a_session_store_opens_with_a_folder_or_a_file(tmp_path):
    """A folder gets a state.db; a path that is none becomes the file itself."""
    in_folder, as_file = wellkept.SessionStore(tmp_path), wellkept.SessionStore(str(tmp_path / "own.db"))
    in_folder.close()
    as_file.close()

    assert (tmp_path / "state.db").is_file()
    assert (tmp_path / "own.db").is_file()


def test_curated_memory_is_found_under_its_former_name():
    """Programs of users say `from wellkept.operations import pages`."""
    from wellkept.operations import memory, pages

    assert pages is memory
