"""The table of operations that the chaos tests end and fail at every call."""

import json
import shutil
from pathlib import Path

from chaos_laboratory import Operation

TRANSCRIPTS = Path(__file__).parent.parent / "corpora" / "transcripts"

SKILL = "# {0}\n\n## Steps\n\n1. Do {0} carefully, and look at what it shows.\n"
MESSAGES = ("sessions", "export")
PAGES = ("memory", "show", "--json")
EDITS = ("memory", "log", "--json")
SKILLS = ("skills", "list", "--json")
FACTS = ("tool", "fact_store", '{"action": "list"}')


def write_skill_texts(laboratory):
    for name in ("alpha", "beta", "gamma"):
        (laboratory.files / f"{name}.md").write_text(SKILL.format(name))
        (laboratory.files / f"{name}2.md").write_text(SKILL.format(f"the new {name}"))


def write_conversations(laboratory):
    """Write an export of three sessions, the second a compaction of the first, which carries its last messages."""
    lines = [{"type": "session", "session_id": "one", "source": "cli", "started": 1_700_000_000.0, "title": "The one"}]
    lines += [
        {
            "session_id": "one",
            "id": number,
            "role": "user" if number % 2 else "assistant",
            "content": f"message {number} about herons",
            "timestamp": 1_700_000_000.0 + number,
            **({"state": "compacted"} if number <= 4 else {}),
        }
        for number in range(1, 7)
    ]
    lines.append({
        "type": "session", "session_id": "two", "source": "cli", "started": 1_700_000_100.0, "parent_session_id": "one",
        "link": "compression", "carried": [7, 5, 6], "context_from": 7,
    })  # fmt: skip
    lines += [
        {"session_id": "two", "id": 7, "role": "user", "content": "summary of the herons", "origin": "synthetic", "timestamp": 1_700_000_100.0},
        {"session_id": "two", "id": 8, "role": "user", "content": "what about owls", "timestamp": 1_700_000_101.0},
        {"session_id": "two", "id": 9, "role": "assistant", "content": "owls are awake", "timestamp": 1_700_000_102.0},
        # a session without a line of its own: its later messages give it an earlier start and a title
        {"session_id": "three", "id": 10, "role": "user", "content": "late words", "timestamp": 1_700_000_300.0},
        {"session_id": "three", "id": 11, "role": "assistant", "content": "early words", "timestamp": 1_700_000_200.0, "title": "The third"},
    ]  # fmt: skip
    (laboratory.files / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_editor(laboratory):
    """Write the editor that `$EDITOR` names: it changes the page that it is given."""
    editor = laboratory.files / "editor"
    editor.write_text('#!/bin/sh\nsed -i "s/first/changed/" "$1"\n')
    editor.chmod(0o755)


def write_page(laboratory):
    (laboratory.files / "page.md").write_text("Ann has a heron.\n§\nAnn has an owl.\n§\nAnn has a crow.\n")


def write_old_database(laboratory):
    """Write a database as the first version made it, so that opening it runs every later migration."""
    from wellkept.storage.files import APPLICATION_ID
    from wellkept.storage.sqlite import Database, state_migrations

    database = Database(laboratory.home / "state.db", application_id=APPLICATION_ID, migrations=state_migrations()[:2])
    with database.writing() as connection:
        connection.execute(
            "INSERT INTO sessions (id, source, started, user_id, message_count) VALUES ('old', 'cli', 1700000000.0, 'owner', 1)"
        )
        connection.execute(
            "INSERT INTO messages (session_id, role, content, timestamp, origin) VALUES ('old', 'user', 'an old word', 1700000001.0, 'person')"
        )
    database.close()


def damage_database(laboratory):
    """Overwrite one leaf page of the messages, so that a repair has to salvage the rest and to swap the file."""
    import apsw

    lines = [
        {"session_id": "long", "role": "user", "content": f"word{number} " * 60, "timestamp": 1_700_000_000.0 + number}
        for number in range(40)
    ]
    (laboratory.files / "long.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert laboratory.kept("sessions", "import", "{files}/long.jsonl").code == 0
    database = laboratory.home / "state.db"
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    query = "SELECT pageno, pgsize FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY pageno"
    pages = connection.execute(query).fetchall()
    connection.close()
    number, size = pages[len(pages) // 2]
    with database.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(b"\xee" * size)


def write_package(laboratory):
    folder = laboratory.files / "package" / "delta"
    (folder / "references").mkdir(parents=True, exist_ok=True)
    head = "---\nname: delta\ndescription: Does delta. Use when delta is asked for.\n---\n\n"
    (folder / "SKILL.md").write_text(head + SKILL.format("delta"))
    (folder / "references" / "notes.md").write_text("Notes on delta.\n")


def write_client_home(laboratory):
    """Write what Claude Code keeps: conversations, a memory file and a skill."""
    home = laboratory.files / "claude"
    shutil.copytree(TRANSCRIPTS / "claude-code", home, dirs_exist_ok=True)
    (home / "CLAUDE.md").write_text("# Ann\n\n- Ann has a heron.\n- Ann likes owls.\n")
    write_package(laboratory)
    shutil.copytree(laboratory.files / "package", home / "skills", dirs_exist_ok=True)


def note_import(laboratory):
    """Remember the id of the newest import, so that it can be taken back."""
    laboratory.words["{import}"] = json.loads(laboratory.kept("import", "list", "--json").out)[0]["import_id"]


def keep_backup_name(laboratory):
    """Change every skill after the backup, so that a rollback has several things to restore."""
    for name in ("alpha", "beta", "gamma"):
        content = (laboratory.home / "skills" / name / "SKILL.md").read_text()
        answer = laboratory.kept(
            "tool", "skill_manage", json.dumps({"action": "edit", "name": name, "content": content + "\nMore.\n"})
        )
        assert answer.code == 0, answer


def make_backups_folder(laboratory):
    (laboratory.home / "backups").mkdir()


def make_backup(laboratory):
    """Back up a home with a page, skills and conversations, and remove the home."""
    write_skill_texts(laboratory)
    write_conversations(laboratory)
    made = [("memory", "add", "a fact of the backup"), *CREATE[:2], IMPORT, ("user", "create", "ann"),
            ("--as", "ann", "memory", "add", "a fact of ann"), ("backup", "{files}/home.tar.gz", "--overwrite")]  # fmt: skip
    for words in made:
        answer = laboratory.kept(*words)
        assert answer.code == 0, answer
    shutil.rmtree(laboratory.home)


CREATE = tuple(
    ("skills", "create", name, "--description", f"Does {name}. Use for {name}.", "--file", f"{{files}}/{name}.md")
    for name in ("alpha", "beta", "gamma")
)
IMPORT = ("sessions", "import", "{files}/lines.jsonl")
CONSTANTS = {"wellkept.sessions.rows.transfer.BATCH": 3, "wellkept.sessions.sqlite.index._REBUILD_BATCH": 4}
IMPORTED = (write_conversations, IMPORT)
RESTORE = ("restore", "{files}/home.tar.gz", "--yes", "--no-backup")
RESTORED = (PAGES, EDITS, ("--as", "ann", *PAGES), MESSAGES, SKILLS, ("skills", "log", "alpha", "--json"))
IMPORT_CLIENT = ("import", "claude-code", "--source", "{files}/claude", "--no-backup", "--yes")
IMPORTED_VIEWS = (MESSAGES, ("sessions", "list", "--json"), PAGES, SKILLS)
BEST_EFFORT = r'"title": "[^"]*", |, "nudges": \{[^{}]*\}'
"""The title of a session, and the count until the next review: a disk that refuses once may cost them."""
KEEP = "{home}/backups/home.kept.tar.gz"

TABLE = [
    Operation("memory add", ("memory", "add", "a second fact"), (PAGES, EDITS),
         prepare=(("memory", "add", "a first fact"),), repeats=True),
    Operation("memory add in a new home", ("memory", "add", "a second fact"), (PAGES, EDITS), repeats=True),
    Operation("memory replace", ("memory", "replace", "first", "a changed fact"), (PAGES, EDITS),
         prepare=(("memory", "add", "a first fact"),), repeats=True),
    Operation("memory undo", ("memory", "undo"), (PAGES, EDITS),
         prepare=(("memory", "add", "a first fact"), ("memory", "add", "a second fact")), repeats=True),
    Operation("memory reset", ("memory", "reset", "--yes"), (PAGES,),
         prepare=(("memory", "add", "a first fact"), ("memory", "add", "Ann", "--target", "user")), is_between_allowed=True),
    Operation("memory edit", ("memory", "edit"), (PAGES, EDITS), prepare=(write_editor, ("memory", "add", "a first fact")), repeats=True),
    Operation("memory import", ("memory", "import", "{files}/page.md", "--target", "user"), (PAGES, EDITS),
         is_between_allowed=True, prepare=(write_page, ("memory", "add", "a first fact"))),
    Operation("memory restore", ("memory", "restore", "2"), (PAGES, EDITS), repeats=True,
         prepare=(("memory", "add", "a first fact"), ("memory", "remove", "first"))),
    Operation("migration", ("sessions", "list"), (MESSAGES,), prepare=(write_old_database,), changes_nothing=True),
    Operation("provider delivery", ("run", "Remember that the owl sleeps at noon."), (PAGES,), adds=True, is_between_allowed=True, warns=True, eventually=(FACTS, "the owl sleeps at noon"),
         prepare=(("config", "set", "memory.provider", "holographic"), ("memory", "add", "a first fact"), ("run", "Hello there."))),
    Operation("user create", ("user", "create", "ann"), (("user", "list", "--json"),), prepare=(("memory", "add", "a first fact"),), refuses_twice=True),
    Operation("run", ("run", "Remember that the heron stands on port 5433."), (PAGES, MESSAGES), ignored=BEST_EFFORT, adds=True, is_between_allowed=True, warns=True,
         prepare=(("memory", "add", "a first fact"), ("run", "Hello there."))),
    Operation("first conversation", ("run", "Hello there."), (PAGES, MESSAGES), ignored=BEST_EFFORT, adds=True, is_between_allowed=True, warns=True,
         prepare=(("memory", "add", "a first fact"), ("config", "set", "memory.overflow", "archive"))),
    Operation("sessions import", IMPORT, (MESSAGES, ("sessions", "list", "--json")), prepare=(write_conversations, ("run", "Hello there.")),
         constants=CONSTANTS, is_between_allowed=True),
    Operation("sessions import at once", IMPORT, (MESSAGES, ("sessions", "list", "--json")), prepare=(write_conversations, ("run", "Hello there."))),
    Operation("sessions delete", ("sessions", "delete", "one", "--yes"), (MESSAGES, ("sessions", "list", "--json")), prepare=IMPORTED, refuses_twice=True),
    Operation("sessions reindex", ("sessions", "reindex"), (("sessions", "search", "herons"), ("sessions", "list", "--json")), prepare=IMPORTED,
         constants=CONSTANTS, changes_nothing=True),
    Operation("sessions repair", ("sessions", "repair"), (MESSAGES, ("sessions", "list", "--json")), prepare=(damage_database,), reports=True),
    Operation("forget a session", ("forget", "--session", "one", "--yes"), (MESSAGES, ("sessions", "search", "herons")), prepare=IMPORTED,
         refuses_twice=True, gone="about herons"),
    Operation("forget words", ("forget", "--query", "herons", "--yes"), (MESSAGES, PAGES), refuses_twice=True, gone="herons",
         prepare=(*IMPORTED, ("memory", "add", "she likes herons"))),
    Operation("user forget", ("user", "forget", "ann", "--yes"), (("user", "list", "--json"), MESSAGES), refuses_twice=True, gone="a fact of ann",
         prepare=(("user", "create", "ann"), ("--as", "ann", "memory", "add", "a fact of ann"), ("--as", "ann", "run", "Hello there."))),
    Operation("skills create", CREATE[0], (SKILLS, ("skills", "show", "alpha")), prepare=(write_skill_texts,), refuses_twice=True),
    Operation("skills delete", ("skills", "delete", "alpha", "--yes"), (SKILLS,),
         prepare=(write_skill_texts, *CREATE), refuses_twice=True),
    Operation("skills undo", ("skills", "undo", "alpha"), (SKILLS, ("skills", "show", "alpha")),
         prepare=(write_skill_texts, *CREATE, keep_backup_name), repeats=True),
    Operation("skills install", ("skills", "install", "{files}/package", "--yes"), (SKILLS, ("skills", "audit", "--json")),
         prepare=(write_package,), refuses_twice=True),
    Operation("skills remove", ("skills", "remove", "delta"), (SKILLS, ("skills", "audit", "--json")),
         prepare=(write_package, ("skills", "install", "{files}/package", "--yes")), refuses_twice=True, is_between_allowed=True),
    Operation("curator archive", ("curator", "archive", "alpha"), (SKILLS,), prepare=(write_skill_texts, *CREATE), refuses_twice=True),
    Operation("curator rollback", ("curator", "rollback", "--yes"), tuple(("skills", "show", name) for name in ("alpha", "beta", "gamma")),
         prepare=(write_skill_texts, *CREATE, ("curator", "backup"), keep_backup_name), repeats=True),
    Operation("profile clone", ("profile", "clone", "default", "copy"), (("profile", "list", "--json"),),
         prepare=(("memory", "add", "a first fact"), *IMPORTED), refuses_twice=True),
    Operation("profile rename", ("profile", "rename", "work", "job"), (("profile", "list", "--json"), PAGES), refuses_twice=True,
         prepare=(("profile", "create", "work"), ("profile", "use", "work"), ("memory", "add", "a fact of work"))),
    Operation("profile delete", ("profile", "delete", "work", "--yes"), (("profile", "list", "--json"), ("-p", "work", *PAGES), PAGES), refuses_twice=True,
         prepare=(("profile", "create", "work"), ("profile", "use", "work"), ("memory", "add", "a fact of work"))),
    Operation("backup", ("backup", KEEP, "--overwrite"), (("restore", KEEP, "--verify"),), prepare=(("memory", "add", "a first fact"), *IMPORTED, make_backups_folder)),
    Operation("restore into an empty home", RESTORE, RESTORED, prepare=(make_backup,)),
    Operation("restore into a living home", RESTORE, RESTORED, prepare=(make_backup, ("memory", "add", "a first fact"), ("run", "Hello there."), CREATE[2], CREATE[1])),
    Operation("import", IMPORT_CLIENT, IMPORTED_VIEWS, prepare=(write_client_home, ("memory", "add", "a first fact")), is_between_allowed=True),
    Operation("import undo", ("import", "undo", "{import}", "--yes"), IMPORTED_VIEWS, refuses_twice=True, is_between_allowed=True,
         prepare=(write_client_home, ("memory", "add", "a first fact"), IMPORT_CLIENT, note_import)),
    Operation("config set", ("config", "set", "memory.overflow", "archive"), (("config", "show", "memory.overflow"),),
         prepare=(("config", "set", "memory.user_profile_enabled", "true"),)),
]  # fmt: skip
OPERATIONS = {operation.name: operation for operation in TABLE}
