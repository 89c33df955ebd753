"""Forgetting: plan, remove in short steps, erase the bytes, verify that no search finds it."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import Busy
from wellkept.core.ids import MessageId, SessionId, SourceName, UserId
from wellkept.core.provenance import find_quoted_messages, quotes_a_page
from wellkept.core.search import SearchRequest
from wellkept.core.text import dumps
from wellkept.sessions.records import Row, fingerprint, parse, source_id
from wellkept.sessions.reports import BLANK, ForgetPlan, ForgetReport
from wellkept.sessions.rows import message_rows, receipts, removal, session_rows
from wellkept.sessions.rows.database import Connection, find_index
from wellkept.sessions.rows.store import RowStore
from wellkept.storage.connections import statements
from wellkept.storage.texts import Texts

SQL = statements("wellkept.sessions.rows", "forgetting.sql")
_PAGE = 2_000
_PROBES = 12
_WORD = re.compile(r"\w{4,40}")
_TELLING_ID = 12
_NEUTRAL_DIGITS = 16
_LONG = 40
"""From this length on a message is unlikely to occur elsewhere by chance."""
_PASSAGES = 30
_PASSAGE_CHARS = 120
_ID = re.compile(r'"(?:id|match_message_id)": ?(\d{1,18})')


class Citations(Struct, frozen=True):
    """What may be cited: whole sessions, single messages, words."""

    sessions: tuple[SessionId, ...] = ()
    messages: frozenset[MessageId] = frozenset()
    needle: str = ""

    def are_in(self, text: str) -> bool:
        """Whether `text` cites any of them."""
        if any(_names(text, session_id) for session_id in self.sessions):
            return True
        if self.needle and self.needle in text.casefold():
            return True
        return bool(self.messages) and any(int(found) in self.messages for found in _ID.findall(text))

    def are_quoted_in(self, text: str) -> bool:
        """Whether `text` names any of them as the source of a quotation."""
        return any(owner in self.sessions or number in self.messages for owner, number in find_quoted_messages(text))


def _names(text: str, session_id: SessionId) -> bool:
    # an imported id may be as short as "5", which occurs in any text: such an id counts only as a whole JSON string
    return (session_id if len(session_id) >= _TELLING_ID else dumps(session_id)) in text


def find_citing(
    connection: Connection, citations: Citations, *, user: UserId, outside: frozenset[SessionId] = frozenset()
) -> tuple[MessageId, ...]:
    """Return the messages, in sessions that stay, whose search result, sent text or quotation shows removed content."""
    found: list[MessageId] = []
    last = 0
    while page := list(connection.execute(SQL.citing, (last, user, _PAGE))):
        last = page[-1][0]
        for number, owner, tool_name, content, sent in page:
            texts = [text for text in (content if tool_name == "session_search" else None, sent) if text]
            shown = any(citations.are_in(text) for text in texts) or citations.are_quoted_in(content or "")
            if owner not in outside and shown:
                found.append(MessageId(number))
    return tuple(found)


class RowForgetting:
    """Implements `sessions.ports.Forgetting`."""

    def __init__(self, store: RowStore) -> None:
        self._store = store
        self._database = store.database
        self._user = store.user

    def plan_sessions(self, session_ids: Sequence[SessionId]) -> ForgetPlan:
        with self._database.reading() as connection:
            own = _own_sessions(connection, session_ids, user=self._user)
        return self._plan(own)

    def _plan(self, own: Sequence[SessionId]) -> ForgetPlan:
        with self._database.reading() as connection:
            links = message_rows.lineage(connection, user=self._user)
            chains = dict.fromkeys(one for session_id in own for one in links.chain(session_id))
            # an imported session may name a parent that was never stored
            going = tuple(one for one in chains if connection.execute(session_rows.SQL.exists, (one,)).fetchone())
            family = {one for session_id in going for one in links.family(session_id)} - set(going)
            numbers = frozenset(_ids(connection, going))
            return ForgetPlan(
                sessions=going,
                summaries=_summaries(connection, family, after=0),
                nodes=_nodes(connection, family, numbers),
                citing=find_citing(connection, Citations(sessions=going), user=self._user, outside=frozenset(going)),
                message_count=_sum(connection, SQL.count, going),
                blob_count=_sum(connection, SQL.count_blobs, going),
                vector_count=_vectors(connection, numbers),
            )

    def plan_everything(self) -> ForgetPlan:
        with self._database.reading() as connection:
            found = [SessionId(one) for (one,) in connection.execute(SQL.of_user, (self._user,))]
        return self._plan(found)

    def plan_source(self, source: str, *, project: str | None = None) -> ForgetPlan:
        with self._database.reading() as connection:
            rows = connection.execute(SQL.of_source, {"user": self._user, "source": source, "project": project})
            found = [SessionId(one) for (one,) in rows]
        return self._plan(found)

    def plan_query(self, query: str) -> ForgetPlan:
        """Return the messages that contain exactly these words, ignoring case; a ranked search would match too much."""
        needle = query.strip().casefold()
        if not needle:
            return ForgetPlan()
        with self._database.reading() as connection:
            found = sorted(set(self._find_messages(connection, needle)))
            titles = [one for one, title in connection.execute(SQL.titles, (self._user,)) if needle in title.casefold()]
            own = [SessionId(one) for (one,) in connection.execute(SQL.of_user, (self._user,))]
            plan = self._plan_messages(connection, found, needle)
            said = _nodes_saying(connection, needle, user=self._user)
        return replace(
            plan,
            nodes=tuple({*plan.nodes, *said}),
            titles=tuple(SessionId(one) for one in titles),
            renamed=tuple(session_id for session_id in own if needle in session_id.casefold()),
            texts=(needle,),
        )

    def list_origins(self) -> list[SourceName]:
        with self._database.reading() as connection:
            return [SourceName(name) for (name,) in connection.execute(SQL.origins, (self._user,))]

    def plan_origin(self, names: Sequence[SourceName]) -> ForgetPlan:
        numbers = json.dumps([source_id(name) for name in names])
        with self._database.reading() as connection:
            return self._plan_messages(connection, list(connection.execute(SQL.of_origins, (numbers, self._user))))

    def _plan_messages(self, connection: Connection, found: Sequence[tuple[int, str]], needle: str = "") -> ForgetPlan:
        """Return what is removed with single messages; `needle` is also looked for in what cites them."""
        holding = [(MessageId(number), SessionId(owner)) for number, owner in found]
        going = tuple(number for number, _ in holding)
        links = message_rows.lineage(connection, user=self._user)
        family = {one for owner in {owner for _, owner in holding} for one in links.family(owner)}
        summaries = _summaries(connection, family, after=min(going, default=0))
        citations = Citations(messages=frozenset(going), needle=needle)
        citing = find_citing(connection, citations, user=self._user)
        return ForgetPlan(
            messages=going,
            summaries=tuple(number for number in summaries if number not in going),
            nodes=_nodes(connection, family, frozenset(going)),
            citing=tuple(number for number in citing if number not in going),
            message_count=len(going),
            blob_count=len({row for number in going for row in connection.execute(removal.SQL.blobs_of, (number,))}),
            vector_count=_vectors(connection, going),
        )

    def carry_out(self, plan: ForgetPlan) -> ForgetReport:
        """Remove what was planned from the whole file, then verify that no search finds it."""
        with self._database.reading() as connection:
            plan = _own_part(connection, plan, user=self._user)
        probes = self._probes(plan)
        with self._database.writing() as connection:
            _leave_marks(connection, plan, user=self._user, now=self._store.file.now())
            _blank(connection, plan, user=self._user)
        removed = removal.purge_sessions(self._database, plan.sessions, keep_borrowed=False)
        removed.blobs += self._remove_single(plan.messages)
        neutral_id = self.prepare_neutral_ids()
        for session_id in plan.renamed:
            self._rename(session_id, neutral_id(session_id))
        try:
            self._store.file.erase()
            bytes_gone = True
        except Busy:
            bytes_gone = False
        return ForgetReport(
            sessions=removed.sessions,
            messages=removed.messages + len(plan.messages),
            blobs=removed.blobs,
            summaries=len(plan.summaries),
            nodes=len(plan.nodes),
            cited_elsewhere=len(plan.citing),
            still_found=self._still_found(plan, probes),
            bytes_gone=bytes_gone,
            vectors=plan.vector_count,
        )

    def prepare_neutral_ids(self) -> Callable[[str], str]:
        with self._database.writing() as connection:
            salt = removal.make_salt(connection)
        return lambda value: f"forgotten-{removal.session_mark(salt, value)[:_NEUTRAL_DIGITS]}"

    def _rename(self, session_id: SessionId, name: str) -> None:
        """Give a session another id, also where the rows of this store refer to it."""
        names = (name, session_id)
        with self._database.writing() as connection:
            ((title,),) = connection.execute(SQL.title, (session_id,)).fetchall()
            connection.execute(SQL.copy_session, names)
            for sql in (SQL.move_messages, SQL.move_carried, SQL.move_notes, SQL.move_nodes):
                connection.execute(sql, names)
            find_index(connection).note_changes()
            connection.execute(removal.SQL.drop_session, (session_id,))
            connection.execute(session_rows.SQL.set_title, (title, name))  # titles are unique

    def _find_messages(self, connection: Connection, needle: str) -> Iterator[tuple[int, str]]:
        texts = Texts([needle])
        yield from self._find_by_blobs(connection, texts)
        last = 0
        while page := list(connection.execute(SQL.every, (last, self._user, _PAGE))):
            last = page[-1][0]
            for number, owner, *columns in page:
                if any(texts.are_in(text) for text in columns if text):
                    yield number, owner

    def _find_by_blobs(self, connection: Connection, texts: Texts) -> Iterator[tuple[int, str]]:
        held = [digest for digest, data in connection.execute(SQL.blobs, (self._user,)) if texts.are_in_bytes(data)]
        for digest in held:
            yield from connection.execute(SQL.showing_blob, (digest, self._user))

    def _probes(self, plan: ForgetPlan) -> list[str]:
        """Return words of what is removed, to search for afterwards; they are kept in memory only."""
        with self._database.reading() as connection:
            sample: list[Row] = [
                row
                for session_id in plan.sessions
                for row in islice(connection.execute(SQL.messages_of, (session_id,)), _PROBES)
            ]
            sample += [row for number in plan.messages[:_PROBES] for row in connection.execute(SQL.one, (number,))]
        texts = [row[3] for row in sample[: _PROBES * 4]]
        longest = [max(_WORD.findall(text), key=len, default="") for text in texts]
        return [word for word in dict.fromkeys(longest) if word][:_PROBES] + list(plan.texts)

    def passages(self, plan: ForgetPlan) -> list[str]:
        """Return beginnings of long messages that the plan removes, at most a few dozen."""
        with self._database.reading() as connection:
            numbers = json.dumps(list(plan.messages))
            rows = connection.execute(SQL.long_messages, (json.dumps(list(plan.sessions)), numbers, _LONG, _PASSAGES))
            return [str(text)[:_PASSAGE_CHARS] for (text,) in rows]

    def _remove_single(self, numbers: Sequence[MessageId]) -> int:
        blobs = 0
        for start in range(0, len(numbers), removal.STEP):
            page = numbers[start : start + removal.STEP]
            with self._database.writing() as connection:
                owners = {row[6] for number in page for row in connection.execute(SQL.one, (number,))}
                blobs += removal.purge_messages(connection, page)
                connection.executemany(SQL.recount, [(owner,) for owner in owners])
        return blobs

    def _still_found(self, plan: ForgetPlan, probes: Sequence[str]) -> int:
        gone = set(plan.messages)
        found: set[int] = set()
        for word in probes:
            for hit in self._store.search(SearchRequest(word, limit=50)).messages:
                if hit.session_id in plan.sessions or hit.message_id in gone:
                    found.add(hit.message_id)
        return len(found)

    def scrub_entries(self, texts: Sequence[str]) -> int:
        words = [text.casefold() for text in texts if text.strip()]
        if not words:
            return 0
        with self._database.writing() as connection:
            named = [(int(number), str(text)) for number, text in connection.execute(SQL.naming_pages, (self._user,))]
            _blank_messages(
                connection, [number for number, text in named if quotes_a_page(text) and _shows(text, words)]
            )
            return _scrub_words(connection, words, user=self._user)


def _own_sessions(connection: Connection, ids: Iterable[SessionId], *, user: UserId) -> tuple[SessionId, ...]:
    return tuple(one for one in ids if connection.execute(SQL.is_own, (one, user)).fetchone() is not None)


def _own_part(connection: Connection, plan: ForgetPlan, *, user: UserId) -> ForgetPlan:
    """Return the plan without anything that belongs to another user."""

    def own_messages(numbers: Sequence[MessageId]) -> tuple[MessageId, ...]:
        found = connection.execute(SQL.own_messages, (json.dumps(numbers), user))
        return tuple(MessageId(number) for (number,) in found)

    nodes = connection.execute(SQL.own_nodes, (json.dumps(plan.nodes), user))
    return replace(
        plan,
        sessions=_own_sessions(connection, plan.sessions, user=user),
        titles=_own_sessions(connection, plan.titles, user=user),
        renamed=_own_sessions(connection, plan.renamed, user=user),
        messages=own_messages(plan.messages),
        summaries=own_messages(plan.summaries),
        citing=own_messages(plan.citing),
        nodes=tuple(number for (number,) in nodes),
    )


def _vectors(connection: Connection, numbers: Iterable[int]) -> int:
    if connection.execute(SQL.has_vectors).fetchone() is None:
        return 0
    ((count,),) = connection.execute(SQL.count_vectors, (json.dumps(list(numbers)),)).fetchall()
    assert isinstance(count, int)
    return count


def _ids(connection: Connection, session_ids: Iterable[SessionId]) -> Iterator[int]:
    for session_id in session_ids:
        yield from (row[0] for row in connection.execute(SQL.messages_of, (session_id,)))


def _sum(connection: Connection, sql: str, session_ids: Iterable[SessionId]) -> int:
    return sum(int(count) for one in session_ids for (count,) in connection.execute(sql, (one,)))


def _summaries(connection: Connection, family: Iterable[SessionId], *, after: int) -> tuple[MessageId, ...]:
    return tuple(MessageId(number) for one in family for (number,) in connection.execute(SQL.summaries, (one, after)))


def _nodes(connection: Connection, family: Iterable[SessionId], going: frozenset[int]) -> tuple[int, ...]:
    gone: set[int] = set()

    def going_below(depth: object) -> frozenset[int] | set[int]:
        return going if depth == 0 else gone

    for session_id in family:
        for number, depth, children in connection.execute(SQL.nodes, (session_id,)):
            below = parse(children)
            # a node whose list of children is damaged may be about anything
            if not isinstance(below, list) or not going_below(depth).isdisjoint(below):
                gone.add(number)
    return tuple(sorted(gone))


def _nodes_saying(connection: Connection, needle: str, *, user: UserId) -> list[int]:
    found = connection.execute(SQL.every_node, (user,))
    return [int(number) for number, text in found if needle in str(text).casefold()]


def _leave_marks(connection: Connection, plan: ForgetPlan, *, user: UserId, now: float) -> None:
    salt = removal.make_salt(connection)
    # an import would bring a session back under the id that holds the words
    sessions = (*plan.sessions, *plan.renamed)
    marks = [removal.session_mark(salt, removal.mark_scope(session_id, user)) for session_id in sessions]
    for number in plan.messages:
        for row in connection.execute(SQL.one, (number,)):
            mark = fingerprint(row[2], row[3], row[4], row[5])
            marks += [
                removal.message_mark(salt, removal.mark_scope(row[6], user), external_id=external, mark=mark)
                for external in {row[1], None}
            ]
    removal.add_marks(connection, marks, now=now)


def _blank(connection: Connection, plan: ForgetPlan, *, user: UserId) -> None:
    _blank_messages(connection, (*plan.summaries, *plan.citing))
    connection.executemany(SQL.drop_node, [(number,) for number in plan.nodes])
    connection.executemany(session_rows.SQL.set_title, [(None, session_id) for session_id in plan.titles])
    _scrub_words(connection, plan.texts, user=user)


def _blank_messages(connection: Connection, numbers: Sequence[int]) -> None:
    connection.executemany(SQL.blank, [(BLANK, number) for number in numbers])
    find_index(connection).note_changes()
    if connection.execute(SQL.has_vectors).fetchone() is not None:
        connection.executemany(SQL.drop_vector, [(number,) for number in numbers])


def _scrub_words(connection: Connection, words: Sequence[str], *, user: UserId) -> int:
    """Drop the user's prompts, notes and receipts that contain any of `words` (folded); return how many prompts."""
    if not words:
        return 0
    receipts.forget_words(connection, words, user=user)
    prompts = [digest for digest, text in connection.execute(SQL.prompts, (user,)) if _shows(text, words)]
    connection.executemany(SQL.unname_prompt, [(digest, user) for digest in prompts])
    connection.executemany(session_rows.SQL.drop_unused_prompt, [(digest,) for digest in prompts])
    noted = [(one, key) for one, key, value in connection.execute(SQL.notes, (user,)) if _shows(value, words)]
    connection.executemany(SQL.drop_note, noted)
    return len(prompts)


def _shows(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(word in folded for word in words)
