"""Where the home is, which profile is used, and homes that are shared with another agent."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.config.home import Home, active_profile, check_profile_name, choose_profile, find_home
from wellkept.core.errors import NotFound, UsageError
from wellkept.storage.connections import Migration
from wellkept.storage.files import APPLICATION_ID
from wellkept.storage.sqlite import Database


def test_the_flag_wins_then_the_variable_then_the_default(tmp_path, monkeypatch):
    """`--home` → `$KEPT_HOME` → `~/.kept`, resolved when asked for."""
    monkeypatch.setenv("HOME", str(tmp_path))

    assert find_home("/a", None, {"KEPT_HOME": "/b"}).path.as_posix() == "/a"
    assert find_home(None, None, {"KEPT_HOME": "/b"}).path.as_posix() == "/b"
    assert find_home(None, None, {"KEPT_HOME": ""}).path == tmp_path / ".kept"
    assert find_home("~/x", None, {}).path == tmp_path / "x"


@pytest.mark.parametrize("path", ["a\0b", "\udcff", "~nobody-has-this-name/x"])
def test_a_path_that_cannot_be_is_refused(path):
    """NUL, bytes that are not text, an unknown person: usage errors, not tracebacks."""
    with pytest.raises(UsageError):
        find_home(path, None, {})


@pytest.mark.parametrize("name", ["a", "0", "work", "a-b_c", "x" * 64])
def test_names_that_a_profile_may_have(name):
    """Lowercase letters, digits, - and _."""
    assert check_profile_name(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a b", "a/b", "..", "x" * 65, "work\n", "é", "a\0"])
def test_names_that_a_profile_may_not_have(name):
    """The error says what is allowed."""
    with pytest.raises(UsageError, match="1 to 64"):
        check_profile_name(name)


@given(st.text(max_size=70))
def test_no_name_leaves_the_profiles_folder(name):
    """Whatever is accepted is one plain folder name."""
    try:
        check_profile_name(name)
    except UsageError:
        return
    assert "/" not in name
    assert name not in {".", ".."}
    assert name == name.strip()


def test_profiles_are_homes_below_the_root(tmp_path):
    """The default is the root itself; others must exist."""
    (tmp_path / "profiles" / "work").mkdir(parents=True)

    assert find_home(str(tmp_path), "work", {}).path == tmp_path / "profiles" / "work"
    assert find_home(str(tmp_path), None, {"KEPT_PROFILE": "work"}).profile == "work"
    with pytest.raises(NotFound, match="kept profile create"):
        find_home(str(tmp_path), "other", {})


def test_a_chosen_profile_is_used_until_another_is_named(tmp_path):
    """`kept profile use` is remembered in the root; nonsense there means the default."""
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    choose_profile(tmp_path, "work")

    assert find_home(str(tmp_path), None, {}).profile == "work"
    assert find_home(str(tmp_path), "default", {}).profile == "default"
    (tmp_path / "active_profile").write_bytes(b"\xff/../..")
    assert active_profile(tmp_path) == "default"


def test_another_agent_s_home_is_shared_without_writing_its_files(tmp_path):
    """A foreign state.db makes ours kept.db and kept.yaml beside it."""
    other = sqlite3.connect(tmp_path / "state.db")
    other.execute("CREATE TABLE sessions (id)")
    other.commit()
    other.close()
    (tmp_path / "config.yaml").write_text("memory:\n  memory_char_limit: 999\n")
    home = Home(tmp_path)

    assert home.is_shared
    assert (home.database.name, home.config_file.name) == ("kept.db", "kept.yaml")
    assert home.foreign_config_file == tmp_path / "config.yaml"


@pytest.mark.parametrize("kind", ["absent", "ours", "empty", "garbage", "tableless"])
def test_any_other_home_is_ours(tmp_path, kind):
    """Our own mark, an empty file, a database without tables or no SQLite at all is not another agent's database."""
    (tmp_path / "config.yaml").write_text("memory:\n  memory_char_limit: 999\n")
    if kind == "ours":
        Database(
            tmp_path / "state.db", application_id=APPLICATION_ID, migrations=(Migration(1, "CREATE TABLE t (x)"),)
        ).close()
    elif kind == "tableless":
        made = sqlite3.connect(tmp_path / "state.db")
        made.execute("PRAGMA user_version = 7")
        made.close()
        assert (tmp_path / "state.db").stat().st_size >= 100
    elif kind != "absent":
        (tmp_path / "state.db").write_bytes(b"" if kind == "empty" else b"x" * 200)

    home = Home(tmp_path)
    assert not home.is_shared
    assert (home.database.name, home.config_file.name) == ("state.db", "config.yaml")
    assert home.foreign_config_file is None
