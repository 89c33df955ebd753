"""Privacy: after `forget`, no byte of a marker is in any file of the home, at any provider or in any later prompt."""

import base64
import gzip
import json
import secrets
import shutil

import pytest

from wellkept.app import open_app
from wellkept.app.places import find_place
from wellkept.core.ids import SessionId, UserId
from wellkept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, TextPart, ToolCall
from wellkept.llm.scripted import Says, call
from wellkept.memory.page import Add, Author, Target
from wellkept.testing.loopback_servers import LoopbackOpenAI

STEPS = """---
name: {name}
description: Brew tea the way {word} does. Use when asked.
---

# Steps

1. Boil water
2. Ask {word} for the leaves
3. Pour
"""


@pytest.fixture
def marker():
    return f"Zq{secrets.token_hex(6)}Ünïk"


def files_of(home):
    return sorted(path for path in home.rglob("*") if path.is_file())


def holding(home, marker):
    """Return the files whose bytes hold the marker: plain, escaped, in any case, compressed."""
    forms = {marker, marker.lower(), marker.upper(), marker.casefold()}
    wanted = {form.encode(code) for form in forms for code in ("utf-8", "utf-16-le", "utf-16-be")}
    wanted |= {json.dumps(form)[1:-1].encode() for form in forms}
    found = []
    for path in files_of(home):
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data += gzip.decompress(data)
        if any(form in data for form in wanted):
            found.append(path.relative_to(home).as_posix())
    return found


def talk_with_everything(home, marker):
    """Store the marker in every column of a conversation."""
    app = open_app(str(home))
    sessions = app.owner.sessions
    name = SessionId("privacy-talk-0001")
    asks = Message(Role.ASSISTANT, "", tool_calls=(ToolCall("c1", "search", json.dumps({"q": marker})),))
    sessions.create(Session(name, "cli", 1.0, title=f"About {marker}"), system_prompt=f"You know {marker}.")
    sessions.append(
        name,
        [
            NewMessage(Message(Role.USER, f"my friend is called {marker}"), 1.0, Origin.PERSON),
            NewMessage(asks, 2.0, Origin.MODEL),
            NewMessage(Message(Role.TOOL, f"found {marker}", tool_call_id="c1"), 3.0, Origin.TOOL),
            NewMessage(Message(Role.ASSISTANT, "noted", reasoning=f"so it is {marker}"), 4.0, Origin.MODEL),
            NewMessage(Message(Role.USER, "hello"), 5.0, Origin.PERSON, api_content=f"hello <memory>{marker}"),
        ],
    )
    picture = base64.b64encode(b"\x89PNG" + bytes(3_000) + marker.encode() + bytes(3_000)).decode()
    drawn = Message(Role.USER, (TextPart("look"), ImagePart("image/png", picture)))
    summary = NewMessage(Message(Role.USER, f"Summary: met {marker}"), 7.0, Origin.SYNTHETIC)
    numbers = sessions.append(name, [NewMessage(drawn, 6.0, Origin.PERSON), summary])
    sessions.add_node(name, depth=0, text=f"they met {marker}", children=numbers)
    sessions.note(name, "todo", f"call {marker}")
    app.owner.approvals.stage(Target.USER, [Add(f"Trusts {marker}")], Author(), why=f"said {marker}")
    app.close()


@pytest.fixture
def full_home(kept, home, work, marker):
    """A home in which every feature was used, with the marker in each place that can hold text."""
    kept("providers", "setup", "holographic", "--yes")
    (home / "holographic.json").write_text(json.dumps({"auto_extract": True}))
    kept("config", "set", "skills.creation_nudge_interval", "0")
    with LoopbackOpenAI(
        [Says("Yes.", (call("memory", action="add", target="memory", content=f"Likes {marker}"),)), Says("ok")]
    ) as model:
        kept("run", f"Remember that I like {marker}", "--model", "openai/loopback-model", env=model.environment)
    talk_with_everything(home, marker)
    kept("memory", "add", f"Knows {marker} well")
    kept("memory", "add", f"Old friend of {marker}")
    kept("memory", "replace", f"Old friend of {marker}", "Has friends")
    kept("memory", "add", f"Gone {marker}")
    kept("memory", "remove", f"Gone {marker}")
    kept("tool", "fact_store", json.dumps({"action": "add", "content": f"{marker} lives in Graz", "tags": marker}))
    for name in ("brew-tea", "old-steps"):
        (work / "draft.md").write_text(STEPS.format(name=name, word=marker))
        assert kept("skills", "create", name, "-f", "draft.md").code == 0
    support = home / "skills" / "brew-tea" / "references"
    support.mkdir()
    (support / "notes.md").write_text(f"one\ntwo {marker}\nthree\n")
    kept(
        "tool",
        "skill_manage",
        json.dumps(
            {"action": "patch", "name": "brew-tea", "old_string": "3. Pour", "new_string": f"3. Pour for {marker}"}
        ),
    )
    app = open_app(str(home))
    from wellkept.skills.curator.backup import Backups
    from wellkept.skills.editor import SkillEditor

    Backups(SkillEditor(app.owner.skill_tools.library), app.clock).take()
    app.close()
    kept("curator", "archive", "old-steps")
    kept("skills", "list")
    damage_and_copies(home, marker)
    return home


def damage_and_copies(home, marker):
    """Leave what crashes, repairs, other programs and people leave in a home."""
    shutil.copy(home / "state.db", home / "state.db.damaged-20260101")
    (home / "state.db.salvaged-20260101").write_bytes(b"\0" * 100 + marker.encode())
    (home / "memories" / "MEMORY.md.bak.7").write_text(f"Likes {marker}", encoding="utf-16")
    (home / "memories" / ".MEMORY.md.kept-tmp-1-ab").write_text(marker)
    (home / "memories" / "projects").mkdir()
    (home / "memories" / "projects" / "kept.md").write_text(f"Uses make\n§\nOwned by\n{marker}\n§\nHas tests")
    (home / "pending" / "skills" / "rejected").mkdir(parents=True)
    (home / "pending" / "skills" / "rejected" / "00000000.json").write_text(json.dumps({"change": marker}))
    (home / "chat_history").write_text(f"\n# 2026-01-01\n+about {marker}\n")
    (home / "logs").mkdir(exist_ok=True)
    with (home / "logs" / "kept.log").open("a") as log:
        log.write(f"before\nWARNING provider said {marker}\nafter\n")
    (home / "SOUL.md").write_text(f"You are kind.\nYou adore {marker}.\n")
    (home / "spool").mkdir()
    (home / "spool" / "1.json").write_text(json.dumps({"client": "x", "prompt": marker, "answer": ""}))
    (home / "spool" / "2.json").write_text(json.dumps({"client": "x", "path": "y"}))
    (home / "skills" / ".curator" / "plans").mkdir(exist_ok=True, parents=True)
    (home / "skills" / ".curator" / "plans" / "p1.json").write_text(json.dumps({"reason": marker}))
    (home / "skills" / ".hub" / "quarantine" / "x").mkdir(parents=True)
    (home / "skills" / ".hub" / "quarantine" / "x" / "SKILL.md").write_text(marker)


def test_no_byte_of_a_forgotten_marker_is_left(kept, full_home, marker):
    """Every place held it before, none afterwards, and the next turn neither sees nor stores it."""
    before = holding(full_home, marker)
    expected = {
        "state.db", "holographic.db", "memories/ledger.db", "memories/MEMORY.md", "SOUL.md", "chat_history",
        "spool/1.json", "state.db.damaged-20260101", "state.db.salvaged-20260101", "logs/kept.log",
        "memories/MEMORY.md.bak.7", "skills/brew-tea/SKILL.md", "skills/brew-tea/references/notes.md",
        "skills/.archive/old-steps/SKILL.md", "skills/.cache.json", "skills/.curator/plans/p1.json",
        "skills/.hub/quarantine/x/SKILL.md", "pending/skills/rejected/00000000.json",
        "memories/projects/kept.md",
    }  # fmt: skip
    assert expected <= {name.removesuffix("-wal") for name in before}
    assert any(name.startswith("skills/.versions/") for name in before)
    assert any(name.startswith("pending/memory/") for name in before)
    assert any(name.startswith("skills/.curator/backups/") for name in before)

    ran = kept("forget", "--query", marker.upper(), "--yes", "--json")

    assert ran.code == 0, (ran.out, ran.err)
    assert ran.json["complete"]
    assert marker.casefold() not in (ran.out + ran.err).casefold()
    assert holding(full_home, marker) == []
    assert (full_home / "spool" / "2.json").exists()
    assert (full_home / "memories" / "projects" / "kept.md").read_text() == "Uses make\n§\nHas tests"
    assert "before\n" in (full_home / "logs" / "kept.log").read_text()
    assert "1. Boil water" in (full_home / "skills" / "brew-tea" / "SKILL.md").read_text()
    with LoopbackOpenAI([Says("I do not know.")]) as model:
        asked = "Who is my friend, what do I like, and how do I brew tea?"
        kept("run", asked, "--model", "openai/loopback-model", env=model.environment)
        sent = json.dumps([request.body for request in model.requests], ensure_ascii=False)
    assert asked in sent
    assert marker.casefold() not in sent.casefold()
    assert holding(full_home, marker) == []


def test_every_file_of_a_full_home_is_in_the_table_of_places(kept, full_home):
    """A file that matches no row would be a place that forget and backups do not know."""
    kept("forget", "--query", "boil", "--yes")

    unknown = [
        name for path in files_of(full_home) if find_place(name := path.relative_to(full_home).as_posix()) is None
    ]
    assert unknown == []


SECRET_TALK = "the plan is to meet at the old lighthouse behind {word} at nine in the evening"


def store_talk(home, word, *, name, source, user=None, project=None):
    app = open_app(str(home))
    space = app.owner if user is None else app.space(UserId(user))
    text = SECRET_TALK.format(word=word)
    space.sessions.create(Session(SessionId(name), source, 1.0, project=project), system_prompt="")
    space.sessions.append(SessionId(name), [NewMessage(Message(Role.USER, text), 1.0, Origin.PERSON)])
    space.memory.apply(Target.MEMORY, Add(f"meets {word}"), Author(session_id=SessionId(name)))
    app.close()
    return text


def test_a_forgotten_session_takes_its_copies_with_it(kept, home, marker):
    """Its entries, its facts, set-aside databases and logs; a skill that repeats it is named and stays."""
    kept("providers", "setup", "holographic", "--yes")
    text = store_talk(home, marker, name="talk-of-the-lighthouse", source="cli")
    kept("run", "hello")
    shutil.copy(home / "state.db", home / "state.db.damaged-1")
    (home / "state.db.damaged-2").write_bytes(b"nothing of it")
    (home / "logs").mkdir(exist_ok=True)
    (home / "logs" / "kept.log").write_text(f"a\n{text}\nb\n")
    (home / "skills" / "go").mkdir(parents=True)
    (home / "skills" / "go" / "notes.md").write_text(text)
    assert "holographic.db" in holding(home, marker)

    shown = kept("forget", "--session", "talk-of-the-lighthouse", "--dry-run")
    assert "state.db.damaged-1" in shown.out
    assert len(holding(home, marker)) > 3
    ran = kept("forget", "--session", "talk-of-the-lighthouse", "--yes", "--json")

    assert ran.code == 0, ran.err
    assert holding(home, marker) == ["skills/go/notes.md"]
    assert ran.json["copies_not_touched"] == ["state.db.damaged-2", "skills/go/notes.md"]
    assert (home / "logs" / "kept.log").read_text().splitlines()[::2] == ["a", "b"]


def test_everything_of_one_client_is_forgotten(kept, home, marker):
    """By the source of its sessions, in one project or in all, with what waits in the spool."""
    for number, project in enumerate(["/work/a", "/work/b"]):
        store_talk(home, f"{marker}{number}", name=f"captured-session-{number}", source="claude-code", project=project)
    store_talk(home, "tea", name="own-session-0001", source="cli")
    (home / "spool").mkdir()
    turn = {"session": "s", "turn": None, "project": "/work/b", "prompt": "p", "answer": "a", "said_at": 1.0}
    (home / "spool" / "1.json").write_text(json.dumps({"client": "claude-code", **turn}))
    (home / "spool" / "2.json").write_text(json.dumps({"client": "codex", **turn}))

    (home / "connect" / "prompts").mkdir(parents=True)
    (home / "connect" / "prompts" / "claude-code-00.json").write_text(json.dumps({"prompt": "p", "turn": None}))

    unknown = kept("forget", "--source", "gemini", "--yes", "--json")
    lonely = kept("forget", "--project", "/work/a", "--session", "x", "--json")
    one = kept("forget", "--source", "claude-code", "--project", "/work/a", "--yes", "--json")
    assert (unknown.code, lonely.code) == (2, 2)
    assert set(unknown.json) >= {"error", "remedy"}
    assert (one.code, one.json["sessions"]) == (0, 1)
    assert holding(home, f"{marker}0") == []
    assert holding(home, f"{marker}1") != []
    rest = kept("forget", "--source", "claude-code", "--yes", "--json")

    assert (rest.code, rest.json["sessions"], rest.json["queued_writes"]) == (0, 1, 2)
    assert holding(home, marker) == []
    assert [path.name for path in (home / "spool").iterdir()] == ["2.json"]
    assert list((home / "connect" / "prompts").iterdir()) == []
    assert "own-session-0001" in kept("sessions", "list").out


def test_the_copy_of_another_user_is_theirs(kept, home, marker):
    """Neither touched nor mentioned; the shared databases are then verified by their rows."""
    kept("user", "create", "ann")
    store_talk(home, marker, name="session-of-the-owner", source="cli")
    store_talk(home, marker, name="session-of-ann-0001", source="cli", user="ann")

    ran = kept("forget", "--query", marker, "--yes", "--json")

    assert ran.code == 0, ran.err
    assert ran.json["databases_verified_by"] == "rows"
    assert "ann" not in ran.out
    assert "users/ann/memories/MEMORY.md" in holding(home, marker)
    assert marker in kept("--as", "ann", "sessions", "show", "session-of-ann-0001").out
    assert marker not in kept("sessions", "search", marker, "--json").out.replace(marker, "", 1)
    again = kept("--as", "ann", "forget", "--query", marker, "--yes", "--json")
    assert again.code == 0, again.err
    assert holding(home, marker) == []


def test_what_cannot_be_reached_is_named_and_the_exit_code_says_so(kept, home, marker):
    """Settings, exports in the home, other profiles, archives that cannot be read."""
    store_talk(home, marker, name="session-of-the-owner", source="cli")
    (home / "export.jsonl").write_text(marker)
    (home / "config.yaml").write_text(f"# {marker}\n")
    (home / "cut.gz").write_bytes(gzip.compress(b"x" * 1_000)[:20])
    (home / "profiles" / "work").mkdir(parents=True)
    (home / "profiles" / "work" / "SOUL.md").write_text(marker)

    ran = kept("forget", "--query", marker, "--yes")
    left = kept("forget", "--query", marker, "--yes", "--json").json

    assert ran.code == 1
    assert "still in export.jsonl" in ran.out
    assert "still in config.yaml" in ran.out
    assert "cut.gz" in ran.out
    assert "profiles/work/SOUL.md" in ran.out
    assert "verified" not in ran.out
    assert not left["complete"]
    assert [file["path"] for file in left["files_left"]] == ["config.yaml", "cut.gz", "export.jsonl"]


def test_a_skill_that_is_named_like_the_words_is_named(kept, home, work):
    """Nobody but a person can choose another name."""
    (work / "draft.md").write_text(STEPS.format(name="zebracorn-steps", word="a friend"))
    kept("skills", "create", "zebracorn-steps", "-f", "draft.md")

    ran = kept("forget", "--query", "zebracorn", "--yes", "--json")

    assert ran.code == 1
    named = {file["path"]: file["remedy"] for file in ran.json["files_left"]}
    assert "rename it" in named["skills/zebracorn-steps/SKILL.md"]
    assert not [name for name in ran.json["files"] if name.endswith("SKILL.md")]


def test_a_note_without_its_key_is_removed_with_a_warning(kept, home):
    """The person learns that the forget has to be run again."""
    kept("memory", "add", "likes tea")
    (home / "forgotten" / "unfinished").mkdir(parents=True)
    (home / "forgotten" / "unfinished" / "owner").write_bytes(b"sealed by a lost key")

    first, second = kept("memory", "show"), kept("memory", "show")

    assert "cannot be completed" in first.err
    assert (first.code, second.err) == (0, "")
    assert not (home / "forgotten" / "unfinished").exists()


def test_no_file_of_the_home_has_a_credential_that_was_said(kept, home):
    """Neither the message nor what the assistant without a model remembers of it."""
    password, middle = "onlylettershere", "Cl2FMQ"  # in two pieces: programs that look for keys read this file too
    token = f"MTk4NjIyNDgzNDcxOTI1MjQ4.{middle}.ZnCjm1XVW7vRze4b7Cq4se7kKWs"

    for said in (f"I use this: password={password} in my work", f"My bot has {token} as its key"):
        kept("run", said)

    assert (holding(home, password), holding(home, token)) == ([], [])
