"""Removal in every tier, file and provider: what a plan holds, how it is carried out, and how that is verified."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import astuple

from wellkept.app.places import FACT_COLUMNS, LEDGER_COLUMNS, SERVER_COLUMNS, STATE_COLUMNS, OnForget
from wellkept.core.errors import KeptError
from wellkept.core.ids import SourceName, UserId
from wellkept.core.provenance import covers
from wellkept.core.values import hide
from wellkept.forgetting.files import HeldFile, drop_spooled, find_files, iterate_files, treat_file
from wellkept.memory.page import PERSON, Author, Change, Page, Target, steps_between
from wellkept.memory.store import MemoryStore, nameless_folder
from wellkept.providers.base import ForgetRequest, StartContext
from wellkept.providers.manager import ForgetAnswer, ProviderManager, chosen_names
from wellkept.skills.editor import SkillEditor
from wellkept.skills.forgetting import SkillPassages, find_learnt, find_passages, forget_learnt, forget_passages
from wellkept.storage.columns import Part, TextColumn, count_holding, scrub
from wellkept.storage.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.ports import Database
    from wellkept.core.text import JSON
    from wellkept.memory.approval import Pending
    from wellkept.sessions.reports import ForgetPlan, ForgetReport
    from wellkept.skills.approval import PendingChange

ORIGIN = "forget"
_LONG_ID = 12
"""A shorter id of an imported session occurs in files by chance."""
_LONG_PASSAGE = 40
_TELLING_BYTES = 8
"""Shorter texts occur in a database by chance, among numbers and ids."""


class FullForgetPlan(Struct, frozen=True):
    """What would be removed in every tier; shown to the person before anything is removed."""

    sessions: ForgetPlan
    entries: tuple[tuple[Target, str], ...] = ()
    """Memory entries that the ledger traces to the forgotten sessions, or that contain the words."""
    gone_entries: tuple[tuple[Target, str], ...] = ()
    """Entries of the forgotten sessions that are on no page any more, but still in the ledger."""
    pending: tuple[Pending, ...] = ()
    skills: tuple[SkillPassages, ...] = ()
    files: tuple[HeldFile, ...] = ()
    """Other files that hold the text."""
    providers: tuple[ForgetAnswer, ...] = ()
    """What the external memories report that they contain."""
    passages: tuple[str, ...] = ()
    """Parts of forgotten conversations, to recognise copies of them; never shown or stored."""
    other_rows: int = 0
    """Rows of other tables that hold the words: notes, receipts, ids of clients."""
    projects: tuple[str, ...] = ()
    """Pages of projects whose folder is named with the words; they get a name without it."""
    everything: bool = False
    source: str | None = None
    """The client whose sessions are forgotten; its items in the spool are removed too."""
    project: str | None = None
    origin: str | None = None
    """The source from which everything is forgotten."""

    __repr__ = hide("passages", "projects")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to forget."""
        held = any(answer.holds for answer in self.providers) or any(not file.problem for file in self.files)
        rows = self.other_rows or self.projects
        return self.sessions.is_empty and not (self.entries or self.pending or self.skills or rows or held)

    @property
    def texts(self) -> Texts:
        """Return the words that must be removed everywhere."""
        return Texts(self.sessions.texts)

    @property
    def memory_texts(self) -> list[str]:
        """Return the words and the entries, which must be removed from memory and its copies."""
        return [*self.sessions.texts, *(text for _, text in (*self.entries, *self.gone_entries))]

    @property
    def long_passages(self) -> Texts:
        """Return the passages that are too long to occur elsewhere by chance."""
        return Texts(text for text in self.passages if len(text) >= _LONG_PASSAGE)

    @property
    def request(self) -> ForgetRequest:
        """Return the request for the providers."""
        ids = tuple(map(str, self.sessions.sessions))
        return ForgetRequest(texts=tuple(self.memory_texts), session_ids=ids, everything=self.everything)

    def as_json(self) -> dict[str, JSON]:
        """Return the plan without any content."""
        return {
            **self.sessions.as_json(),
            "memory_entries": len(self.entries),
            "pending": len(self.pending),
            "other_rows": self.other_rows,
            "project_names": len(self.projects),
            "skills": [skill.as_json() for skill in self.skills],
            "files": [file.as_json() for file in self.files],
            "providers": [answer.as_json() for answer in self.providers],
        }


class FullForgetReport(Struct, frozen=True):
    """What was removed in every tier, and what a search of the home and the providers found afterwards."""

    sessions: ForgetReport
    memory_entries: int
    ledger_rows: int
    pending: int
    queued_writes: int
    prompts: int
    other_rows: int
    """Rows of other tables that were removed or cleared: notes, receipts, errors of providers."""
    skills: tuple[SkillPassages, ...]
    files: tuple[str, ...]
    """Files that were changed or removed."""
    providers: tuple[ForgetAnswer, ...]
    entries_left: int
    """Entries that could not be removed from their page; if not 0, forget again."""
    rows_left: int
    """Rows of databases that still hold the words."""
    files_left: tuple[HeldFile, ...]
    """Files that still hold the words, or could not be searched."""
    files_searched: int
    databases_by_row: bool
    """Whether the databases were verified by their rows only, not by their bytes."""
    on_server: bool = False
    """Whether the rows were on a server, whose files and log keep the bytes of deleted rows."""

    def as_json(self) -> dict[str, JSON]:
        """Return the report without any content."""
        return {
            **self.sessions.as_json(),
            "memory_entries": self.memory_entries,
            "ledger_rows": self.ledger_rows,
            "pending": self.pending,
            "queued_writes": self.queued_writes,
            "prompts": self.prompts,
            "other_rows": self.other_rows,
            "skills": [skill.as_json() for skill in self.skills],
            "files": list(self.files),
            "providers": [answer.as_json() for answer in self.providers],
            "entries_left": self.entries_left,
            "rows_left": self.rows_left,
            "files_left": [{"path": file.name, "remedy": file.problem or file.remedy} for file in self.files_left],
            "files_searched": self.files_searched,
            "databases_verified_by": "rows" if self.databases_by_row else "rows and bytes",
            "server_keeps_bytes": self.on_server,
        }


class Forgetter:
    """Plans and carries out forgetting for one user."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        space = caller.space
        self._sessions, self._memory, self._approvals = space.sessions, space.memory, space.approvals
        self._outbox = space.outbox
        self._skills = space.skill_tools
        self._editor = SkillEditor(self._skills.library)

    def plan(
        self,
        plan: ForgetPlan,
        *,
        everything: bool = False,
        known: Sequence[tuple[Target, str]] = (),
        origin: str | None = None,
    ) -> FullForgetPlan:
        """Extend the session store's plan to the other tiers; `everything` includes all data of the user there.

        `known` are entries that an interrupted run had found: the ledger may no longer contain them.
        """
        traced = {*known, *(self._all_entries() if everything else self._find_entries(plan))}
        traced |= self._find_entries_from(origin) if origin else set()
        texts = Texts(plan.texts)
        entries = [
            (target, entry)
            for store, target in self._pages()
            for entry in (*store.entries(target), *store.archived(target))
            if everything or (target, entry) in traced or texts.are_in(entry)
        ]
        gone = sorted(traced.difference(entries))
        entry_texts = [text for _, text in (*entries, *gone)]
        passages = [*entry_texts, *(session for session in plan.sessions[:_LONG_ID] if len(session) >= _LONG_ID)]
        passages += self._sessions.forgetting.passages(plan) if plan.sessions or origin else []
        first = FullForgetPlan(plan, tuple(entries), tuple(gone), everything=everything)
        waiting = self._approvals.waiting() if everything else self._pending(plan, entry_texts, origin)
        return FullForgetPlan(
            plan,
            tuple(entries),
            tuple(gone),
            pending=tuple(waiting),
            skills=(*find_passages(self._editor, texts), *(self._find_learnt(origin) if origin else ())),
            files=tuple(self._other_files(texts, Texts(passages))),
            providers=tuple(find_at_providers(self._caller, first.request)),
            passages=tuple(passages),
            other_rows=self._count_rows(texts, by_store=False),
            projects=tuple(name for name in self._memory.pages.projects() if texts.are_in(name)),
            everything=everything,
            origin=origin,
        )

    def _other_files(self, texts: Texts, passages: Texts) -> list[HeldFile]:
        by_tier = {OnForget.SKILL, OnForget.ENTRIES}
        files = find_files(self._caller, texts, passages)
        return [file for file in files if file.place is None or file.place.on_forget not in by_tier]

    def _pages(self) -> Iterator[tuple[MemoryStore, Target]]:
        """Yield every page of the user: the two, and that of each project."""
        yield from ((self._memory, target) for target in (Target.MEMORY, Target.USER))
        yield from ((store, Target.PROJECT) for store in self._memory.projects())

    def _all_entries(self) -> set[tuple[Target, str]]:
        rows = self._memory.ledger.rows(everywhere=True)
        return {(row.target, text) for row in rows for text in (row.step.before, row.step.after) if text}

    def _find_entries(self, plan: ForgetPlan) -> set[tuple[Target, str]]:
        going = set(plan.sessions)
        rows = self._memory.ledger.rows(everywhere=True) if going else []
        return {(row.target, row.step.after) for row in rows if row.session_id in going and row.step.after}

    def _find_entries_from(self, origin: str) -> set[tuple[Target, str]]:
        """Return the entries that came from a source, and those that an agent derived from them."""
        found: set[tuple[Target, str]] = set()
        for row in self._memory.ledger.rows(everywhere=True):
            text = row.step.after or (row.step.before if row.step.action == "archive" else None)
            is_copy = row.origin not in PERSON and (row.target, row.step.before or "") in found
            if text and (is_copy or (row.source is not None and covers(origin, row.source))):
                found.add((row.target, text))
        return found

    def _pending(self, plan: ForgetPlan, entry_texts: Sequence[str], origin: str | None) -> list[Pending]:
        texts = Texts([*plan.texts, *entry_texts])
        return [
            waiting
            for waiting in self._approvals.waiting()
            if waiting.session_id in plan.sessions
            or texts.are_in(_text(waiting))
            or (origin is not None and any(covers(origin, source) for source in waiting.sources.values()))
        ]

    def _find_learnt(self, origin: str) -> list[SkillPassages]:
        """Return the skills that came from a source, and those that a pending change would write."""
        waiting = {one.change.name for one in self._find_skill_changes(origin)}
        learnt = find_learnt(self._editor, _from(origin))
        return learnt + [SkillPassages(name, (), 0, 0) for name in waiting.difference(one.name for one in learnt)]

    def _find_skill_changes(self, origin: str) -> list[PendingChange]:
        """Return the pending changes of skills that came from a source."""
        waiting = self._skills.pending.waiting()
        return [one for one in waiting if one.source and covers(origin, SourceName(one.source))]

    def carry_out(self, plan: FullForgetPlan) -> FullForgetReport:
        """Remove everything in the plan, then verify it; may be repeated after an interruption.

        Queued writes are removed first and providers cleaned second, so that nothing is delivered again; then pages and
        ledger, so that nothing is mirrored or shown again; files last, because earlier steps may write logs and copies.
        """
        texts = plan.texts
        queued = self._unqueue(plan)
        answers = forget_at_providers(self._caller, plan.request)
        left = self._remove_entries(plan)
        blanked = self._blank_ledger(plan)
        for project in plan.projects:
            self._memory.rename_project(project, nameless_folder(project))
        for waiting in plan.pending:
            self._approvals.discard(waiting.id)
        skills = forget_passages(self._editor, texts)
        if plan.origin is not None:
            skills += forget_learnt(self._editor, _from(plan.origin))
            for change in self._find_skill_changes(plan.origin):
                self._skills.pending.discard(change.id)
        prompts = self._sessions.forgetting.scrub_entries([text for _, text in (*plan.entries, *plan.gone_entries)])
        other = scrub_rows(self._caller, STATE_COLUMNS, texts) if texts else 0
        other += _remove_rows(self._caller.database, {"user": self._caller.user}, "injections")  # any may hold the text
        if plan.everything:
            other += self._sessions.receipts.forget_all()  # including those without a session
            person = {"person": self._caller.user}
            other += _remove_rows(self._caller.app.database, person, "platform_messages", "platform_people")
            if self._caller.is_owner:  # the people in it belong to no user yet
                sql = "DELETE FROM pairing_codes /*! WHERE tenant = :tenant */ RETURNING 1"
                with self._caller.app.database.writing() as unit:
                    other += len(list(unit.execute(sql)))
        report = self._sessions.forgetting.carry_out(plan.sessions)
        self._memory.ledger.purge()
        if plan.source is not None:
            queued += drop_spooled(self._caller, plan.source, plan.project)
        files = self._treat_files(plan)
        on_server = self._caller.app.server is not None
        by_bytes = not on_server and self._has_one_user and report.bytes_gone and _are_telling(texts)
        searched, files_left = self._search(plan, by_bytes=by_bytes)
        return FullForgetReport(
            sessions=report,
            memory_entries=len(plan.entries) - left,
            ledger_rows=blanked,
            pending=len(plan.pending),
            queued_writes=queued,
            prompts=prompts,
            other_rows=other,
            skills=skills,
            files=files,
            providers=tuple(answers),
            entries_left=left,
            rows_left=self._count_rows(texts),
            files_left=files_left,
            files_searched=searched,
            databases_by_row=not by_bytes,
            on_server=on_server,
        )

    def _unqueue(self, plan: FullForgetPlan) -> int:
        with self._outbox.unit() as unit:
            count = sum(self._outbox.forget(unit, session_id) for session_id in plan.sessions.sessions)
        columns = [column for column in STATE_COLUMNS if column.table == "outbox"]
        texts = Texts(plan.memory_texts)
        return count + scrub_rows(self._caller, columns, texts)

    def _remove_entries(self, plan: FullForgetPlan) -> int:
        """Remove the planned entries from the pages; return how many are still there."""
        # record the removal under the forgotten session, so that forgetting its rows covers this one too
        author = Author(origin=ORIGIN, session_id=next(iter(plan.sessions.sessions), None))
        for store, target in self._pages():
            going = {entry for page, entry in plan.entries if page is target}

            def decide(page: Page, going: set[str] = going) -> Change:
                rest = tuple(entry for entry in page.entries if entry not in going)
                return Change(rest, steps_between(page.entries, rest), "Forgotten.")

            if not going.isdisjoint(store.entries(target)):
                store.write(target, decide, author)
            store.drop_archived(target, going)
        held = {
            (target, entry)
            for store, target in self._pages()
            for entry in (*store.entries(target), *store.archived(target))
        }
        return sum(entry in held for entry in plan.entries)

    def _blank_ledger(self, plan: FullForgetPlan) -> int:
        ledger = self._memory.ledger
        blanked = {row for session_id in plan.sessions.sessions for row in ledger.forget_session(session_id)}
        stores = [self._memory, *self._memory.projects()]
        gone = [(store.ledger, target, text) for store in stores for target, text in plan.gone_entries]
        blanked.update(row for own, target, text in gone for row in own.forget_entry(target, text))
        texts = [text for _, text in plan.entries]
        neutral_id = self._sessions.forgetting.prepare_neutral_ids()
        blanked.update(ledger.forget_words([*texts, *plan.sessions.texts]))
        blanked.update(ledger.rename_sessions(plan.sessions.texts, neutral_id))
        return len(blanked)

    def _treat_files(self, plan: FullForgetPlan) -> tuple[str, ...]:
        texts, passages = Texts(plan.memory_texts), Texts([*plan.memory_texts, *plan.passages])
        treated = []
        for file in find_files(self._caller, plan.texts, Texts(plan.passages)):
            if file.place is None or file.place.on_forget is OnForget.NAME:
                continue
            treat_file(self._caller, file, passages if file.place.shared else texts)
            if not file.path.exists() or not texts.may_be_in_file(file.path):
                treated.append(file.name)
        return tuple(treated)

    def _count_rows(self, texts: Texts, *, by_store: bool = True) -> int:
        """Return how many rows hold the texts; without `by_store` only those that no store removes."""
        if not texts:
            return 0
        home, user, server = self._caller.space.home, self._caller.user, self._caller.app.server
        databases = [(home.path / "holographic.db", FACT_COLUMNS)]

        def choose(columns: Sequence[TextColumn]) -> list[TextColumn]:
            return [column for column in columns if by_store or column.part is not Part.BY_STORE]

        if server is not None:
            from wellkept.storage.postgres import rows

            columns = choose((*STATE_COLUMNS, *LEDGER_COLUMNS, *SERVER_COLUMNS))
            counts = rows.count_holding(server.for_user(user), columns, texts)
            return counts + sum(count_holding(path, choose(columns), texts, user=user) for path, columns in databases)
        databases.append((home.database, STATE_COLUMNS))
        databases += [(path, LEDGER_COLUMNS) for path in home.memories.rglob("ledger.db")]
        return sum(count_holding(path, choose(columns), texts, user=user) for path, columns in databases)

    @property
    def _has_one_user(self) -> bool:
        return set(self._sessions.users()) <= {self._caller.user} and not self._caller.app.home.users.is_dir()

    def _search(self, plan: FullForgetPlan, *, by_bytes: bool) -> tuple[int, tuple[HeldFile, ...]]:
        """Return how many files were searched, and those that still hold the words or, as copies, a passage."""
        files = list(iterate_files(self._caller))
        left = find_files(self._caller, plan.texts, Texts(plan.passages))
        if by_bytes:
            databases = [file for file in files if file.place and file.place.on_forget is OnForget.ROWS]
            left += [file for file in databases if plan.texts.may_be_in_file(file.path)]
        return len(files), tuple(left)


def scrub_rows(caller: Caller, columns: Sequence[TextColumn], texts: Texts) -> int:
    """Remove the texts from the rows of the caller's user; return how many rows were removed or changed."""
    server, neutral_id = caller.app.server, caller.space.sessions.forgetting.prepare_neutral_ids()
    if server is None:
        return scrub(caller.app.state_file, columns, texts, user=caller.user, neutral_id=neutral_id)
    from wellkept.storage.postgres import rows

    return rows.scrub(server.for_user(caller.user), (*columns, *SERVER_COLUMNS), texts, neutral_id)


def _from(origin: str) -> Callable[[str], bool]:
    return lambda source: bool(source) and covers(origin, SourceName(source))


def _are_telling(texts: Texts) -> bool:
    """Whether the texts are long enough to be looked for in the bytes of a database."""
    return bool(texts) and all(len(text.encode()) >= _TELLING_BYTES for text in texts.folded)


def _text(waiting: Pending) -> str:
    """Return all text of a pending write: what it would add, and what it quotes from the page."""
    return "\n".join([*(text for edit in waiting.edits for text in astuple(edit)), waiting.why])


def _remove_rows(database: Database, user: Mapping[str, UserId], *tables: str) -> int:
    """Remove every row of a user, given under the name of the binding, from tables; return how many there were."""
    (name,) = user
    count = 0
    with database.writing() as unit:
        for table in tables:
            sql = f"DELETE FROM {table} WHERE /*! tenant = :tenant AND */ user_id = :{name} RETURNING 1"  # noqa: S608 - names of our tables
            count += len(list(unit.execute(sql, user)))
    return count


_LOCAL = {"holographic": "holographic.db", "mem0": "mem0"}
"""Providers that keep their data in the home, with its file or folder: they are called even if unused."""


class _Opened(Struct):
    """The providers that could be loaded, and why others could not."""

    manager: ProviderManager
    missing: list[ForgetAnswer] = field(default_factory=list)


def list_providers(caller: Caller) -> list[str]:
    """Return the providers that may hold something of the user."""
    app = caller.app
    told = [lane.provider for lane in caller.space.outbox.lanes() if lane.delivered]
    local = [name for name, file in _LOCAL.items() if (app.home.path / file).exists()]
    return list(dict.fromkeys([*chosen_names(app.settings.memory.provider, app.home.plugins), *told, *local]))


def find_at_providers(caller: Caller, request: ForgetRequest) -> list[ForgetAnswer]:
    """Ask every provider whether it holds what `request` selects; nothing is deleted."""
    with _open(caller) as opened:
        return [*opened.manager.forget(request, only_find=True), *opened.missing] if opened else []


def forget_at_providers(caller: Caller, request: ForgetRequest) -> list[ForgetAnswer]:
    """Tell every provider to delete what `request` selects, and ask whether it did."""
    with _open(caller) as opened:
        return [*opened.manager.forget(request), *opened.missing] if opened else []


@contextmanager
def _open(caller: Caller) -> Iterator[_Opened | None]:
    names = list_providers(caller)
    if not names:
        yield None
        return
    from wellkept.providers.active import ManagerContext
    from wellkept.providers.loading import load

    app, source = caller.app, caller.app.plugin_source()
    # outside the primary context and without a ledger, the manager mirrors and delivers nothing
    start = StartContext(
        kept_home=str(app.home.path), agent_context="flush", agent_identity=app.home.profile, user_id=caller.user
    )
    context = ManagerContext(start=start, clock=app.clock, sink=caller.space.listeners, several=True)
    opened = _Opened(ProviderManager(caller.database, context=context, settings=app.settings.providers))
    for name in names:
        try:
            opened.manager.register(load(name, source.plugins, source.environ, source.policy), name=name)
        except KeptError as error:
            opened.missing.append(ForgetAnswer(name, problem=f"it cannot be loaded: {error.message}"))
    try:
        yield opened
    finally:
        opened.manager.close()
