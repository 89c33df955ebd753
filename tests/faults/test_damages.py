"""Random damages: after check and repair every whole row is there, every damaged one is named, nothing crashes.

`judge_many(folder, seeds)` damages copies of a healthy store, one for each seed, and returns what was wrong with the
answers of check, commands and repair. Run it by hand:

    KEPT_DAMAGES=500 python tests/faults/test_damages.py [first seed]
"""

import os
import random
import shutil
import struct
import sys
import tempfile
import traceback
from collections import Counter
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path

import apsw
import pytest

from wellkept.app.root import open_app
from wellkept.core.clock import SystemClock
from wellkept.core.errors import KeptError
from wellkept.core.ids import SessionId, SourceName, UserId
from wellkept.core.messages import ImagePart, Message, NewMessage, Origin, Role, Session, TextPart, Usage
from wellkept.forgetting import forget
from wellkept.operations import memory, search, sessions, upkeep
from wellkept.salvage.pages import HEADER_BYTES, PageFile
from wellkept.salvage.rows import Salvage, describe_shapes
from wellkept.sessions.records import source_id
from wellkept.sessions.settings import SessionSettings
from wellkept.sessions.sqlite.check import check_file
from wellkept.sessions.sqlite.recovery import DERIVED
from wellkept.sessions.sqlite.repair import Repair
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.row_checksums import describe_key
from wellkept.storage.sqlite import open_state

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("nder", "lock", "stem", "rive")]
MORE_ROWS = (
    "INSERT INTO state_meta (key, value) VALUES ('remark' || :n, 'value ' || :n)",
    "INSERT INTO carried (session_id, position, message_id) VALUES ('session07', :n, :n + 61)",
    (
        "INSERT INTO outbox (provider, session_id, hook, payload, idempotency_key, created, last_error) "
        "VALUES ('mem0', 'session01', 'sync_turn', '{\"said\": \"mark' || :n || '\"}', 'key' || :n, 1.5, 'no answer ' || :n)"
    ),
    # a forget asks every provider to which something was delivered, and looks for each that is not installed
    "INSERT INTO outbox_lanes (provider, ledger_id, delivered) VALUES ('lane' || :n, :n, iif(:n = 1, 7, 0))",
    (
        "INSERT INTO provider_calls (session_id, provider, call, started, seconds, outcome, bytes_out, bytes_in) "
        "VALUES ('session02', 'mem0', 'prefetch', 1.5, 0.25, 'ok', :n, 300)"
    ),
    "INSERT INTO provider_health (provider, failures, paused_until, last_error) VALUES ('lane' || :n, 1, 2.5, 'refused')",
    (
        "INSERT INTO receipts (user_id, created, kind, client, query, candidates, tokens, milliseconds) "
        "VALUES ('owner', 1.5, 'search', 'cli', 'what about mark' || :n, 9, 40, 3.5)"
    ),
    "INSERT INTO receipt_items (receipt_id, position, message_id, score, parts) VALUES (:n, 1, :n, 0.5, '{\"words\": 0.5}')",
    "INSERT INTO receipt_marks (user_id, receipt_id, message_id, mark, created) VALUES ('owner', :n, :n, 'useful', 1.5)",
    (
        "INSERT INTO captured_sessions (user_id, client, external_id, session_id, title, captured) "
        "VALUES ('owner', 'codex', 'external' || :n, 'session03', 'A title ' || :n, 1.5)"
    ),
    "INSERT INTO captured_messages (key, message_id, mark) VALUES (:bytes, :n, 123456789)",
    (
        "INSERT INTO captured_turns (user_id, client, external_id, turn, prompt, messages) "
        "VALUES ('owner', 'codex', 'external' || :n, 'turn' || :n, 98765, '[]')"
    ),
    (
        "INSERT INTO transcripts (user_id, client, path, position, check_bytes, state, waiting_bytes, read_at) "
        "VALUES ('owner', 'codex', '/logs/' || :n, 512, 'abcdef', '{}', 0, 1.5)"
    ),
    "INSERT INTO tombstones (hash, forgotten) VALUES (hex(:bytes), 1.5)",
    (
        "INSERT INTO tokens (id, user_id, name, scopes, created, hash) "
        "VALUES ('token' || :n, 'owner', 'laptop ' || :n, 'read write', 1.5, :bytes)"
    ),
    "INSERT INTO conversation_keys (user_id, key, session_id, last_used) VALUES ('owner', 'chat' || :n, 'session04', 1.5)",
    "INSERT INTO client_messages (user_id, key, position, hash, message_id) VALUES ('owner', 'chat1', :n, :bytes, :n)",
    "INSERT INTO imports (id, user_id, source, started, counts) VALUES ('import' || :n, 'owner', 'codex', 1.5, '{}')",
    (
        "INSERT INTO imported_usage (import_number, session_id, day, model, task, calls, input_tokens, output_tokens, "
        "cache_read_tokens, cache_write_tokens) VALUES (:n, 'session05', '2026-01-01', 'm', 'chat', 3, :n, 20, 0, 0)"
    ),
    (
        "INSERT INTO imported_items (user_id, source, kind, name, part, mark, state, place, import_number) "
        "VALUES ('owner', 'codex', 'entry', 'item' || :n, :n, hex(:bytes), 'added', 'user', :n)"
    ),
    (
        "INSERT INTO platform_people (platform, person, user_id, name, paired) "
        "VALUES ('webhook', 'person' || :n, 'alice', 'Alice ' || :n, 1.5)"
    ),
    (
        "INSERT INTO pairing_codes (platform, person, name, code, created, told) "
        "VALUES ('webhook', 'person' || :n, 'Bob ' || :n, 'CODE' || :n, 1.5, 2.5)"
    ),
    "INSERT INTO moved_chats (platform, chat, origin) VALUES ('telegram', 'chat' || :n, 'origin' || :n)",
    (
        "INSERT INTO platform_messages (platform, delivery, user_id, state, received, message, answer, session_id) "
        "VALUES ('webhook', 'delivery' || :n, 'alice', 'answered', 1.5, '{\"text\": \"mark' || :n || '\"}', 'yes', 'session06')"
    ),
    (
        "INSERT INTO injections (user_id, key, place, session_id, text, created) "
        "VALUES ('alice', 'client:' || :n, :bytes, 'session06', 'a passage ' || :n, 1.5)"
    ),
)
"""Rows of the tables that conversations do not fill; they may be damaged as well."""


def silent(event):
    """Ignore the event."""


def build(path):
    """Write a store with several users, trash, deletions, long texts, images and everything else that has a table."""
    path.write_bytes(_build_once())


@lru_cache(maxsize=1)
def _build_once():
    """Return the bytes of the store; cached, because building it takes longer than most of the damages."""
    with tempfile.TemporaryDirectory() as folder:
        _build(Path(folder) / "state.db")
        return (Path(folder) / "state.db").read_bytes()


def _build(path):
    choose = random.Random(1)
    database = open_state(path)
    owner = SqliteSessionStore(database)
    for number in range(24):
        user = UserId(("owner", "alice", "bob")[number % 3])
        store = owner.for_user(user)
        name = SessionId(f"session{number:02}")
        store.create(Session(name, "cli", 1.75e9 + number, title=f"Talk {number}", project=f"project{number % 4}"))
        store.set_system_prompt(name, f"You are helpful. {number % 5} " * 20)
        for place in range(14):
            content = f"mark{number}x{place} " + " ".join(choose.choices(WORDS, k=choose.randrange(5, 60)))
            if place == 5:
                content *= choose.randrange(1, 40)
            if place == 7 and number % 4 == 0:
                data = choose.randbytes(5_000).hex()
                content = (TextPart(content), ImagePart("image/png", data))
            role = Role.USER if place % 2 == 0 else Role.ASSISTANT
            store.append(name, [NewMessage(Message(role, content), 1.75e9 + number + place, Origin.usual(role))])
        store.add_usage(name, task="chat", model="m", usage=Usage(10, 20, 0, 0), cost=0.5)
        store.note(name, "cooldown", {"turns": number})
        store.add_node(name, depth=0, text=f"A summary of talk {number}", children=[number * 14 + 1])
        if number % 6 == 5:
            store.upkeep.delete([name])
    with database.writing() as connection:
        for sql in MORE_ROWS:
            connection.executemany(sql, [{"n": n, "bytes": choose.randbytes(20)} for n in range(1, 21)])
        names = [SourceName(f"codex project {n}") for n in range(20)]
        connection.executemany("INSERT INTO sources (id, name) VALUES (?, ?)", [(source_id(one), one) for one in names])
        connection.execute("DELETE FROM messages WHERE id % 29 = 3")
        connection.execute("DELETE FROM messages WHERE session_id = 'session23'")
        connection.execute("DELETE FROM sessions WHERE id = 'session23'")
    owner.upkeep.reindex()
    owner.close()


def canonical(connection):
    """Return the names of the tables whose rows must survive."""
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")
    return [str(row[0]) for row in found.fetchall() if not str(row[0]).startswith(DERIVED)]


def contents(path):
    """Return every canonical row as SQLite reads it, by table and key."""
    database = open_state(path)
    found = {}
    for shape in describe_shapes(database.connection):
        if shape.name not in canonical(database.connection) or shape.is_index:
            continue
        key = "rowid" if shape.has_numbers else ", ".join(shape.key)
        columns = [name for name in shape.columns if name != "message_count"]
        for row in database.connection.execute(f"SELECT {key}, {', '.join(columns)} FROM {shape.name}").fetchall():
            size = 1 if shape.has_numbers else len(shape.key)
            found[shape.name, row[0] if size == 1 and shape.has_numbers else row[:size]] = row[size:]
    database.close()
    for name in (
        "index_version",
        "erase_due",
        "checksums_missing_to",
        "checksums_filled_to",
        "row_checksums_missing",
        "spellings_unused",
    ):
        found.pop(("state_meta", (name,)), None)
    return found


def listings(path):
    """Return what the search index lists for each word, and how long it takes each message to be; None if it cannot be read."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = []
    try:
        connection.execute("CREATE VIRTUAL TABLE temp.every USING fts5vocab('main', 'message_words', 'instance')")
        found += connection.execute("SELECT term, doc FROM temp.every").fetchall()
        found += connection.execute("SELECT id, sz FROM message_words_docsize").fetchall()
        lists = connection.execute("SELECT bucket, words FROM message_spellings ORDER BY bucket").fetchall()
        found += [(bucket, *sorted(words.split("\n"))) for bucket, words in lists]
    except (apsw.Error, UnicodeDecodeError):
        return None
    finally:
        connection.close()
    return found


def places(path):
    """Return where the bytes of every canonical row are: (page, start, end), then whole overflow pages."""
    database = open_state(path)
    shapes = describe_shapes(database.connection)
    names = canonical(database.connection)
    database.close()
    file = PageFile(path)
    salvage = Salvage(file, shapes)
    found = {}
    for shape in shapes:
        if shape.is_index or shape.name not in names:
            continue
        for number in salvage.extents[shape.name].pages:
            tree = file.tree(number)
            if tree.is_table and not tree.is_leaf:
                continue
            for cell in tree.cells:
                row = salvage._row(shape, cell, number)
                key = cell.rowid if shape.has_numbers else tuple(row.values[name] for name in shape.key)
                start = cell.start + (0 if tree.is_leaf else 4)  # the pointer to the page below is not the row
                found[shape.name, key] = [
                    (number, start, cell.end),
                    *((one, 0, file.usable) for one in file.payload(cell)[1]),
                ]
    return found, file.page_bytes, file.count


KINDS = (
    *["flip"] * 3, "flips", "page", "zero page", "pages", "range", "zero range", *["swap"] * 2, "cut", *["header"] * 2,
    "zero header", "leaf header",
)  # fmt: skip


def flip(data, choose, start, end):
    data[choose.randrange(start, end)] ^= 1 << choose.randrange(8)


def overwrite(data, choose, start, size):
    data[start : start + size] = choose.choice([bytes(size), choose.randbytes(size)])


def swap(data, choose, page_bytes):
    first, second = (choose.randrange(len(data) // page_bytes) for _ in range(2))
    one, two = (slice(place * page_bytes, (place + 1) * page_bytes) for place in (first, second))
    data[one], data[two] = bytes(data[two]), bytes(data[one])
    return {first + 1: second + 1, second + 1: first + 1}


def damage(data, choose, page_bytes):
    """Return damaged bytes, a word for the damage, and which page is now where."""
    data, kind = bytearray(data), choose.choice(KINDS)
    pages = [choose.randrange(len(data) // page_bytes) * page_bytes for _ in range(choose.randrange(2, 12))]
    moved = {}
    match kind.split():
        case ["flip" | "flips"]:
            [flip(data, choose, 0, len(data)) for _ in (pages if kind == "flips" else [0])]
        case ["page" | "pages"] | ["zero", "page"]:
            for start in pages if kind == "pages" else pages[:1]:
                data[start : start + page_bytes] = bytes(page_bytes) if "zero" in kind else choose.randbytes(page_bytes)
        case [*_, "range"]:
            overwrite(data, choose, choose.randrange(len(data) - 600), choose.randrange(1, 600))
        case ["swap"]:
            moved = swap(data, choose, page_bytes)
        case ["cut"]:
            del data[choose.randrange(1, len(data)) :]
        case _:
            damage_header(data, choose, kind, page=pages[0], page_bytes=page_bytes)
    return bytes(data), kind, moved


def damage_header(data, choose, kind, *, page, page_bytes):
    if kind == "header":
        flip(data, choose, 0, HEADER_BYTES)
    elif kind == "leaf header":
        flip(data, choose, page, page + 12)
    else:
        size = choose.choice([16, HEADER_BYTES, page_bytes])
        data[:size] = bytes(size)


def is_intact(spans, healthy, damaged, page_bytes, moved):
    """Whether the bytes of a row are all there; a leaf may be in the place of another page."""
    for place, (page, start, end) in enumerate(spans):
        now = moved.get(page, page) if place == 0 else page
        if 1 in (page, now) and page != now:
            return False
        before = healthy[(page - 1) * page_bytes + start : (page - 1) * page_bytes + end]
        if damaged[(now - 1) * page_bytes + start : (now - 1) * page_bytes + end] != before:
            return False
    return True


def run_commands(home, faults):
    """Use the store as a person does; only errors that say what to do are allowed."""

    def attempt(name, act):
        try:
            act()
        except KeptError:
            pass
        except Exception as error:
            faults.append(f"{name} ends in {''.join(traceback.format_exception(error)[-4:])}")

    app = open_app(str(home), environ={})
    try:
        caller = app.caller()
        attempt("memory show", lambda: memory.show_pages(caller))
        attempt("sessions list", lambda: sessions.list_sessions(caller))
        attempt("search", lambda: search.search(caller, "mark3x4 bander"))
        attempt("show", lambda: sessions.show_session(caller, "session03"))
        attempt("export", lambda: list(sessions.export_sessions(caller)))
        attempt("forget", lambda: forget.plan_forget_words(caller, "mark6x1"))
        attempt("reindex", lambda: upkeep.rebuild_index(caller))
    finally:
        with suppress(KeptError):
            app.close()


class Judgement:
    """One damage and what was wrong with the answers to it."""

    def __init__(self, healthy, spans, page_bytes, listed):
        self.healthy, self.spans, self.page_bytes, self.listed = healthy, spans, page_bytes, listed
        self.faults = []
        self.kind = ""

    def run(self, home, original, seed, *, with_commands):
        """Damage, check, use, repair, compare."""
        choose = random.Random(seed)
        home.mkdir(parents=True)
        path = home / "state.db"
        before = original.read_bytes()
        after, self.kind, moved = damage(before, choose, self.page_bytes)
        path.write_bytes(after)
        intact = {key for key, spans in self.spans.items() if is_intact(spans, before, after, self.page_bytes, moved)}
        try:
            found = check_file(path, clock=SystemClock())
            if not found and listings(path) != self.listed:
                self.faults.append("the check said that everything is in order, and the index lists other words")
            if with_commands:
                run_commands(home, self.faults)
                shutil.rmtree(home)
                home.mkdir()
                path.write_bytes(after)
            report = Repair(path, SessionSettings(), clock=SystemClock(), sink=silent).run()
            if with_commands:
                run_commands(home, self.faults)
            self._compare(contents(path), intact, found, report)
            left = [finding.what for finding in check_file(path, clock=SystemClock()) if not finding.is_lost]
            self.faults += [f"after the repair: {what}" for what in left]
        except KeptError as error:
            self.faults.append(f"refused: {error}")
        except Exception as error:
            self.faults.append(f"crashed: {''.join(traceback.format_exception(error)[-6:])}")
        return self

    def _compare(self, rows, intact, found, report):
        changed = {key: rows.get(key, "gone") for key, values in self.healthy.items() if rows.get(key) != values}
        # a row whose key was damaged is there under another key, and named by that
        new = {key for key in rows if key not in self.healthy}
        self.renamed = [key for key in new if self._is_named(key, report)]
        if report.salvaged is None:
            self.faults += [f"{key} came from nowhere" for key in new.difference(self.renamed)]
        for key, now in changed.items():
            self._judge_change(key, now, is_intact=key in intact, report=report, rows=rows)
        if not found and changed:
            self.faults.append(f"the check said that everything is in order, and {list(changed)[:3]} are not")

    def _judge_change(self, key, now, *, is_intact, report, rows):
        if is_intact and not (key[0] == "carried" and key not in rows):  # carried rows go with their message
            self.faults.append(f"{key} was whole and is {now!r:.200}")
        elif not is_intact and not self._is_named(key, report) and not self._is_renamed(key, rows):
            self.faults.append(f"{key} was damaged and is not named: {now!r:.300}")
        if key[0] in {"blobs", "blob_uses"} and self._is_known_by_messages(key, now, rows):
            self.faults.append(f"{key} has another hash than its messages say: {now!r:.200}")

    def _users_of(self, key):
        """Return the messages that use a blob, by what the healthy store listed."""
        values = self.healthy[key]
        digest = values[0] if key[0] == "blobs" else key[1][1]
        return [name[0] for table, name in self.healthy if table == "blob_uses" and name[1] == digest]

    def _is_known_by_messages(self, key, now, rows):
        """Whether an intact message names the blob, so that its hash is known although the stored one is damaged."""
        if key[0] == "blobs" and (now == "gone" or now[1] != self.healthy[key][1]):
            return False  # its content is damaged
        users = self._users_of(key) if key[0] == "blobs" else [key[1][0]]
        return any(rows.get(("messages", one)) == self.healthy["messages", one] for one in users)

    def _is_renamed(self, key, rows):
        """Whether the row has another key now; each row under a new key replaces one that is gone."""
        if key[0] in {"blobs", "blob_uses"}:
            return False  # the messages say what they are called
        new = next((one for one in self.renamed if one[0] == key[0] and key not in rows), None)
        if new is not None:
            self.renamed.remove(new)
        return new is not None

    def _is_named(self, key, report):
        table, name = key
        found = " ".join(finding.what for finding in (*report.found, *report.left))
        text = describe_key(name if isinstance(name, tuple) else (name,))
        if table == "sessions" and key in self.healthy:
            text = self.healthy[key][0]
        if f"message {name} " in found or f"{table} {text}" in found or f"(in {table}" in found:
            return True
        if table == "blobs" and key in self.healthy:  # named by the messages that use it
            named = [f"message {one} of " for one in self._users_of(key)]
            if "its image or encoded data" in found and any(text in found for text in named):
                return True
        if report.salvaged is None:
            return False
        names = [*report.salvaged.damaged.get(table, []), *report.salvaged.lost.get(table, [])]
        names = [one.partition(" of ")[0] for one in names]
        is_page = table in report.salvaged.pages or report.salvaged.missing_pages > 0
        return is_page or text in names


def judge_many(folder, seeds, *, with_commands=True, tell=print):
    """Judge one damage for each seed; return those with faults."""
    original = folder / "healthy" / "state.db"
    original.parent.mkdir(parents=True)
    build(original)
    healthy = contents(original)
    spans, page_bytes, _ = places(original)
    listed = listings(original)
    bad, kinds = [], Counter()
    for seed in seeds:
        home = folder / f"home{seed}"
        judgement = Judgement(healthy, spans, page_bytes, listed).run(home, original, seed, with_commands=with_commands)
        kinds[judgement.kind] += 1
        shutil.rmtree(home, ignore_errors=True)
        if judgement.faults:
            bad.append((seed, judgement.kind, judgement.faults))
            tell(f"seed {seed} ({judgement.kind}): {len(judgement.faults)} faults, first: {judgement.faults[0]}")
    tell(f"{sum(kinds.values())} damages {dict(kinds)}, {len(bad)} with faults")
    return bad


def schema_pages(path):
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema' AND pagetype <> 'overflow'")
    pages = [int(page) for (page,) in found]
    connection.close()
    return pages


def overwrite_page(path, page, start):
    file = PageFile(path)
    data = bytearray(path.read_bytes())
    place = (page - 1) * file.page_bytes
    data[place + start : place + file.page_bytes] = bytes(file.page_bytes - start)
    path.write_bytes(data)


def page_owners(path):
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return dict(connection.execute("SELECT pageno, name FROM dbstat WHERE pagetype <> 'overflow'").fetchall())


def judge_one(folder, monkeypatch, change, *, empty=()):
    """Judge one damage that is made by hand: `change(data, owners, page_bytes)` changes bytes, and returns moved pages.

    The tables in `empty` have no rows.
    """
    original = folder / "healthy" / "state.db"
    original.parent.mkdir(parents=True)
    build(original)
    with closing(open_state(original)) as database, database.writing() as connection:
        for table in empty:
            connection.execute(f"DELETE FROM {table}")
    spans, page_bytes, _ = places(original)
    owners = page_owners(original)

    def damage_by_hand(data, choose, size):
        data = bytearray(data)
        return data, "by hand", change(data, owners, size) or {}

    monkeypatch.setattr(sys.modules[__name__], "damage", damage_by_hand)
    judgement = Judgement(contents(original), spans, page_bytes, listings(original))
    return judgement.run(folder / "home", original, 1, with_commands=True).faults


def test_pages_of_a_table_and_of_an_index_with_alike_columns_change_places(tmp_path, monkeypatch):
    """Each fits the tree of the other by its types; the checksums of the rows say where they belong."""

    def change(data, owners, size):
        one, two = (next(page for page, owner in owners.items() if owner == name) for name in ("sqlite_autoindex_blobs_1", "tombstones"))  # fmt: skip
        first, second = (slice((page - 1) * size, page * size) for page in (one, two))
        data[first], data[second] = bytes(data[second]), bytes(data[first])
        return {one: two, two: one}

    assert judge_one(tmp_path, monkeypatch, change) == []


def test_a_table_whose_name_is_damaged_is_known_by_its_declaration(tmp_path, monkeypatch):
    """The schema names a table three times."""

    def change(data, owners, size):
        data[data.index(b"tablepromptsprompts") + len("tablepromp")] ^= 1

    assert judge_one(tmp_path, monkeypatch, change) == []


@pytest.mark.parametrize(("empty", "table"), [("leases", "usage"), ("index_queue", "nodes"), ("moved_chats", "tokens")])
def test_rows_in_the_place_of_an_empty_table_are_found(tmp_path, monkeypatch, empty, table):
    """Two pages change places: no tree contradicts itself, and one table seems to have no rows."""

    def change(data, owners, size):
        one, two = (next(page for page, owner in owners.items() if owner == name) for name in (empty, table))
        first, second = (slice((page - 1) * size, page * size) for page in (one, two))
        data[first], data[second] = bytes(data[second]), bytes(data[first])
        return {one: two, two: one}

    assert judge_one(tmp_path, monkeypatch, change, empty=[empty]) == []


def test_commands_before_the_repair_take_no_rows_from_the_place_of_the_queue(tmp_path):
    """A search would index them as if they were numbers of messages, and delete them."""
    path = tmp_path / "state.db"
    build(path)
    healthy = contents(path)
    owners, size = page_owners(path), PageFile(path).page_bytes
    data = bytearray(path.read_bytes())
    one, two = (next(page for page, owner in owners.items() if owner == name) for name in ("index_queue", "nodes"))
    first, second = (slice((page - 1) * size, page * size) for page in (one, two))
    data[first], data[second] = bytes(data[second]), bytes(data[first])
    path.write_bytes(data)

    faults = []
    run_commands(tmp_path, faults)
    Repair(path, SessionSettings(), clock=SystemClock(), sink=silent).run()

    rows = contents(path)
    assert faults == []
    assert [key for key, values in healthy.items() if rows.get(key) != values] == []


@pytest.mark.parametrize("start", [0, 2])
def test_rows_of_a_table_without_an_index_are_reported_with_their_page(tmp_path, monkeypatch, start):
    """The cell of a row, or only the types of its columns, are zeros: not even its key can be read."""

    def change(data, owners, size):
        page = next(page for page, owner in owners.items() if owner == "imported_usage")
        schema = max(page for page, owner in owners.items() if owner == "sqlite_schema")
        data[(schema - 1) * size : (schema - 1) * size + 8] = bytes(8)  # so that the rows have to be salvaged
        cell = (page - 1) * size + struct.unpack_from(">H", data, (page - 1) * size + 8)[0]
        data[cell + start : cell + 6] = bytes(6 - start)

    assert judge_one(tmp_path, monkeypatch, change) == []


@pytest.mark.parametrize("place", [2, len("triggernotes_uncheckedno")])
def test_a_trigger_with_a_damaged_kind_or_table_is_repaired(tmp_path, monkeypatch, place):
    """SQLite still runs it, until a VACUUM leaves it out."""

    def change(data, owners, size):
        data[data.index(b"triggernotes_uncheckednotes") + place] ^= 0x20

    assert judge_one(tmp_path, monkeypatch, change) == []


@pytest.mark.parametrize("part", [b"tokenize", b"porter"])
def test_a_damaged_declaration_of_the_search_index_is_repaired(tmp_path, monkeypatch, part):
    """FTS5 reports it as an error of the statement."""

    def change(data, owners, size):
        data[data.index(part) + 4] ^= 0x40

    assert judge_one(tmp_path, monkeypatch, change) == []


def test_rows_that_are_lost_with_the_declaration_of_their_table_are_reported(tmp_path, monkeypatch):
    """Nothing records which pages it had, so all pages that belong to no table are named."""

    def change(data, owners, size):
        schema = data.index(b"tablepromptsprompts") // size
        leaves = [page - 1 for page, owner in owners.items() if owner == "prompts"]
        for page in (schema, *leaves):
            data[page * size : (page + 1) * size] = b"\xee" * size

    assert judge_one(tmp_path, monkeypatch, change) == []


COUNT = int(os.environ.get("KEPT_DAMAGES", "500"))
LIGHT = 8


@pytest.mark.timeout(600)  # seconds of work, and minutes on a busy machine
def test_a_few_random_damages(tmp_path):
    """Flipped bits, overwritten, zeroed and swapped pages, cut files, headers."""
    told = []

    bad = judge_many(tmp_path, range(1_000, 1_000 + LIGHT), tell=told.append)

    assert bad == [], "\n".join(told)


def test_the_store_has_rows_in_every_table(tmp_path):
    """A table without rows could lose them unnoticed."""
    path = tmp_path / "state.db"
    build(path)

    tables = {table for table, _ in contents(path)}
    with closing(open_state(path)) as database:
        assert set(canonical(database.connection)) - tables == set()


def test_every_row_is_found_without_any_declaration(tmp_path):
    """Tables with the same columns are distinguished by the checksums of their rows."""
    path = tmp_path / "state.db"
    build(path)
    healthy = contents(path)
    for page in schema_pages(path):
        start = HEADER_BYTES if page == 1 else 0
        overwrite_page(path, page, start)

    Repair(path, SessionSettings(), clock=SystemClock(), sink=silent).run()

    rows = contents(path)
    assert [key for key, values in healthy.items() if rows.get(key) != values] == []


@pytest.mark.heavy
@pytest.mark.timeout(7_200)
def test_many_random_damages(tmp_path):
    """The same at full size."""
    told = []

    bad = judge_many(tmp_path, range(COUNT), tell=told.append)

    assert bad == [], "\n".join(told)


if __name__ == "__main__":
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    with tempfile.TemporaryDirectory() as place:
        sys.exit(bool(judge_many(Path(place), range(first, first + COUNT))))
