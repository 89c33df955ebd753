"""`kept config …` and `kept profile …`: settings, secrets, separate homes."""

import json
import zipfile

import pytest


def test_show_says_where_each_value_came_from(run, home, monkeypatch):
    """Default, file with line, or variable."""
    home.mkdir()
    (home / "config.yaml").write_text("memory:\n  overflow: archive\n")
    monkeypatch.setenv("KEPT_MEMORY__PENDING_DAYS", "5")
    shown = json.loads(run("config", "show", "memory", "--json").out)

    assert shown["memory.overflow"] == {"value": "archive", "origin": "config.yaml:2"}
    assert shown["memory.pending_days"] == {"value": 5, "origin": "KEPT_MEMORY__PENDING_DAYS"}
    assert shown["memory.memory_char_limit"] == {"value": 2200, "origin": "default"}
    assert "(config.yaml:2)" in run("config", "show", "memory.overflow").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "memory.overflw"), "'memory.overflow'"),
        (("show", "memry"), "'memory'"),
        (("set", "memory.overflw", "x"), "'memory.overflow'"),
        (("set", "memory.overflow", "x"), "curate | refuse | archive"),
        (("unset", "memory.overflw"), "'memory.overflow'"),
        (("set", "memory.overflow"), "VALUE"),
        (("secret", "not-a-name"), "letters"),
    ],
)
def test_mistakes_lead_on(run, home, arguments, words):
    """Exit 2, the nearest right form, and no file."""
    ran = run("config", *arguments, stdin=b"value\n")

    assert ran.code == 2
    assert words in ran.err
    assert not (home / "config.yaml").exists()
    assert not (home / ".env").exists()


def test_set_and_unset(run, home):
    """The file has what was set, then no longer."""
    assert run("config", "set", "memory.memory_char_limit", "50").code == 0
    assert run("config", "set", "memory.overflow", "refuse").code == 0
    assert run("memory", "add", "x" * 51).code == 1
    assert json.loads(run("config", "unset", "memory.memory_char_limit", "--json").out)["removed"] is True
    assert run("memory", "add", "x" * 51).code == 0
    assert run("config", "path").out.strip() == str(home / "config.yaml")


def test_unknown_keys_in_the_file_are_warned(run, home):
    """On stderr, with the nearest name; the answer is unharmed."""
    home.mkdir()
    (home / "config.yaml").write_text("memory:\n  overflw: archive\n")
    ran = run("memory", "show", "--json")

    assert ran.code == 0
    assert "'overflow'" in ran.err
    json.loads(ran.out)


def test_secrets_come_from_standard_input_and_are_never_shown(run, home):
    """0600, and no echo."""
    ran = run("config", "secret", "MY_API_KEY", stdin=b"s3cret value\n")

    assert ran.code == 0
    assert "s3cret" not in ran.out + ran.err
    assert (home / ".env").read_text() == 'MY_API_KEY="s3cret value"\n'
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert run("config", "secret", "MY_API_KEY", stdin=b"\xff\n").code == 2
    assert run("config", "secret", "MY_API_KEY", stdin=b"two\nlines\n").code == 2


def test_profiles_are_separate_lives(run, home):
    """Created, used, cloned without secrets, renamed, deleted."""
    run("memory", "add", "at home")
    run("config", "secret", "A_KEY", stdin=b"x\n")
    assert run("profile", "create", "work").code == 0
    assert run("-p", "work", "memory", "show", "--json").out.count("at home") == 0
    assert run("profile", "use", "work").code == 0
    run("memory", "add", "at work")
    assert [row["active"] for row in json.loads(run("profile", "list", "--json").out)] == [False, True]

    assert run("profile", "clone", "default", "copy").code == 0
    assert "at home" in run("-p", "copy", "memory", "show").out
    assert json.loads(run("-p", "copy", "memory", "log", "--json").out)[0]["after"] == "at home"
    assert not (home / "profiles" / "copy" / ".env").exists()
    assert not (home / "profiles" / "copy" / "profiles").exists()

    assert run("profile", "rename", "work", "job").code == 0
    assert "at work" in run("memory", "show").out
    assert run("profile", "delete", "job").code == 2
    assert run("profile", "delete", "job", "--yes").code == 0
    assert "at home" in run("memory", "show").out


def test_an_export_has_everything_but_secrets(run, home, tmp_path):
    """One private zip, even when it is written inside the profile itself."""
    run("memory", "add", "at home")
    run("config", "secret", "A_KEY", stdin=b"x\n")
    file = home / "out.zip"
    assert run("profile", "export", "default", str(file)).code == 0

    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        assert archive.read("memories/MEMORY.md") == b"at home"
    assert "memories/ledger.db" in names
    assert not [name for name in names if ".env" in name or name.endswith((".lock", ".zip"))]
    assert file.stat().st_mode & 0o077 == 0
    assert run("profile", "export", "default", str(file)).code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("create", "Bad Name"), "lowercase"),
        (("create", "default"), "exists already"),
        (("use", "absent"), "kept profile list"),
        (("clone", "absent", "x"), "kept profile list"),
        (("rename", "default", "x"), "clone"),
        (("delete", "default", "--yes"), "home itself"),
        (("delete", "..", "--yes"), "lowercase"),
        (("crate", "x"), "'create'"),
    ],
)
def test_profile_mistakes_lead_on(run, arguments, words):
    """Exit 2 with the way out."""
    ran = run("profile", *arguments)

    assert ran.code == 2
    assert words in ran.err


def test_a_yaml_merge_is_read(run, home):
    """A section that takes its keys from another has no lines of its own for them; that is not a bug."""
    home.mkdir()
    (home / "config.yaml").write_text("base: &base\n  overflow: archive\nmemory:\n  <<: *base\n")

    shown = run("config", "show", "memory.overflow", "--json")
    assert json.loads(shown.out)["memory.overflow"]["value"] == "archive"
    assert "unknown setting 'base'" in shown.err


def test_a_value_may_begin_with_a_minus(run):
    """It is judged as a value, not taken for an option."""
    ran = run("config", "set", "memory.memory_char_limit", "-5")

    assert ran.code == 2
    assert "a whole number, greater than 0" in ran.err


def test_an_empty_secret_is_not_stored(run, home):
    """Whoever pipes nothing in made a mistake."""
    ran = run("config", "secret", "SOME_KEY", stdin=b"\n")

    assert (ran.code, "is empty" in ran.err) == (2, True)
    assert not (home / ".env").exists()


def test_the_path_answers_programs(run, home):
    """Whether the file is there, too."""
    assert json.loads(run("config", "path", "--json").out) == {"file": str(home / "config.yaml"), "exists": False}


def test_an_address_with_a_password_is_kept_with_the_secrets(run, home):
    """`config.yaml` is shared and shown; the last address that was set counts, wherever it was."""
    pytest.importorskip("psycopg")
    ran = run("config", "set", "storage.url", "postgresql://kept:s3cr3t@db/kept")
    shown = json.loads(run("config", "show", "storage.url", "--json").out)["storage.url"]

    assert "s3cr3t" not in ran.out + ran.err
    assert "has a password" in ran.err
    assert shown["value"] == "postgresql://kept:***@db/kept"
    assert "s3cr3t" in (home / ".env").read_text()
    assert (home / ".env").stat().st_mode & 0o77 == 0
    assert not (home / "config.yaml").exists() or "s3cr3t" not in (home / "config.yaml").read_text()
    run("config", "set", "storage.url", "postgresql://kept@db/other")
    assert "s3cr3t" not in (home / ".env").read_text()
    assert json.loads(run("config", "show", "storage.url", "--json").out)["storage.url"]["value"].endswith("/other")
    run("config", "set", "storage.url", "postgresql://kept:s3cr3t@db/kept")
    assert f"was removed in {home / '.env'}" in run("config", "unset", "storage.url").out.replace("\n", "")
    assert json.loads(run("config", "show", "storage.url", "--json").out)["storage.url"]["value"] == ""


def test_an_address_without_the_driver_names_what_to_install(run, home, monkeypatch):
    monkeypatch.setattr("wellkept.app.store_care.find_spec", lambda name: None)
    ran = run("config", "set", "storage.url", "postgresql://kept@db/kept")

    assert ran.code == 2
    assert "psycopg" in ran.err
    assert "[postgres]'" in ran.err
    assert not (home / "config.yaml").exists()
