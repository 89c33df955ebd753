"""A forget that is killed at any write leaves the old state, or the next command completes it."""

import shutil
import sys
from pathlib import Path

import pytest
from tests import forks

from wellkept.app import open_app
from wellkept.core.ids import SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.forgetting import forget
from wellkept.memory.page import Add, Author, Remove, Target
from wellkept.providers.base import StartContext
from wellkept.providers.holographic import HolographicProvider
from wellkept.skills.changes import Author as SkillAuthor
from wellkept.skills.changes import Create, Edit
from wellkept.skills.editor import SkillEditor

KILLER = Path(__file__).with_name("forget_killer.py")
WORD = "quixotopia"
STEPS = f"---\nname: go\ndescription: Go to {WORD}. Use when asked.\n---\n\n# Steps\n\n1. Walk\n2. See {WORD}\n"


def fill(home):
    """Put the word where each step of a forget finds it."""
    app = open_app(str(home))
    space = app.owner
    for name in ("a", "b"):
        space.sessions.create(Session(SessionId(name * 14), "cli", 1.0), system_prompt=f"you know {WORD}")
        asked = Message(Role.USER, f"I like {WORD} {name}")
        space.sessions.append(SessionId(name * 14), [NewMessage(asked, 1.0, Origin.PERSON)])
    space.memory.apply(Target.MEMORY, Add(f"likes {WORD}"), Author())
    space.memory.apply(Target.USER, Add(f"was in {WORD}"), Author())
    space.memory.apply(Target.USER, Remove(f"was in {WORD}"), Author())
    space.approvals.stage(Target.USER, [Add(f"went to {WORD}")], Author(), why="inferred")
    editor = SkillEditor(space.skill_tools.library)
    editor.apply(Create("go", STEPS), SkillAuthor("person"))
    editor.apply(Edit("go", STEPS.replace("Walk", "Run")), SkillAuthor("person"))
    provider = HolographicProvider()
    provider.initialize("s", **StartContext(kept_home=str(home)).keywords())
    provider.on_memory_write("add", "user", f"likes {WORD}", {"ledger_id": 1})
    provider.shutdown()
    app.close()
    (home / "state.db.damaged-1").write_text(WORD)
    (home / "SOUL.md").write_text(f"kind\n{WORD}\n")


def holding(home):
    files = (path for path in sorted(home.rglob("[!.]*")) if path.is_file())
    return [path.relative_to(home).as_posix() for path in files if WORD.encode() in path.read_bytes().lower()]


def kill(home, number):
    done = forks.run(
        [sys.executable, str(KILLER), str(home), WORD, str(number)], capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def finish(home):
    """What every command does first."""
    app = open_app(str(home))
    done = forget.finish_interrupted(app.caller())
    app.close()
    return done


def check(home, number, before):
    kill(home, number)
    interrupted = any((home / "forgotten" / "unfinished").glob("[!.]*"))
    held = holding(home)
    assert not [name for name in held if name.startswith("forgotten/")], number

    finished = finish(home)

    if interrupted:
        assert finished == 1, number
        assert holding(home) == [], number
    else:
        assert finished == 0
        assert {name.removesuffix("-wal") for name in held} >= before or held == [], number
    assert finish(home) == 0


@pytest.fixture
def filled(tmp_path):
    home = tmp_path / "filled"
    fill(home)
    return home


def spread(total, points):
    return sorted({1 + number * (total - 1) // (points - 1) for number in range(points)})


@pytest.mark.parametrize("points", [3, pytest.param(10_000, marks=[pytest.mark.heavy, pytest.mark.timeout(3_600)])])
def test_a_killed_forget_is_completed_by_the_next_command(tmp_path, filled, points):
    """Killed before its note is written, nothing is changed; after that, everything is removed in the end."""
    counted = tmp_path / "counted"
    shutil.copytree(filled, counted)
    total, complete = kill(counted, 0)
    before = set(holding(filled))
    assert complete == "True"
    assert holding(counted) == []
    assert {"state.db", "holographic.db", "memories/ledger.db", "skills/go/SKILL.md"} <= before

    for number in spread(int(total), min(points, int(total))):
        home = tmp_path / f"killed-{number}"
        shutil.copytree(filled, home)
        check(home, number, before)
        shutil.rmtree(home)
