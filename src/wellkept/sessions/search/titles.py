"""Conversations that are found by their title: exactly, or by a similar one where nothing else matched."""

from difflib import SequenceMatcher
from typing import Final

from msgspec.structs import replace

from wellkept.core.ids import MessageId, SessionId
from wellkept.core.search import Found, FoundMessage, FoundSession, SearchRequest
from wellkept.sessions.records import storable
from wellkept.sessions.search.filters import HIDDEN_SOURCES
from wellkept.sessions.search.postings import Catalog, TimeFilter
from wellkept.sessions.search.query import parse

_MOST_CHARACTERS: Final = 160
"""No title is longer; a longer query is a text."""
_LEAST_CHARACTERS: Final = 4
"""Shorter words differ by one letter from too many others."""
_ALIKE: Final = 0.85
"""The share of characters in common from which two spellings are one."""
_MOST_FOUND: Final = 5
_SCORE: Final = 1.0


def add_titled(found: Found, catalog: Catalog, request: SearchRequest) -> Found:
    """Return `found` led by the conversations with the title that the query is.

    A question is no title: what was asked before in the same words answers nothing.
    """
    title = storable(request.query.strip())
    if not title or len(title) > _MOST_CHARACTERS or request.session_id is not None:
        return found
    named = catalog.titled(title)
    if not named and (found.abstained or not found.sessions) and len(title) >= _LEAST_CHARACTERS:
        named = _find_similar(catalog, title)
    first = [hit for name in named[:_MOST_FOUND] for hit in _list_first(catalog, request, name)]
    heads = catalog.messages([number for _, number in first]) if first else {}
    hits = [(name, number) for name, number in first if number in heads]
    if not hits:
        return found
    score = max((hit.score for hit in found.sessions[:1]), default=_SCORE) if not found.abstained else _SCORE
    parts = {"title": score}
    sessions = [FoundSession(SessionId(name), score, MessageId(number), parts) for name, number in hits]
    messages = [
        FoundMessage(MessageId(number), SessionId(name), heads[number].external_id, score, parts)
        for name, number in hits
    ]
    known, shown = {hit.session_id for hit in sessions}, {hit.message_id for hit in messages}
    others = [] if found.abstained else [hit for hit in found.sessions if hit.session_id not in known]
    rest = [] if found.abstained else [hit for hit in found.messages if hit.message_id not in shown]
    return replace(found, sessions=(*sessions, *others), messages=(*messages, *rest), abstained=False, of_time=())


def _find_similar(catalog: Catalog, query: str) -> list[str]:
    """Return the sessions whose title has all words of the query, or is spelled nearly as it is; the likest first."""
    wanted, folded = {term.text for term in parse(query).terms}, query.casefold()
    if not wanted:
        return []
    alike: list[tuple[float, str]] = []
    for name, title in catalog.titles():
        matcher = SequenceMatcher(None, folded, title.casefold(), autojunk=False)
        share = matcher.ratio() if matcher.real_quick_ratio() >= _ALIKE and matcher.quick_ratio() >= _ALIKE else 0.0
        if share < _ALIKE and wanted <= {term.text for term in parse(title).terms}:
            share = _ALIKE
        if share >= _ALIKE:
            alike.append((share, name))
    return [name for _, name in sorted(alike, key=lambda each: -each[0])]


def _list_first(catalog: Catalog, request: SearchRequest, session_id: str) -> list[tuple[str, int]]:
    """Return the session with the first thing that a person said in it; nothing where a filter excludes it."""
    conditions = TimeFilter(
        after=request.after,
        before=request.before,
        project=request.project,
        sources=request.sources,
        hidden_sources=() if request.sources else tuple(sorted(HIDDEN_SOURCES)),
        roles=request.roles,
        session_id=session_id,
        exclude_sessions=request.exclude_sessions,
        exclude_messages=request.exclude_messages,
    )
    return catalog.timeline(conditions, 1)[1]
