"""The check of entries against real repositories: what is certain is said, and nothing else."""

import os
import subprocess

import pytest

from wellkept.projectfacts.check import START, Limits, Verdict, check_entries

from .conftest import prose


def verdict(repo, text, *, written=None, **limits):
    """Return the gravest verdict on an entry, and what it is now."""
    found = check_entries(repo.root, {text: written}, **limits).findings.get(text, ())
    return (found[0].verdict.value, found[0].now) if found else None


@pytest.fixture
def filled(repo):
    """A repository with a bit of everything."""
    repo.commit(
        {
            "src/app.py": prose("app"),
            "src/old.py": prose("old"),
            "infra/one/a.yml": prose("a"),
            "infra/one/b.yml": prose("b"),
            "Makefile": "test:\n\tpytest\n\nseed: test\n\tpython seed.py\n",
            "justfile": "dev:\n    serve\n",
            "package.json": '{"scripts": {"build": "vite build", "old": "x"}}',
            "uv.lock": '[[package]]\nname = "django"\nversion = "4.2.1"\n',
            "compose.yaml": 'services:\n  web:\n    ports:\n      - "8000:80"\n',
            "settings.toml": 'level = "info"\nworkers = 4\n',
            "pyproject.toml": '[project.scripts]\norchard = "orchard:main"\n',
            ".gitignore": "dist/\n",
        }
    )
    return repo


@pytest.mark.parametrize(("text", "expected"), [
    ("The app is src/app.py", "holds"),
    ("Tests run with make test", "holds"),
    ("`just dev` serves", "holds"),
    ("Build with npm run build", "holds"),
    ("We use Django 4.2", "holds"),
    ("The web port is 8000, see compose.yaml", "holds"),
    ("`workers = 4` in settings.toml", "holds"),
    ("`orchard serve` starts it", "holds"),
    ("Work on branch main", "holds"),
])  # fmt: skip
def test_what_is_there_holds(filled, text, expected):
    """Each kind of claim."""
    assert verdict(filled, text, written=filled.now) == (expected, None)


CHANGES = {
    "src/old.py": None,
    "Makefile": "test:\n\tpytest -q\n",
    "package.json": '{"scripts": {"build": "vite build"}}',
    "uv.lock": '[[package]]\nname = "django"\nversion = "5.0.2"\n',
    "compose.yaml": 'services:\n  web:\n    ports:\n      - "9000:80"\n',
    "settings.toml": 'level = "warning"\n',
    "pyproject.toml": "",
}


@pytest.mark.parametrize(("text", "expected"), [
    ("The reader is src/old.py", ("gone", None)),
    ("Data comes from make seed", ("gone", None)),
    ("`make test` is the gate", ("changed", None)),
    ("npm run old builds the old page", ("gone", None)),
    ("We use Django 4.2", ("differs", "5.0.2")),
    ("The web port is 8000, see compose.yaml", ("changed", None)),
    ('`level = "info"` in settings.toml', ("changed", None)),
    ("`workers = 4` in settings.toml", ("gone", None)),
    ("`orchard serve` starts it", ("gone", None)),
])  # fmt: skip
@pytest.mark.parametrize("is_packed", [False, True])
def test_what_a_commit_changed_is_said(filled, text, expected, is_packed):
    """Each kind of claim, whether its objects are loose or packed."""
    written = filled.now
    filled.commit(CHANGES)
    if is_packed:
        filled.git("gc", "-q")

    assert verdict(filled, text, written=written) == expected


def test_without_the_time_of_an_entry_the_whole_history_counts(filled):
    """What was there once, and is gone, is gone."""
    filled.commit(CHANGES)

    assert verdict(filled, "The reader is src/old.py") == ("gone", None)
    assert verdict(filled, "Data comes from make seed") == ("gone", None)


def test_renames_are_followed(filled):
    """Of a file, with later changes and a second rename; of a folder."""
    written = filled.now
    filled.move("src/old.py", "src/io/reader.py")
    filled.commit({"src/io/reader.py": prose("old") + "one line more\n"})
    filled.move("src/io/reader.py", "src/readers/csv.py")
    filled.move("infra/one", "infra/two")

    assert verdict(filled, "The reader is src/old.py", written=written) == ("renamed", "src/readers/csv.py")
    assert verdict(filled, "infra/one/ has the hosts", written=written) == ("renamed", "infra/two")
    assert verdict(filled, "see infra/one/a.yml") == ("renamed", "infra/two/a.yml")


def test_a_renamed_target_is_found_by_its_recipe(filled):
    """Only if there is one with the same recipe."""
    filled.commit({"Makefile": "test:\n\tpytest\n\nfill: test\n\tpython seed.py\n"})

    assert verdict(filled, "make seed fills the database") == ("renamed", "make fill")


@pytest.mark.parametrize("text", [
    "src/never.py has the rules",
    "The client/server protocol is HTTP/2",
    "Build output is dist/app.js",
    "src/old.py was removed",
    "use src/app.py instead of src/old.py",
    "There is no src/old.py",
    "Secrets are in ~/src/old.py and /src/old.py",
    "See https://orchard.example/src/old.py",
    "../src/old.py",
    "Ana likes pears",
    "make never works",
    "rails 4.2 is what we left",
])  # fmt: skip
def test_nothing_is_said_without_evidence(filled, text):
    """Never that something is gone."""
    written = filled.now
    filled.commit({"src/old.py": None, "dist/app.js": "x"})
    found = check_entries(filled.root, {text: written}).findings.get(text, ())

    assert Verdict.GONE not in {finding.verdict for finding in found}


def test_a_file_that_git_ignores_is_not_gone(filled):
    """It was committed by mistake once, and is built by whoever needs it."""
    filled.write({"dist/app.js": prose("app")})
    filled.git("add", "-f", "dist/app.js")
    filled.commit()
    filled.commit({"dist/app.js": None})

    assert verdict(filled, "The build writes dist/app.js") is None


def test_what_another_main_branch_has_is_not_gone(filled):
    """The person works on a branch for a while."""
    filled.git("checkout", "-qb", "trial")
    filled.commit({"src/old.py": None})
    filled.git("checkout", "-q", "main")
    filled.day += 1
    filled.commit({"src/app.py": prose("app", 21)})
    filled.git("checkout", "-q", "trial")

    assert verdict(filled, "The reader is src/old.py") is None


def test_an_unfinished_merge_says_nothing(filled):
    """The files are those of a step of some work."""
    filled.commit({"src/old.py": None})
    (filled.root / ".git" / "MERGE_HEAD").write_text("0" * 40)

    assert verdict(filled, "The reader is src/old.py") is None


def test_a_change_that_is_not_committed(filled):
    """It is said, and marked: a removal that git knows of, or a rename that is staged."""
    (filled.root / "src/old.py").unlink()
    removed = check_entries(filled.root, {"see src/old.py": None}).findings["see src/old.py"][0]
    filled.git("checkout", "-q", "src/old.py")
    filled.git("mv", "src/old.py", "src/new.py")
    moved = check_entries(filled.root, {"see src/old.py": None}).findings["see src/old.py"][0]

    assert (removed.verdict, removed.is_committed) == (Verdict.GONE, False)
    assert (moved.verdict, moved.now, moved.is_committed) == (Verdict.RENAMED, "src/new.py", False)


def test_a_file_that_changed_since_is_said_in_a_thorough_check_only(filled):
    """At the start of a session it would be noise."""
    written = filled.now
    filled.commit({"src/app.py": prose("app", 25)})

    assert verdict(filled, "The app is src/app.py", written=written) == ("changed", None)
    assert verdict(
        filled, "The app is src/app.py", written=written, limits=Limits(1.0, START.steps, is_thorough=False)
    ) == ("holds", None)


def test_branches(filled):
    """One that was merged and deleted, and one that was renamed, as far as this clone knows of them."""
    filled.git("checkout", "-qb", "feature/pay")
    filled.commit()
    filled.git("checkout", "-q", "main")
    filled.git("branch", "-qD", "feature/pay")
    filled.git("checkout", "-qb", "develop")
    filled.git("branch", "-m", "next")

    assert verdict(filled, "Payments are on the branch feature/pay") == ("gone", None)
    assert verdict(filled, "The branch develop is for Ana") == ("renamed", "branch next")
    assert verdict(filled, "Somewhere is a branch feature/other") is None


def test_the_default_branch_of_the_remote(filled, tmp_path):
    """As it was when the clone was made."""
    subprocess.run(["git", "clone", "-q", str(filled.root), str(tmp_path / "clone")], check=True)
    filled.root = tmp_path / "clone"

    assert verdict(filled, "The default branch is main") == ("holds", None)
    assert verdict(filled, "The default branch is develop") == ("changed", None)


def test_a_folder_without_git_confirms_and_denies_nothing(tmp_path):
    """What is not there may never have been."""
    (tmp_path / "app.py").write_text("x")
    found = check_entries(tmp_path, {"app.py": None, "other.py": None}).findings

    assert [finding.verdict for finding in found["app.py"]] == [Verdict.HOLDS]
    assert "other.py" not in found


def test_a_shallow_clone_says_nothing_about_what_it_lacks(filled, tmp_path):
    """Its oldest commit names a parent that is not there."""
    filled.commit({"src/old.py": None})
    filled.commit()
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{filled.root}", str(tmp_path / "clone")], check=True)
    filled.root = tmp_path / "clone"

    assert verdict(filled, "The reader is src/old.py") is None
    assert verdict(filled, "The app is src/app.py") == ("holds", None)


# hostile repositories


def test_nothing_outside_is_read_through_links(filled, tmp_path):
    """Neither a linked file, nor what is behind a linked folder, nor a linked .git."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.py").write_text("x")
    (filled.root / "linked").symlink_to(outside)
    (filled.root / "secret.py").symlink_to(outside / "secret.py")
    other = tmp_path / "other"
    other.mkdir()
    (other / ".git").symlink_to(filled.root / ".git")

    assert verdict(filled, "linked/secret.py") is None
    assert verdict(filled, "secret.py") is None
    filled.root = other
    assert verdict(filled, "src/old.py") is None


def test_a_git_file_that_names_a_folder_elsewhere_is_not_followed(filled, tmp_path):
    """That of a linked worktree neither: its history is outside of the folder."""
    filled.commit({"src/old.py": None})
    filled.git("worktree", "add", "-q", str(tmp_path / "tree"))
    filled.root = tmp_path / "tree"

    assert verdict(filled, "src/old.py") is None
    assert verdict(filled, "src/app.py") == ("holds", None)


def test_settings_and_hooks_of_a_repository_never_run(filled, tmp_path):
    """Nothing is started at all."""
    mark = tmp_path / "ran"
    for key in ("core.fsmonitor", "core.pager", "diff.external", "core.sshCommand", "gpg.program", "alias.log"):
        filled.git("config", key, f"touch {mark}")
    for name in ("post-index-change", "reference-transaction", "post-checkout"):
        hook = filled.root / ".git" / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    (filled.root / ".gitattributes").write_text("* filter=x diff=x\n")

    assert verdict(filled, "src/old.py") == ("holds", None)
    assert not mark.exists()


def test_damage_is_silence(filled):
    """Whatever byte of the repository is wrong."""
    filled.commit({"src/old.py": None})
    filled.git("gc", "-q")
    pack = next((filled.root / ".git" / "objects" / "pack").glob("*.pack"))
    whole = pack.read_bytes()
    pack.chmod(0o644)
    for place in range(12, len(whole), max(1, len(whole) // 60)):
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        assert verdict(filled, "src/old.py") in {None, ("gone", None), ("renamed", None)}
    for end in (0, 13, len(whole) // 2):
        pack.write_bytes(whole[:end])
        assert verdict(filled, "src/old.py") is None


def test_a_huge_tree_is_not_checked(filled):
    """The head of the index says how many files there are."""
    index = filled.root / ".git" / "index"
    data = index.read_bytes()
    index.write_bytes(data[:8] + (100_001).to_bytes(4, "big") + data[12:])

    assert verdict(filled, "src/app.py") is None


def test_a_budget_ends_a_check(filled):
    """What would take longer is left out."""
    assert verdict(filled, "src/app.py", limits=Limits(1.0, 0, is_thorough=False)) is None


def test_a_pipe_and_an_odd_name_are_harmless(filled):
    """A pipe is not opened, and a name without a meaning in UTF-8 is a name."""
    os.mkfifo(filled.root / "pipe.py")
    (filled.root / "src" / os.fsdecode(b"\xff\xfe.py")).write_text("x")
    filled.git("add", "src")
    filled.commit({"src/old.py": None})

    assert verdict(filled, "pipe.py") is None
    assert verdict(filled, "src/old.py") == ("gone", None)


def test_what_was_remembered_is_used_at_the_start_of_a_session(filled):
    """With it, a deep history costs no more than a short one."""
    filled.commit({"src/old.py": None})
    for _ in range(30):
        filled.commit()
    text = "The reader is src/old.py"
    little = Limits(5.0, 100, is_thorough=False)
    thorough = check_entries(filled.root, {text: None})
    filled.commit({"src/app.py": prose("app", 22)})

    assert check_entries(filled.root, {text: None}, little).findings == {}
    found = check_entries(filled.root, {text: None}, little, remembered=thorough.remembered)
    assert found.findings == thorough.findings
