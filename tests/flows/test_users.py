"""Two users and the owner on one app: nobody finds, lists, exports, forgets, is told or is recalled another's data.

Every text that a person writes contains a mark of that person. Random operations run through the operations, the
agent, its tools and the command line. After each, nothing that was returned, printed, told or sent to a model for one
person may contain a mark or a session id of another, and what the others have stored must be unchanged. Ids of others
must be answered like unknown ids. The second half takes out one filter after another; the same operations must then
find a leak.
"""

import hashlib
import json
import logging
import random
import re
import string
from collections.abc import Callable
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import anyio
import apsw
import pytest
from msgspec.structs import replace

from wellkept.agent.agent import Opening
from wellkept.app import open_app
from wellkept.app.caller import Caller, UserSpace
from wellkept.app.root import App
from wellkept.config import home as home_module
from wellkept.core.clock import FixedClock
from wellkept.core.errors import KeptError
from wellkept.core.ids import OWNER, SessionId, UserId
from wellkept.core.messages import Session
from wellkept.core.ports import ignore
from wellkept.core.tools import ToolContext
from wellkept.forgetting import forget
from wellkept.llm.scripted import Says, ScriptedModel, call
from wellkept.memory.page import Add, Remove, Replace, Target
from wellkept.operations import conversations, memory, models, providers, search, sessions, skills, tools, upkeep, users
from wellkept.providers.audit import Audit, CallRecord, Health
from wellkept.providers.holographic.provider import HolographicProvider
from wellkept.providers.holographic.store import FactStore
from wellkept.providers.outbox import Outbox, Write
from wellkept.sessions.search import engine
from wellkept.sessions.search.postings import SessionFilter
from wellkept.sessions.sqlite.postings import SqliteCatalog
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.connections import statements
from wellkept.testing.session_user_contract import UserContract

ANN, BOB = UserId("ann"), UserId("Bob Ö.")
SAME_BUT_FOR_CASE = UserId("bob ö.")
MARKS = {OWNER: ("ownqz", "東京塔"), ANN: ("annqz", "大阪城"), BOB: ("bobqz", "京都駅")}
"""What every text of a person contains: the beginning of a word, and a word of a script without spaces."""
SHARED = "pubqz"
"""The mark of the owner's skills, which every user may read."""
NOBODYS = {"session": "nobodys-session", "word": "qqqunheard", "pending": "0badf00d", "number": 987_654_321}
CONFIG = """
memory: {provider: holographic, write_approval: background, read_action: true}
skills: {write_approval: background}
curator: {enabled: false}
"""
QUESTIONS = (
    "tea in the garden",
    '"tea in the garden"',
    "tea AND garden",
    "garden -coffee",
    "gard*",
    "what did we say on 15 June 2025",
    "2025-06-15",
    "who likes tea?",
    "gardne",
)


class Leak(AssertionError):
    """Something of one person reached another."""


@dataclass
class Person:
    """One user of the app, with what they own as the test knows it."""

    user: UserId
    marks: tuple[str, str]
    heard: list[object] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """The words that stand in conversations."""
    sessions: list[str] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)
    told: int = 0


class World:
    """An open app with its people, and everything that they can do on it."""

    def __init__(self, app, kept, heard, *, seed: int) -> None:
        self.app, self.kept = app, kept
        self.random = random.Random(seed)
        self.people = {user: Person(user, marks) for user, marks in MARKS.items()}
        self.people[OWNER].heard = heard
        self.done = 0
        self.raw: dict[Path, apsw.Connection] = {}
        self.callers: dict[UserId, Caller] = {}
        self.tools: dict[UserId, dict] = {}
        self.requests: list[object] = []
        app.models.chat = lambda _name=None, **_options: self.model
        self.model: ScriptedModel | None = None

    # running one operation and looking at what came of it

    def caller(self, me: Person) -> Caller:
        caller = self.callers.get(me.user)
        if caller is None or self.app.space(me.user) is not caller.space:  # forgotten: the space is a new one
            sink = me.heard.append if me.user != OWNER else None
            caller = self.app.caller(me.user, sink=sink) if sink else self.app.caller()
            self.callers[me.user] = caller.__enter__()
            self.tools.pop(me.user, None)
        return caller if caller is self.callers[me.user] else self.callers[me.user]

    def perform(self, me: Person, name: str) -> None:
        """Let a person do one thing; raise Leak if anything of another shows, or changes."""
        others = [one for one in self.people.values() if one is not me]
        before = {one.user: (self.stored(one), len(one.heard)) for one in others}
        try:
            answer = getattr(self, f"do_{name}")(me, self.caller(me))
        except KeptError as error:
            answer = f"{error.message} {error.remedy}"
        self.done += 1
        self.look(me, answer, f"{me.user}: {name} returned")
        self.look(me, me.heard[me.told :], f"{me.user}: {name} told")
        me.told = len(me.heard)
        for one in others:
            stored, told = before[one.user]
            if len(one.heard) != told:
                raise Leak(f"{me.user}: {name} told {one.user} {one.heard[told:]!r}")
            if self.stored(one) != stored:
                raise Leak(f"{me.user}: {name} changed what {one.user} has")

    def look(self, me: Person, answer: object, what: str) -> None:
        """Raise Leak if an answer contains a mark or a session of another person."""
        text = text_of(answer).lower()
        for one in self.people.values():
            found = [] if one is me else [sign for sign in (*one.marks, *one.sessions) if sign.lower() in text]
            if found:
                at = text.index(found[0].lower())
                raise Leak(f"{what} {found[0]!r} of {one.user}: …{text[max(0, at - 200) : at + 100]}…")

    def probe(self, me: Person, ask: Callable[[object], object], theirs: object, nobodys: object) -> None:
        """Raise Leak unless something of another person is answered like something that does not exist."""
        answers = []
        for asked in (theirs, nobodys):
            try:
                answer = text_of(ask(asked))
            except KeptError as error:
                answer = f"{type(error).__name__} {error.message} {error.remedy}"
            answers.append(
                answer.replace(str(asked), "ASKED").replace(f"{asked:,}" if isinstance(asked, int) else "\0", "ASKED")
            )
        if answers[0] != answers[1]:
            raise Leak(f"{me.user} asks for {theirs!r}: {answers[0][:600]!r}, for nothing: {answers[1][:600]!r}")

    def stored(self, one: Person) -> str:
        """Return a digest of what a person has stored, read without any of the code under test."""
        digest = hashlib.sha256()
        own = self.folder(one)
        ledger = own / "memories" / "ledger.db"
        for path, query in (
            (self.app.home.database, STATE),
            (self.app.home.path / "holographic.db", FACTS),
            (ledger, EDITS),
        ):
            for row in self.rows(path, query, one):
                digest.update(repr(row).encode())
        for pattern in ("memories/*.md", "pending/*/*.json", "skills/*/SKILL.md"):
            for path in sorted(own.glob(pattern)):
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def rows(self, path: Path, query: str, one: Person) -> list[tuple[object, ...]]:
        """Read a file directly, with SQLite of the same library: another one would break its locks."""
        if not path.exists():
            return []
        if path not in self.raw:
            self.raw[path] = apsw.Connection(str(path))
        return list(self.raw[path].execute(query, {"user": one.user}))

    def folder(self, one: Person) -> Path:
        root = self.app.home.path
        return root if one.user == OWNER else root / "users" / FOLDERS[one.user]

    # words and things to do something with

    def word(self, me: Person) -> str:
        me.words.append(me.marks[0] + "".join(self.random.choices(string.ascii_lowercase, k=6)))
        return me.words[-1]

    def text(self, me: Person) -> str:
        """Return a sentence with the person's marks in words that everyone uses."""
        return f"{self.word(me)} likes tea in the garden, {me.marks[1]}へ行きました"

    def other(self, me: Person) -> Person:
        return self.random.choice([one for one in self.people.values() if one is not me])

    def own_session(self, me: Person) -> str:
        return self.random.choice(me.sessions) if me.sessions else "none yet"

    def numbers(self, one: Person, query: str) -> list[int]:
        return [number for (number,) in self.rows(self.app.home.database, query, one)]

    def tool(self, me: Person, caller: Caller, called: str, /, *, origin: str = "agent", **arguments: object) -> object:
        box = self.tools.get(me.user)
        if box is None:
            box = self.tools[me.user] = caller.space.tools()
        session_id = SessionId(me.sessions[0]) if me.sessions else None
        return box[called].call(arguments, ToolContext(session_id=session_id, user_id=me.user, origin=origin))

    # pages

    def do_add_entry(self, me, caller):
        return memory.edit_entry(caller, Add(self.text(me)), self.random.choice(list(Target)))

    def do_replace_entry(self, me, caller):
        return memory.edit_entry(caller, Replace(me.marks[0], self.text(me)))

    def do_remove_entry(self, me, caller):
        return memory.edit_entry(caller, Remove(me.words[0] if me.words else "x"))

    def do_read_pages(self, me, caller):
        logs = [memory.read_log(caller), memory.read_pages_at(caller, 4e9), memory.export_pages(caller)]
        archive = [memory.search_archive(caller, "tea"), memory.search_archive(caller, self.other(me).marks[0][:3])]
        return [memory.show_pages(caller, with_metadata=True), memory.render_snapshot(caller), *logs, *archive]

    def do_undo(self, _me, caller):
        return memory.undo(caller)

    def do_restore_entry(self, _me, caller):
        return [memory.read_edit(caller, 2), memory.restore(caller, 2)]

    def do_reset(self, _me, caller):
        return memory.reset_pages(caller, Target.USER)

    def do_import_pages(self, me, caller):
        return memory.import_pages(caller, json.dumps({"memory": [self.text(me)], "user": []}))

    def do_replace_page(self, me, caller):
        return memory.replace_page(caller, Target.USER, self.text(me), before=memory.read_page(caller, Target.USER))

    def do_stage_entry(self, me, caller):
        staged = self.tool(
            me, caller, "memory", origin="background_review", target="memory", action="add", content=self.text(me)
        )
        return [staged, memory.list_pending(caller), memory.choose_pending(caller, "all")]

    def do_decide(self, _me, caller):
        waiting = memory.list_pending(caller)
        decide = self.random.choice((memory.approve, memory.reject))
        return [decide(caller, one.id) for one in waiting[:1]]

    def do_probe_pending(self, me, caller):
        for other in self.people.values():
            for path in (self.folder(other) / "pending").rglob("*.json") if other is not me else ():
                act = memory.approve if path.parent.name == "memory" else skills.approve
                self.probe(me, lambda one, act=act: act(caller, one), path.stem, NOBODYS["pending"])

    # conversations

    def do_import(self, me, caller):
        name = f"{me.marks[0]}-{len(me.sessions)}-{self.random.randrange(10**6)}"
        me.sessions.append(name)
        rows = [
            {
                "session_id": name,
                "role": role,
                "content": self.text(me),
                "timestamp": 1_750_000_000 + place,
                "title": f"Plan {self.word(me)}",
            }
            for place, role in enumerate(("user", "assistant") * 3)
        ]
        me.said += me.words[-12:]
        return sessions.import_sessions(caller, [json.dumps(row).encode() for row in rows], source="import")

    def do_import_into_anothers(self, me, caller):
        for theirs in self.other(me).sessions[:1]:
            row = {"session_id": theirs, "role": "user", "content": self.text(me), "timestamp": 1_750_000_000}
            sessions.import_sessions(caller, [json.dumps(row).encode()], source="import")

    def do_read_sessions(self, me, caller):
        own = self.own_session(me)
        lists = [
            sessions.list_sessions(caller, sessions.Listed(limit=50, archived=True)),
            sessions.list_trash(caller, limit=50),
        ]
        return [*lists, sessions.show_session(caller, own), list(sessions.export_sessions(caller, raw=True))]

    def do_rename(self, me, caller):
        return sessions.rename_session(caller, self.own_session(me), f"Plan {self.word(me)}")

    def do_same_title(self, me, caller):
        renamed = sessions.rename_session(caller, self.own_session(me), "Garden plan")
        if not re.fullmatch(r"Garden plan( #\d+)?", renamed.title):
            raise Leak(renamed.title)
        with_title = [
            one
            for one in sessions.list_sessions(caller, sessions.Listed(limit=99, archived=True)).sessions
            if one.title
        ]
        numbered = sum(one.title.startswith("Garden plan") for one in with_title)
        if numbered == 1 and renamed.title != "Garden plan" and not sessions.list_trash(caller).sessions:
            raise Leak(f"{me.user}: a title of somebody else is taken")
        return [renamed, sessions.show_session(caller, "Garden plan")]

    def do_archive(self, me, caller):
        return sessions.archive_session(caller, self.own_session(me), archived=self.random.random() < 0.5)

    def do_delete(self, me, caller):
        return sessions.delete_sessions(caller, [self.own_session(me)])

    def do_restore(self, me, caller):
        return sessions.restore_session(caller, self.own_session(me))

    def do_scroll(self, me, caller):
        own = self.numbers(me, MESSAGES)
        return sessions.scroll(caller, self.random.choice(own)) if own else ""

    def do_search(self, me, caller):
        asked = [*self.random.sample(QUESTIONS, 4), me.marks[1], f"{me.marks[0]}*", *me.words[-1:]]
        return [self.found(me, search.search(caller, one)) for one in asked]

    def found(self, me: Person, answer: search.SearchAnswer) -> object:
        """Return an answer with all its parts; its counts must not cover what others said."""
        own = len(self.numbers(me, MESSAGES))
        for hits in answer.profiles:
            excluded = sum(hits.conversations.found.excluded.values())
            if len(hits.conversations.found.messages) + excluded > own:
                raise Leak(f"{me.user} has {own} messages, and a search counts more")
        return answer

    def do_search_inside(self, me, caller):
        own, theirs = self.own_session(me), self.other(me).sessions[:1]
        for one in theirs:
            self.probe(
                me, lambda name: search.search(caller, "tea", search.Filters(session=name)), one, NOBODYS["session"]
            )
        return search.search(caller, "tea", search.Filters(session=own))

    def do_search_filtered(self, _me, caller):
        chosen = (
            search.Filters(limit=40, roles=("user",)),
            search.Filters(limit=40, sources=("import",)),
            search.Filters(limit=40, after=1_700_000_000.0),
            search.Filters(limit=40),
        )
        return [search.search(caller, "tea garden", one) for one in chosen]

    def do_search_profile(self, _me, caller):
        return search.search(caller, "tea garden", search.Filters(limit=40, profiles=("default",)))

    def do_probe_words(self, me, caller):
        for word in self.other(me).said[-3:-1]:
            for ask in (word, f'"{word}"', f"{word[:9]}*"):
                nobodys = ask.replace(word[:9], "zzzunknow")
                self.probe(me, lambda one: search.search(caller, str(one)).as_json(), ask, nobodys)
                self.probe(me, lambda one: self.tool(me, caller, "session_search", query=one), ask, nobodys)
            wrong = "x" if word[8] != "x" else "y"
            found = search.search(caller, f"{word[:8]}{wrong}{word[9:]} tea")
            if any(word[:9] in term for one in found.profiles for term in one.conversations.found.terms):
                raise Leak(f"{me.user}: a correction shows {word} of somebody else")

    def do_probe_sessions(self, me, caller):
        theirs = self.other(me).sessions
        asks: list[Callable[[object], object]] = [
            lambda one: sessions.show_session(caller, one),
            lambda one: sessions.rename_session(caller, one, "mine"),
            lambda one: sessions.archive_session(caller, one),
            lambda one: sessions.delete_sessions(caller, [one]),
            lambda one: sessions.restore_session(caller, one),
            lambda one: list(sessions.export_sessions(caller, [one])),
            lambda one: forget.plan_forget_session(caller, one),
            lambda one: models.report_usage(caller, session=one),
            lambda one: models.sum_sessions(caller, [one]),
            lambda one: conversations.choose_session(caller, one, newest=False, incognito=False),
            lambda one: caller.space.agent(Opening(resume=one)),
            lambda one: conversations.compress_session(caller, one),
            caller.space.audit.of_session,
            lambda one: caller.space.outbox.waiting("elsewhere", one),
            lambda one: self.tool(me, caller, "session_search", session_id=one),
            lambda one: self.tool(me, caller, "session_search", query="tea", session_id=one),
        ]
        for name in theirs[-2:]:
            for ask in asks:
                self.probe(me, ask, name, NOBODYS["session"])
            self.probe(me, asks[0], name[:-1], NOBODYS["session"][:-1])

    def do_probe_messages(self, me, caller):
        for number in self.numbers(self.other(me), MESSAGES)[:2]:
            self.probe(me, lambda one: sessions.scroll(caller, one), number, NOBODYS["number"])
            self.probe(
                me,
                lambda one: self.tool(me, caller, "session_search", around_message_id=one),
                number,
                NOBODYS["number"],
            )

    def do_statistics(self, me, caller):
        found = caller.space.sessions.upkeep.stats()
        own = len(self.numbers(me, ALL_SESSIONS))
        if found["sessions"] + found["in_trash"] != own or found["messages"] != len(self.numbers(me, ALL_MESSAGES)):
            raise Leak(f"{me.user}: statistics count what others have: {found}")
        if sum(row["messages"] for row in found["growth"]) != found["messages"]:
            raise Leak(f"{me.user}: the growth counts what others have")
        return found["biggest"]

    def do_prune(self, me, caller):
        plan = upkeep.plan_prune(caller, days=0.0, max_megabytes=0.0)
        if plan.sessions.text_bytes > sum(self.numbers(me, TEXT_BYTES)):
            raise Leak(f"{me.user}: a prune counts what others have")
        return [plan, upkeep.plan_prune(caller, days=0.0)]

    def do_empty_trash(self, _me, caller):
        empty = upkeep.plan_prune(caller, days=100_000.0)
        return upkeep.prune(caller, empty, empty_trash=True)

    def do_forget_words(self, me, caller):
        words = self.random.choice((me.words[-1] if me.words else "tea", me.words[0] if me.words else "tea"))
        proposal = forget.plan_forget_words(caller, words)
        outcome = forget.forget(caller, proposal) if isinstance(proposal, forget.ForgetProposal) else proposal
        return [proposal, outcome]

    def do_plan_forgetting(self, me, caller):
        everything, words = forget.plan_forget_user(caller), forget.plan_forget_words(caller, "tea")
        for other in self.people.values():
            if other is not me and other.words:
                self.probe(me, lambda one: forget.plan_forget_words(caller, one), other.words[0], NOBODYS["word"])
        return [everything, words]

    def do_forget_session(self, me, caller):
        if len(me.sessions) < 3:
            return ""
        proposal = forget.plan_forget_session(caller, me.sessions[0])
        return forget.forget(caller, proposal) if isinstance(proposal, forget.ForgetProposal) else proposal

    def do_usage(self, me, caller):
        found = models.report_usage(caller, by="session")
        total = sum(self.numbers(me, "SELECT api_call_count FROM usage WHERE user_id = :user"))
        if (found.total.calls if found.total else 0) != total:
            raise Leak(f"{me.user}: usage counts calls of others")
        return found

    # external memories

    def do_queue(self, me, caller):
        key = self.word(me)
        write = Write(
            hook="sync_turn", session_id=self.own_session(me), idempotency_key=key, payload={"user": self.text(me)}
        )
        caller.space.outbox.add("elsewhere", [write])
        item = caller.space.outbox.head("elsewhere")
        if item is not None:
            caller.space.outbox.mark_failed(item, f"refused {key}", retry_after_seconds=3_600)
        return item and [item, item.payload]

    def do_outbox(self, me, caller):
        names = ["elsewhere", None, *(f"elsewhere/{one}" for one in self.people), f"holographic/{ANN}"]
        views = [providers.list_outbox(caller, name) for name in names]
        for shown in views:
            for lane in shown.lanes:
                own = self.numbers(
                    me, "SELECT count(*) FROM outbox WHERE user_id = :user AND provider LIKE 'elsewhere%'"
                )
                if lane.provider == "elsewhere" and lane.waiting + lane.refused > own[0]:
                    raise Leak(f"{me.user}: a lane counts writes of others")
        return [views, [item.payload for shown in views for item in shown.items]]

    def do_probe_outbox(self, me, caller):
        for number in self.numbers(self.other(me), "SELECT id FROM outbox WHERE user_id = :user")[:2]:
            for act in (providers.retry_outbox, providers.drop_outbox):
                self.probe(me, lambda one, act=act: act(caller, item_id=one), number, NOBODYS["number"])
        lane = f"elsewhere/{self.other(me).user}"
        queue = caller.space.outbox
        asks = [
            queue.head,
            queue.cursor_of,
            queue.items,
            lambda one: queue.take(one, holder="me", seconds=60),
            lambda one: queue.drop(provider=one),
            lambda one: queue.retry(provider=one),
            lambda one: queue.release(one, holder="them"),
            caller.space.audit.health,
            caller.space.audit.resume,
        ]
        for ask in asks if me.user == OWNER else ():
            self.probe(me, ask, lane, "elsewhere/nobody")

    def do_deliver(self, me, caller):
        queue = caller.space.outbox
        providers.retry_outbox(caller, provider="elsewhere")
        item = queue.take("elsewhere", holder=me.marks[0], seconds=0.0)
        if item is not None:
            queue.mark_delivered(item)
            queue.release("elsewhere", holder=me.marks[0])
        return [item, item and item.payload]

    def do_audit(self, me, caller):
        audit, own = caller.space.audit, self.own_session(me)
        record = CallRecord(own, f"{me.marks[0]}provider", "prefetch", 1_790_000_000.0, 0.1, "ok", 1, 1)
        audit.add(record, Health(failures=1, last_error=self.word(me), paused_until=4e9))
        audit.flush()
        healths = [audit.health(f"{one.marks[0]}provider") for one in self.people.values()]
        lanes = [audit.health(f"{one.marks[0]}provider/{one.user}") for one in self.people.values()]
        calls = [audit.of_session(name) for one in self.people.values() for name in one.sessions]
        return [providers.measure_providers(caller, days=10_000), healths, lanes, calls]

    def do_resume_provider(self, _me, caller):
        return caller.space.audit.resume()

    def do_status(self, me, caller):
        found = providers.report_status(caller)
        return [found, found.as_json(), providers.run_command(caller, "facts", [me.marks[0]])]

    def do_facts(self, me, caller):
        text, name = self.text(me), f"{self.word(me).title()}"
        add = self.tool(
            me,
            caller,
            "fact_store",
            action="add",
            content=f"{name} told Garden Club: {text}",
            category="own",
            entities=[name, "Garden Club"],
        )
        asked = [
            {"action": "search", "query": "tea garden"},
            {"action": "probe", "entity": "Garden Club"},
            {"action": "related", "entity": "Garden Club"},
            {"action": "reason", "entities": ["Garden Club", name]},
            {"action": "contradict"},
            {"action": "list", "limit": 50},
        ]
        return [add, *(self.tool(me, caller, "fact_store", **one) for one in asked)]

    def do_probe_facts(self, me, caller):
        path = self.app.home.path / "holographic.db"
        newest = "SELECT max(id) FROM facts WHERE user_id = :user HAVING max(id)"
        for (number,) in self.rows(path, newest, self.other(me)):
            for given in (
                {"action": "update", "content": "x"},
                {"action": "update", "category": "x"},
                {"action": "remove"},
            ):
                self.probe(
                    me,
                    lambda one, given=given: self.tool(me, caller, "fact_store", fact_id=one, **given),
                    number,
                    NOBODYS["number"],
                )
            self.probe(
                me,
                lambda one: self.tool(me, caller, "fact_feedback", action="helpful", fact_id=one),
                number,
                NOBODYS["number"],
            )

    # the agent and its tools

    def do_tools(self, me, caller):
        memory = [
            {"action": "read"},
            {"action": "search", "content": "tea"},
            {"action": "add", "content": self.text(me)},
        ]
        asked = [{}, {"query": self.random.choice(QUESTIONS), "limit": 9, "detail": "full"}, {"query": me.marks[1]}]
        answers = [self.tool(me, caller, "memory", target="memory", **one) for one in memory]
        return [*answers, *(self.tool(me, caller, "session_search", **one) for one in asked)]

    def do_run_tool(self, _me, caller):
        return tools.run_tool(caller, "session_search", {"query": "tea in the garden", "detail": "full"})

    def do_skill(self, me, caller):
        origin = self.random.choice(("agent", "background_review")) if me.skills else "agent"
        mark = SHARED if me.user == OWNER and origin == "agent" else me.marks[0]
        name = f"{mark}-{len(me.skills)}"
        me.skills.append(name)
        content = f"# {name}\n\n## Steps\n\n1. Water the {mark} garden.\n"
        made = self.tool(
            me, caller, "skill_manage", origin=origin, action="create", name=name, content=content,
            description=f"Grows {mark} tea number {len(me.skills)} in the garden.", confirm_new=True,
        )  # fmt: skip
        return [made, skills.list_pending(caller)]

    def do_read_skills(self, me, caller):
        lists = [skills.list_skills(caller), skills.list_skills(caller, "tea garden"), skills.measure_skills(caller)]
        views = [self.tool(me, caller, "skill_view", name=one) for one in me.skills[-2:]]
        logs = [skills.read_log(caller, one) for one in me.skills[-2:]]
        return [
            *lists,
            *views,
            *logs,
            caller.space.skill_tools.catalogue(),
            self.tool(me, caller, "skills_list", query="garden"),
        ]

    def do_change_skill(self, me, caller):
        name = me.skills[0] if me.skills else "none"
        mark = SHARED if me.user == OWNER else me.marks[0]
        patched = self.tool(
            me,
            caller,
            "skill_manage",
            action="patch",
            name=name,
            old_string=f"{mark} garden",
            new_string=f"{mark} tea garden",
        )
        return [patched, skills.undo_change(caller, name)]

    def do_probe_skills(self, me, caller):
        theirs = [
            name for one in self.people.values() if one is not me and one.user != OWNER for name in one.skills[:1]
        ]
        for name in theirs:
            nobodys = re.sub("^.{5}", "nobod", name)
            asks = (skills.show_skill, skills.read_log, skills.delete_skill, skills.undo_change, skills.purge_skill)
            for ask in asks:
                self.probe(me, lambda one, ask=ask: ask(caller, one), name, nobodys)

    def do_talk(self, me, caller):
        self.model = None
        return self.talk(me, caller, ["what do you know about tea in the garden?", f"remember that {self.text(me)}"])

    def do_talk_to_model(self, me, caller):
        asked = iter([Says("", (call("session_search", query="tea in the garden"),))])
        self.model = ScriptedModel(lambda _request: next(asked, f"Fine, {me.marks[0]}."))
        try:
            answer = self.talk(me, caller, [f"who likes tea? {self.text(me)}"])
            return [answer, self.model.requests]
        finally:
            self.model = None

    def talk(self, me: Person, caller: Caller, texts: list[str]) -> object:
        resume = SessionId(self.own_session(me)) if me.sessions and self.random.random() < 0.3 else None
        agent = caller.space.agent(Opening(resume=resume))
        try:
            answers = [anyio.run(agent.turn, text) for text in texts]
            if agent.session.id not in me.sessions:
                me.sessions.append(agent.session.id)
            return answers
        finally:
            agent.close()

    # people

    def do_export(self, _me, caller):
        return list(users.export_user(caller).lines)

    def do_administer(self, me, caller):
        if me.user == OWNER:
            listed = {one.id for one in users.list_users(caller)}
            return None if listed <= {*MARKS} else listed
        for act in (users.list_users, lambda one: one.for_user(OWNER), lambda one: users.create_user(one, "eve")):
            try:
                act(caller)
            except KeptError:
                continue
            raise Leak(f"{me.user} acts as an administrator")
        return None

    def do_command(self, me, _caller):
        commands = (
            ("memory", "show", "--json"),
            ("memory", "add", self.text(me)),
            ("memory", "log", "--json"),
            ("memory", "pending", "--json"),
            ("sessions", "list", "--json", "--limit", "50"),
            ("sessions", "list", "--trash", "--json"),
            ("sessions", "stats", "--json"),
            ("sessions", "list"),
            ("sessions", "search", "tea in the garden", "--json"),
            ("sessions", "search", "tea in the garden", "--profile", "default"),
            ("sessions", "search", "garden"),
            ("sessions", "export"),
            ("sessions", "show", self.own_session(me), "--json"),
            ("export",),
            ("forget", "--query", "tea", "--dry-run", "--json"),
            ("usage", "--json", "--by", "session"),
            ("tool", "session_search", '{"query": "tea in the garden"}'),
            ("skills", "list", "--json"),
            ("skills", "pending", "--json"),
            ("providers", "outbox", "list", "--json"),
            ("run", "what do you know about tea in the garden?"),
        )
        typed = self.random.sample(commands, 3)
        return [self.command(me, *one) for one in typed]

    def command(self, me: Person, *words: str) -> str:
        ran = self.kept(*(("--as", me.user) if me.user != OWNER else ()), *words)
        if words[0] == "run":  # its session is known to the person from now on
            me.sessions += [one for one in self.names(me) if one not in me.sessions]
        return f"{ran.out}\n{ran.err}"

    def names(self, me: Person) -> list[str]:
        return [str(one) for one in self.numbers(me, "SELECT id FROM sessions WHERE user_id = :user")]

    # runs

    def begin(self) -> None:
        """Give everyone something to lose."""
        first = ("import", "import", "import", "delete", "add_entry", "add_entry", "stage_entry", "skill", "queue")
        for name in (*first, "facts", "audit", "talk_to_model"):
            for me in self.people.values():
                self.perform(me, name)

    def everything(self) -> None:
        """Let everyone do everything once, in a fixed order."""
        self.begin()
        for name in OPERATIONS:
            for me in self.people.values():
                self.perform(me, name)

    def close(self) -> None:
        while self.raw:
            self.raw.popitem()[1].close()

    def forget_someone(self, user: UserId) -> None:
        me = self.people[user]
        caller = self.caller(me)
        before = {one.user: self.stored(one) for one in self.people.values() if one is not me}
        self.close()  # the files of this person are removed
        proposal = forget.plan_forget_user(caller)
        assert isinstance(proposal, forget.ForgetProposal)
        self.look(me, forget.forget(caller, proposal), "forgetting a user shows")
        assert {one.user: self.stored(one) for one in self.people.values() if one is not me} == before
        assert not self.folder(me).exists()


OPERATIONS = tuple(name.removeprefix("do_") for name in vars(World) if name.startswith("do_"))
MESSAGES = (
    "SELECT m.id FROM messages AS m JOIN sessions AS s ON s.id = m.session_id "
    "WHERE s.user_id = :user AND s.trashed IS NULL AND m.state <> 'rewound'"
)
ALL_MESSAGES = "SELECT m.id FROM messages AS m JOIN sessions AS s ON s.id = m.session_id WHERE s.user_id = :user"
ALL_SESSIONS = "SELECT rowid FROM sessions WHERE user_id = :user"
TEXT_BYTES = (
    "SELECT coalesce(octet_length(content), 0) + coalesce(octet_length(tool_calls), 0) + coalesce(octet_length(api_content), 0) "
    "+ coalesce(octet_length(reasoning), 0) FROM messages WHERE session_id IN (SELECT id FROM sessions WHERE user_id = :user)"
)
STATE = """
SELECT 1, id, title, archived, trashed, message_count, ended, prompt_hash, parent_session_id FROM sessions
  WHERE user_id = :user
UNION ALL SELECT 2, m.id, m.session_id, m.content, m.state, m.api_content, NULL, NULL, NULL
  FROM messages AS m JOIN sessions AS s ON s.id = m.session_id WHERE s.user_id = :user
UNION ALL SELECT 3, n.session_id, n.key, n.value, NULL, NULL, NULL, NULL, NULL
  FROM notes AS n JOIN sessions AS s ON s.id = n.session_id WHERE s.user_id = :user
UNION ALL SELECT 4, session_id, day, model, task, api_call_count, input_tokens, NULL, NULL FROM usage
  WHERE user_id = :user
UNION ALL SELECT 5, id, payload, attempts, not_before, last_error, NULL, NULL, NULL FROM outbox
  WHERE user_id = :user AND provider LIKE 'elsewhere%'
UNION ALL SELECT 6, provider, delivered, dropped, lease_holder, lease_until, ledger_id, NULL, NULL FROM outbox_lanes
  WHERE user_id = :user AND provider LIKE 'elsewhere%'
UNION ALL SELECT 7, provider, failures, paused_until, last_error, NULL, NULL, NULL, NULL FROM provider_health
  WHERE user_id = :user AND provider LIKE '%qzprovider%'
ORDER BY 1, 2, 3
"""
"""What a person has in the shared database; provider calls and deliveries by background threads are left out."""
FACTS = """
SELECT id, text, category, tags, trust, helpful FROM facts WHERE user_id = :user AND category IN ('own', 'x') ORDER BY id
"""
EDITS = "SELECT id, before, after FROM edits WHERE :user IS NOT NULL"
FOLDERS = {ANN: "ann", BOB: home_module.user_folder(BOB)}


def text_of(value: object) -> str:
    """Return everything that an answer holds, as text."""
    form = getattr(value, "as_json", None)
    if isinstance(value, list | tuple):
        return "\n".join(text_of(one) for one in value)
    return f"{value!r} {form()!r}" if callable(form) and not isinstance(value, type) else repr(value)


@pytest.fixture
def open_world(home, kept, tmp_path):
    """Opens an app with three people on the test's home."""
    apps, worlds = [], []

    def start(seed: int) -> World:
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(CONFIG)
        heard: list[object] = []
        apps.append(open_app(str(home), environ={"HOME": str(tmp_path / "person")}, sink=heard.append))
        worlds.append(World(apps[-1], kept, heard, seed=seed))
        return worlds[-1]

    yield start
    for world in worlds:
        world.close()
    for app in apps:
        app.close()


@pytest.mark.timeout(600)  # seconds of work, and minutes on a busy machine
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_of_one_person_reaches_another(open_world, seed):
    """Fifty and more random operations of each person, interleaved, through every surface."""
    world = open_world(seed)
    world.begin()

    turns = [me for me in world.people.values() for _ in range(50)]
    world.random.shuffle(turns)
    for me in turns:
        world.perform(me, world.random.choice(OPERATIONS))
    world.forget_someone(ANN)


def test_everything_once(open_world):
    """Everyone does everything once: the operations with which a missing filter is found."""
    world = open_world(0)

    world.everything()

    assert world.done > 3 * len(OPERATIONS)


class ServerWorld(World):
    """The same on a PostgreSQL server, whose role row-level security binds."""

    def rows(self, path, query, one):
        """Read the rows of a person as the server shows them to that person."""
        if path != self.app.home.database:
            return super().rows(path, query, one)
        database = self.app.server.for_user(one.user)
        query = query.replace("SELECT rowid FROM sessions", "SELECT 1 FROM sessions").replace(":user", "%(user)s")
        with database.reading() as unit:
            return unit.connection.execute(query, {"user": database.key})

    def stored(self, one):
        digest = hashlib.sha256()
        database = self.app.server.for_user(one.user)
        with database.reading() as unit:
            # the outbox is left out: threads in the background deliver from it
            for table in ("sessions", "messages", "notes", "usage", "pages", "edits", "documents", "nodes"):
                sql = f"SELECT t::text FROM {table} AS t WHERE user_id = %(user)s ORDER BY 1"
                for (row,) in unit.connection.execute(sql, {"user": database.key}):
                    digest.update(str(row).encode("utf-8", "surrogatepass"))
        for path in sorted(self.folder(one).glob("skills/*/SKILL.md")):
            digest.update(path.read_bytes())
        return digest.hexdigest()


@pytest.fixture(params=["both fences", "conditions alone", "row-level security alone"])
def open_world_on_server(request, home, kept, tmp_path, postgres_server, monkeypatch):
    """Opens an app with three people on a server: as it is, and with one of the two fences taken away."""
    from wellkept.storage.postgres import unit as unit_module
    from wellkept.storage.postgres.database import connect_as_owner
    from wellkept.storage.postgres.schema import list_user_tables

    url = postgres_server.create_database()
    if request.param == "conditions alone":
        with connect_as_owner(postgres_server.owner_url(url)) as unit:
            for table in list_user_tables():
                unit.execute(f"ALTER TABLE kept.{table} DISABLE ROW LEVEL SECURITY")
    elif request.param == "row-level security alone":
        real, named = unit_module.to_driver, re.compile(rb"((?:\w+\.)?(?:tenant|user_id)) = (%\((?:tenant|user)\)s)")
        monkeypatch.setattr(unit_module, "to_driver", lambda sql: named.sub(rb"\2 IS NOT NULL", real(sql)))
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(f"{CONFIG}storage: {{url: '{url}'}}\n")
    heard: list[object] = []
    app = open_app(str(home), environ={"HOME": str(tmp_path / "person")}, sink=heard.append)
    yield ServerWorld(app, kept, heard, seed=0)
    app.close()
    postgres_server.drop_database(url)


@pytest.mark.heavy
def test_everything_once_on_a_server(open_world_on_server):
    """Everyone does everything once, and either fence alone keeps the people apart."""
    open_world_on_server.everything()
    open_world_on_server.forget_someone(ANN)


# Filters. Each is taken out in turn, and "everything once" must then find a leak.

SQL_FILES = {
    "sessions": ("wellkept.sessions.rows", "sessions.sql"),
    "messages": ("wellkept.sessions.rows", "messages.sql"),
    "search": ("wellkept.sessions.sqlite", "search.sql"),
    "transfer": ("wellkept.sessions.rows", "transfer.sql"),
    "forgetting": ("wellkept.sessions.rows", "forgetting.sql"),
    "upkeep": ("wellkept.sessions.rows", "upkeep.sql"),
    "file_upkeep": ("wellkept.sessions.sqlite", "upkeep.sql"),
    "removal": ("wellkept.sessions.rows", "removal.sql"),
    "outbox": ("wellkept.providers", "outbox.sql"),
    "audit": ("wellkept.providers", "audit.sql"),
    "facts": ("wellkept.providers.holographic", "store.sql"),
}
CONDITION = re.compile(r"(?:\w+\.)?user_id (?P<sign>=|<>) (?P<value>:user|\?\d?|there\.user_id|l\.user_id)")


def for_file(text: str) -> str:
    """Return a statement as SQLite reads it."""
    return re.sub(r"/\*!.*?\*/ ?", "", text, flags=re.DOTALL)


def without_condition(text: str, place: int) -> str:
    """Return a statement in which the user condition at `place` is always true; its binding stays."""
    text = for_file(text)
    found = list(CONDITION.finditer(text))[place]
    value = found["value"]
    always = f"{value} IS {'NOT NULL' if found['sign'] == '=' else 'NULL'}"
    return text[: found.start()] + always + text[found.end() :]


def sql_filters() -> list[str]:
    """Return the names of all user conditions in statements, as file.statement or file.statement.place."""
    names = []
    for file, place in SQL_FILES.items():
        for name, text in statements(*place).by_name.items():
            names += [f"{file}.{name}.{number}" for number, _ in enumerate(CONDITION.finditer(for_file(text)))]
    return names


@contextmanager
def taken_out(name: str, monkeypatch):
    """Take one filter out for a while."""
    with monkeypatch.context() as patch:
        if name in BINDINGS:
            BINDINGS[name](patch)
        else:
            file, statement, place = name.split(".")
            texts = statements(*SQL_FILES[file])
            patch.setattr(texts, statement, without_condition(getattr(texts, statement), int(place)))
        yield


def of_owner(part: str):
    """Build a part of every user's space for the owner."""

    def replace_part(patch):
        made = getattr(UserSpace, part).func

        def build(space):
            return made(space if space.user == OWNER else space.app.owner)

        prop = cached_property(build)
        prop.__set_name__(UserSpace, part)
        patch.setattr(UserSpace, part, prop)

    return replace_part


def share_listeners(patch):
    """Send every user's events to everyone."""
    real = UserSpace.__init__

    def init(space, app, user):
        real(space, app, user)
        if user != OWNER:
            space.listeners = app.owner.listeners

    patch.setattr(UserSpace, "__init__", init)


REAL_OPEN = HolographicProvider._open
BINDINGS = {
    **{
        f"UserSpace.{part}": of_owner(part)
        for part in ("memory", "approvals", "sessions", "skill_tools", "outbox", "audit", "agents")
    },
    "UserSpace.listeners": share_listeners,
    "Caller.require": lambda patch: patch.setattr(Caller, "require", lambda *_: None),
    "Home.for_user": lambda patch: patch.setattr(home_module.Home, "for_user", lambda home, _user: home),
    "App.open_sessions": lambda patch: patch.setattr(
        App, "open_sessions", lambda app, user, _sink: app._session_store.for_user(user, sink=app.sink)
    ),
    "StartContext.user_id": lambda patch: patch.setattr(
        HolographicProvider, "_open", lambda own, path, _user: REAL_OPEN(own, path, OWNER)
    ),
    "command line --as": lambda patch: patch.setattr(Caller, "for_user", lambda caller, _user: caller),
    "corrections": lambda patch: patch.setattr(
        engine._Search, "_shown_terms", lambda own, _masks: [term.text for term in own._terms]
    ),
}
"""Filters that are no SQL: what a user's parts are built for, who hears events, who may administer."""


class UserFacts(UserContract):
    """The contract of session stores between users, on files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stores: list[SqliteSessionStore] = []

    def store(self, *, clock=None, sink=ignore):
        self.stores.append(SqliteSessionStore(self.folder / f"{len(self.stores)}.db", clock=clock, sink=sink))
        return self.stores[-1]

    def check(self) -> None:
        try:
            for name in (one for one in vars(UserContract) if one.startswith("test_")):
                getattr(self, name)()
        finally:
            for store in self.stores:
                store.close()


def check_catalog(folder: Path) -> None:
    """The catalogue of a search knows own sessions only: it filters twice."""
    with closing(SqliteSessionStore(folder / "catalog.db")) as store:
        for user, name in ((ANN, "anns"), (BOB, "bobs")):
            store.for_user(user).create(Session(id=SessionId(name), source="cli", started=1.0))
        with store.database.reading() as connection:
            catalog = SqliteCatalog(connection, user=BOB)
            assert catalog.session_ids(SessionFilter(None, (), None, None), 9) == ["bobs"]
            assert [*catalog.sessions(["anns", "bobs"])] == ["bobs"]


def check_queues(folder: Path) -> None:
    """A queue is reached by its user only, also where a provider's name spells the lane of somebody else."""
    with closing(SqliteSessionStore(folder / "queues.db")) as store:
        clock, lane = FixedClock(), f"elsewhere/{ANN}"
        theirs = Outbox(store.database, user=ANN, clock=clock)
        mine = Outbox(store.database, user=OWNER, clock=clock, limit=1)
        first, second, third = (
            Write(hook="sync_turn", session_id="s", idempotency_key=key, payload={}) for key in ("a", "b", "c")
        )
        theirs.add("elsewhere", [first, second])
        item = theirs.take("elsewhere", holder="them", seconds=60)
        theirs.mark_failed(theirs.items()[1], "later", retry_after_seconds=9)
        with theirs.unit() as unit:
            theirs.set_cursor(unit, "elsewhere", 7)
        before = (theirs.items(), theirs.lanes(), theirs.cursor_of("elsewhere"))
        assert item is not None

        assert (mine.head(lane), mine.items(lane), mine.waiting(lane, "s"), mine.cursor_of(lane)) == (None, [], 0, None)
        mine.add(lane, [third])
        assert (len(mine.items(lane)), theirs.lanes()) == (1, before[1])
        mine.add(lane, [replace(third, idempotency_key="d")])
        mine.mark_delivered(item)
        mine.mark_failed(item, "x", retry_after_seconds=9)
        mine.release(lane, holder="them")
        own = mine.take(lane, holder="me", seconds=60)
        assert own is not None
        mine.mark_delivered(replace(own, provider=lane))
        with mine.unit() as unit:
            mine.set_cursor(unit, lane, 9)
            mine.forget(unit, "s")
        mine.retry(provider=lane)
        mine.drop(provider=lane)
        assert mine.lanes() == []
        assert (theirs.items(), theirs.lanes(), theirs.cursor_of("elsewhere")) == before
        assert theirs.take("elsewhere", holder="others", seconds=60) is None
        assert theirs.take("elsewhere", holder="them", seconds=60) is not None


def check_records(folder: Path) -> None:
    """Records of provider calls and the health of providers are read, ended and deleted by their user only."""
    with closing(SqliteSessionStore(folder / "records.db")) as store:
        theirs, mine = (Audit(store.database, user=one, clock=FixedClock()) for one in (ANN, OWNER))
        lane = f"elsewhere/{ANN}"
        theirs.add(
            CallRecord("s", "elsewhere", "prefetch", FixedClock().now().timestamp(), 0.1, "ok", 1, 1),
            Health(failures=3, paused_until=4e9),
        )
        theirs.flush()

        assert (mine.of_session("s"), mine.stats(days=9), mine.health(lane)) == ([], [], Health())
        mine.resume(lane)
        mine.resume()
        assert mine.forget("s") == 0
        assert theirs.health("elsewhere").failures == 3
        assert len(theirs.of_session("s")) == 1
        theirs.close()


def check_facts(folder: Path) -> None:
    """The same fact of two people is two facts, and a fact of somebody else is not changed."""
    theirs, mine = (FactStore(folder / "facts.db", user=one, clock=FixedClock(), dim=64) for one in (ANN, OWNER))
    with closing(theirs), closing(mine):
        number, _ = theirs.add("Ann: tea is in the garden.", trust=0.5, session_id="s", entities=["Tea", "Garden"])
        fact = theirs.fact(number)
        assert fact is not None

        reads = [
            lambda one: one.count(),
            lambda one: one.find(fact.text),
            lambda one: one.fact(number),
            lambda one: one.facts([number]),
            lambda one: one.outlines([number]),
            lambda one: one.vectors_of([number]),
            lambda one: one.newest(),
            lambda one: one.vectors(min_trust=0.0, limit=9),
            lambda one: one.session_sizes(),
            lambda one: one.speakers(["ann"]),
            lambda one: one.postings("tea"),
            lambda one: one.facts_about("Tea", min_trust=0.0),
            lambda one: one.related_entities("Tea", min_trust=0.0, limit=9),
        ]
        for place, read in enumerate(reads):
            assert read(theirs), place  # there is something to find
            assert not read(mine), place
        assert mine.feedback(number, 0.1) is None
        mine.describe(fact, category="mine", tags=None, trust=None)
        assert theirs.fact(number) == fact
        assert mine.add(fact.text, trust=0.5)[1]


NARROW = (lambda folder: UserFacts(folder).check(), check_catalog, check_queues, check_records, check_facts)
"""Checks of single objects. In the app some filters stand behind another one, so that taking one out shows only here."""


def find_leak(open_world, folder: Path) -> str | None:
    """Return what is found when everyone does everything, or by the narrow checks; None for nothing."""
    try:
        for check in NARROW:
            check(folder)
        open_world(0).everything()
    except (AssertionError, KeptError) as error:  # anything else is a mistake in this test
        return repr(error)
    return None


SAMPLE = (
    "UserSpace.memory",
    "Home.for_user",
    "sessions.recent.0",
    "search.sessions.0",
    "forgetting.every.0",
    "facts.newest.0",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_filters_are_needed(open_world, monkeypatch, tmp_path, name):
    """Without one of these filters something of one person shows, or changes, for another."""
    with taken_out(name, monkeypatch):
        assert find_leak(open_world, tmp_path) is not None


@pytest.mark.heavy
@pytest.mark.parametrize("name", sorted({*BINDINGS, *sql_filters()} - {*SAMPLE}))
def test_every_filter_is_needed(open_world, monkeypatch, tmp_path, name):
    """Without any one filter something of one person shows, or changes, for another."""
    with taken_out(name, monkeypatch):
        assert find_leak(open_world, tmp_path) is not None


def test_filters_have_narrow_checks(tmp_path):
    """The narrow checks hold while every filter is in place."""
    for check in NARROW:
        check(tmp_path)


def test_two_apps_in_one_process(tmp_path, monkeypatch):
    """Two homes open side by side share neither events, nor log files, nor what is stored."""
    heard: dict[str, list[object]] = {"one": [], "two": []}
    apps = {
        name: open_app(str(tmp_path / name), environ={"HOME": str(tmp_path)}, sink=told.append)
        for name, told in heard.items()
    }
    monkeypatch.chdir(tmp_path)
    try:
        for name, app in apps.items():
            for user in (OWNER, ANN):
                caller = app.caller(user)
                memory.edit_entry(caller, Add(f"{name}qz likes tea in the garden"))
                agent = caller.space.agent(Opening())
                answer = anyio.run(agent.turn, "who likes tea in the garden?")
                agent.close()
                assert f"{name}qz" in answer.text
                logging.getLogger("wellkept.test").warning("%sqz was here", name)
        for name, other in (("one", "two"), ("two", "one")):
            assert f"{other}qz" not in text_of(heard[name])
            log = (tmp_path / name / "logs" / "kept.log").read_text()
            assert f"{name}qz was here" in log
            assert f"{other}qz" not in log
            assert f"{other}qz" not in text_of(memory.show_pages(apps[name].caller()))
            assert f"{other}qz" not in text_of(list(sessions.export_sessions(apps[name].caller())))
    finally:
        for app in apps.values():
            app.close()


def test_ids_that_look_alike_have_folders_of_their_own(open_world):
    """Two ids that sanitise to the same letters are two users."""
    app = open_world(0).app
    for user in (BOB, SAME_BUT_FOR_CASE, UserId("bob__.")):
        memory.edit_entry(app.caller(user), Add(f"{user} was here"))

    shown = [text_of(memory.show_pages(app.caller(user))) for user in (BOB, SAME_BUT_FOR_CASE)]
    assert [text.count("was here") > 0 and BOB in text for text in shown] == [True, False]


def test_a_token_is_for_the_user_who_is_acted_for(kept, home):
    """Not for the owner, whose data they would open; `--user` names another one."""
    kept("user", "create", "ann")

    own = kept("--as", "ann", "serve", "token", "create", "--json").json
    named = kept("serve", "token", "create", "--user", "ann", "--json").json
    owners = kept("serve", "token", "create", "--json").json

    assert (own["user_id"], named["user_id"], owners["user_id"]) == ("ann", "ann", "owner")
