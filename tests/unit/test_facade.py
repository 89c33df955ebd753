"""The package root: every public name, each loaded only when it is used."""

import subprocess
import sys

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
