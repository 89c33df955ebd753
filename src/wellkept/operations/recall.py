"""Recall for connected agents: the block at the start of a session, and passages relevant to a prompt."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from msgspec import Struct, field

from wellkept.core.clock import iso_moment
from wellkept.core.ids import blake2b
from wellkept.core.provenance import message_source, quote
from wellkept.core.text import UNSPACED, expression, one_line, resource_text, split_pairs, split_words
from wellkept.languages.language import stop_words
from wellkept.security.fence import build_memory_context_block, unwrap
from wellkept.sessions.recall import SHORTENED, find_unconfirmed, tokens, when

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wellkept.app.caller import Caller
    from wellkept.core.ids import MessageId, SessionId
    from wellkept.core.messages import Session
    from wellkept.core.search import FoundMessage
    from wellkept.sessions.search.discovery import Match
    from wellkept.sessions.search.occurrences import Marker

BLOCK_CHARS = 8_000
"""The whole block. Claude Code cuts above 10,000 characters, Codex above about 2,500 tokens."""
PASSAGE_CHARS = 700
QUERY_CHARS = 400
"""A longer prompt is mostly pasted text, which says little about the question."""
_TITLE_CHARS = 80
_GIVEN_RECEIPTS = 200
_LEAST_WORDS = 2
_LEAST_RELEVANCE = 0.5
"""The score from which an archived entry is shown: a prompt asked nobody for it."""
_ARCHIVED_PASSAGES = 2
_COMMAND = expression(r"[/!#][A-Za-z][\w:.-]*(?:\s|$)|[!#]\s")
_SYNTAX = expression(r'["*]|\b(?:AND|OR|NOT)\b')
"""Characters that are query syntax to the search, but plain text in a prompt."""
_PRIVATE = expression(r"<\s*private\s*>.*?(?:<\s*/\s*private\s*>|\Z)", re.IGNORECASE | re.DOTALL)


class StartBlock(Struct, frozen=True):
    """The block of a session: fenced, at most 8,000 characters, the same for the same memory."""

    text: str
    mark: str
    """Identifies this content; it is part of the text, so a transcript shows whether the agent already has it."""
    entries: int
    pages: tuple[str, ...]
    sessions: tuple[SessionId, ...]

    @property
    def summary(self) -> str:
        """Return the line that the person sees."""
        entries = f"{self.entries} entr{'y' if self.entries == 1 else 'ies'}"
        count = len(self.sessions)
        return f"kept: {entries}, {count} past session{'' if count == 1 else 's'} of this project"


def build_start_block(
    caller: Caller, project: str | None, *, current: SessionId | None = None, has_tools: bool = True
) -> StartBlock | None:
    """Return the block for a session in `project`; None if it would be empty.

    `current` is the session itself, which is not listed among past ones. `has_tools` says whether the agent can search.
    """
    sessions, messages = caller.space.sessions.totals()
    recent = _list_recent(caller, project, current)
    store = caller.space.memory_in(project)
    blocks = {page.value: block for page, block in store.load().items() if block is not None}
    pages, entries = blocks, sum(len(store.entries(name)) for name in blocks)
    if not pages and not messages:
        return None
    closing = resource_text("wellkept.operations", "start_block.md" if has_tools else "proxy_block.md").strip()
    listed = _render_sessions(caller, recent)
    # a session that is resumed has these pages already, whatever happened to the project meanwhile
    whole = "\0".join((*map(_strip_notes, pages.values()), listed)).encode("utf-8", "replace")
    mark = f"kept-block-{blake2b(whole, digest_size=6).hexdigest()}"
    rest = (listed, closing.format(sessions=f"{sessions:,}", messages=f"{messages:,}", mark=mark))
    body = "\n\n".join(part for part in rest if part)
    room = BLOCK_CHARS - len(build_memory_context_block(body)) - 2 * len(pages)
    shown = _fit_pages([unwrap(text) for text in pages.values()], room)
    text = build_memory_context_block("\n\n".join((*shown, body)))
    return StartBlock(text, mark, entries, tuple(pages), tuple(session.id for session in recent))


def _strip_notes(page: str) -> str:
    if "[checked: " not in page:
        return page
    from wellkept.projectfacts.notes import strip_notes  # most pages have no notes

    return strip_notes(page)


def _list_recent(caller: Caller, project: str | None, current: SessionId | None) -> list[Session]:
    most = caller.app.settings.connect.sessions
    if project is None or not most:
        return []
    store = caller.space.sessions
    own = set(store.lineage().family(current)) if current is not None else set()
    found = store.recent(limit=most + len(own), project=project)
    return [session for session in found if session.id not in own and session.message_count][:most]


def _render_sessions(caller: Caller, sessions: Sequence[Session]) -> str:
    if not sessions:
        return ""
    lines = ["Last sessions of this project (date, title, id):"]
    for session in sessions:
        day = iso_moment(session.last_active or session.started)[:10]
        words = session.title or caller.space.sessions.preview(session.id)
        title = one_line(words, width=_TITLE_CHARS) or "without a title"
        lines.append(f"- {day} {title} ({session.source}, session {session.id})")
    return "\n".join(lines)


def _fit_pages(pages: Sequence[str], room: int) -> list[str]:
    """Return the pages, cut between entries if they do not fit; a short page leaves its share to the others."""
    shares = dict.fromkeys(range(len(pages)), 0)
    left, waiting = room, sorted(shares, key=lambda place: len(pages[place]))
    for number, place in enumerate(waiting):
        shares[place] = min(len(pages[place]), left // (len(waiting) - number))
        left -= shares[place]
    return [_cut_page(page, shares[place]) for place, page in enumerate(pages)]


def _cut_page(page: str, room: int) -> str:
    from wellkept.memory.page import ENTRY_DELIMITER

    if len(page) <= room:
        return page
    entries = page.split(ENTRY_DELIMITER)
    for count in range(len(entries) - 1, -1, -1):
        missing = f"[{len(entries) - count:,} more entries: read them with the tool memory_read]"
        kept = ENTRY_DELIMITER.join((*entries[:count], missing))
        if len(kept) <= room:
            return kept
    return page[: max(0, room)]


class PromptRecall(Struct, frozen=True):
    """Passages of past conversations that are relevant to a prompt, fenced."""

    text: str
    shown: tuple[FoundMessage, ...]
    candidates: int
    milliseconds: float
    query: str = ""

    @property
    def token_count(self) -> int:
        """Return about how many tokens the text takes."""
        return tokens(self.text)


class Recipient(Struct, frozen=True):
    """The session that receives passages, and what it must not receive."""

    session: SessionId | None = None
    """Its own stored session, whose whole lineage is excluded."""
    project: str | None = None
    given: frozenset[MessageId] = field(default_factory=frozenset)
    """Messages that it received before, or that a person marked `never`."""
    has_tools: bool = True
    """Whether the agent has a search tool."""


def find_given(caller: Caller, names: Iterable[SessionId]) -> frozenset[MessageId]:
    """Return the messages that a session, under any of its ids, already received or must never receive."""
    receipts = caller.space.sessions.receipts
    given = set(receipts.never_shown())
    for name in names:
        for receipt in receipts.recent(limit=_GIVEN_RECEIPTS, session_id=name):
            given.update(receipt.message_ids)
    return frozenset(given)


def recall_for_prompt(caller: Caller, prompt: str, recipient: Recipient) -> PromptRecall | None:
    """Return at most three passages of which the search is confident; None without any, or without a question."""
    from wellkept.core.messages import Role
    from wellkept.core.search import SearchRequest
    from wellkept.facts.replies import asks_history
    from wellkept.sessions.search.discovery import find_conversations, repeats_question
    from wellkept.sessions.search.occurrences import Marker

    begun = time.perf_counter()
    query = read_question(prompt)
    if query is None:
        return None
    store = caller.space.sessions
    own = tuple(store.lineage().family(recipient.session)) if recipient.session is not None else ()
    most = caller.app.settings.connect.passages
    request = SearchRequest(
        query,
        limit=most,
        exclude_sessions=own,
        exclude_messages=frozenset(int(number) for number in recipient.given),
    )
    conversations = find_conversations(store, request)
    # tool output may be an attack, and nobody requested it here; a filter in the search would double its time
    marker = Marker(tuple(conversations.found.terms))
    matches = [match for match in conversations.matches if match.message.message.role in {Role.USER, Role.ASSISTANT}]
    # what an agent wrote into a call may be the text of others, and it has no source of its own
    matches = [match for match in matches if marker.is_said(match.message.message)]
    matches = [match for match in matches if not repeats_question(match.message, query)]
    if not asks_history(query):
        matches = [match for match in matches if match.superseded_by is None]
    archived = _quote_archive(caller, recipient.project, query) if most else []
    if not matches and not archived:
        return None
    scores = {hit.message_id: hit for hit in conversations.found.messages}
    shown = tuple(scores[match.message.id] for match in matches if match.message.id in scores)
    opening = "prompt_passages.md" if recipient.has_tools else "proxy_passages.md"
    text = build_memory_context_block(_render_passages(matches, marker, opening, archived))
    spent = (time.perf_counter() - begun) * 1_000
    return PromptRecall(text, shown, len(conversations.found.messages), spent, query)


def _quote_archive(caller: Caller, project: str | None, query: str) -> list[str]:
    """Return entries that left the pages to make room and are about the question; the start block has the others."""
    store = caller.space.memory_in(project)
    if not any(store.pages.archive().read(target).raw for target in store.targets):
        return []
    from wellkept.agent.without_model.passages import search_archive

    passages = search_archive(store, query, least=_LEAST_RELEVANCE)[:_ARCHIVED_PASSAGES]
    return [quote(one_line(passage.text, width=PASSAGE_CHARS), passage.source) for passage in passages]


def read_question(prompt: str) -> str | None:
    """Return the search query of a prompt; None for a command, or with fewer than two meaningful words."""
    text = _PRIVATE.sub(" ", prompt).strip()
    if _COMMAND.match(text):
        return None
    query = _SYNTAX.sub(lambda found: found[0].lower() if found[0].isalpha() else " ", text[:QUERY_CHARS]).strip()
    words = split_words(UNSPACED.sub(" ", query))
    known = stop_words(words)
    telling = {word for word in words if word not in known and len(word) > 1}
    pairs = {pair for run in UNSPACED.findall(query) for pair in split_pairs(run) if len(pair) > 1}
    return query if len(telling) + len(pairs) >= _LEAST_WORDS else None


def _render_passages(matches: Sequence[Match], marker: Marker, opening: str, archived: Sequence[str]) -> str:
    parts = [resource_text("wellkept.operations", opening).strip(), *archived]
    for match in matches:
        text = match.message.message.display_text
        if len(text) > PASSAGE_CHARS:
            text = marker.around(text, width=PASSAGE_CHARS) + SHORTENED
        who = "you" if match.message.message.role.value == "user" else "assistant"
        source = message_source(who, when(match.message.timestamp), match.session.id, match.message.id)
        unconfirmed = find_unconfirmed(match.message)
        if unconfirmed is not None:
            from wellkept.core.provenance import mark_unverified  # most passages need no mark

            text = mark_unverified(unconfirmed, text)
        parts.append(quote(text, source))
    return "\n\n".join(parts)
