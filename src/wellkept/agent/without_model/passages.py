"""Passages that answer a question without a model, from the pages and past conversations, compared by words."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from itertools import groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from wellkept.agent.without_model.statements import continues, forget_request, statements, strip_greeting
from wellkept.core.clock import from_epoch
from wellkept.core.errors import KeptError, StorageError
from wellkept.core.ids import SessionId
from wellkept.core.messages import Role, StoredMessage
from wellkept.core.provenance import message_source, quote
from wellkept.core.search import FoundMessage, SearchRequest
from wellkept.core.text import UNSPACED, WORD, one_line, split_pairs, strip_accents
from wellkept.facts.chronology import Statement, find_superseded
from wellkept.facts.relations import find_relation, is_about_another_thing
from wellkept.languages.language import join_expressions, list_languages, stop_words
from wellkept.languages.questions import is_asking
from wellkept.memory.history import History
from wellkept.memory.page import Target
from wellkept.memory.store import MemoryStore
from wellkept.sessions.ports import Readable

MIN_SHARE_OF_BEST = 0.6
"""Other passages are shown when they reach this share of the best score."""
MAX_PASSAGES = 3
MIN_SCORE = 0.22
"""An entry must contain at least this share of the question's content words to answer it."""
MAX_ENTRIES = 3
"""How many page entries an answer quotes."""
PASSAGE_CHARS = 400
_RECENT_SESSIONS, _RECENT_MESSAGES, _MOST_SAID = 100, 40, 5
"""How many conversations are read for statements, and how many statements are listed: many only ask something."""
LISTED = 30
"""Conversations that an answer about a time lists."""
_READ: Final = 10 * LISTED
"""How many conversations of a time are read: many may only have asked about a time, and are not listed."""


class Passage(Struct, frozen=True):
    """A passage that answers a question, with its source."""

    text: str
    source: str
    score: float
    day: str = ""
    """The day under which it is listed, where the question is only about a time."""
    moment: float = 0.0
    """When it was said or last changed."""
    is_told: bool = False
    """Whether it answers the question in other words."""
    number: int = 0
    """Its message; 0 for an entry of a page."""
    corrected_by: int = 0
    """The message that corrects it; 0 for none."""
    is_superseded: bool = False
    """Whether another passage corrects it."""
    more: int = 0
    """On the last of a list of conversations: how many of that time are not listed."""


def look_up(store: Readable, question: str, exclude: SessionId | None = None) -> list[Passage]:
    """Return the best passages with dates and ids; none when the search finds no good match.

    The conversation `exclude` and messages that only repeat the question are left out.
    """
    from wellkept.sessions.search.answers import Answers, find_answers
    from wellkept.sessions.search.occurrences import Marker
    from wellkept.sessions.search.periods import names_only_time

    excluded = (exclude,) if exclude is not None else ()
    try:
        request = SearchRequest(question, limit=MAX_PASSAGES * 8, exclude_sessions=excluded)
        answers = find_answers(store, request) if is_asking(question) else Answers(store.search(request))
    except StorageError:
        return []
    found = answers.found
    if found.abstained:
        return []
    if found.period is not None:
        return _list_conversations(store, question)
    passages: list[Passage] = []
    seen = {" ".join(question.split()).casefold()}
    marker = Marker(found.terms)
    for hit in found.messages:
        row = next((each for each in store.window(hit.message_id, before=0, after=0)), None)
        text = " ".join(row.message.text.split()) if row is not None else ""
        if row is None or not text or text.casefold() in seen or not _is_source(store, row):
            continue
        shown = _name_title(store, hit) + marker.around(text, width=PASSAGE_CHARS)
        is_told = hit.message_id in answers.told
        is_asked = is_asking(text) or names_only_time(text, row.timestamp)
        if not is_told and (is_asked or relevances(question, [shown])[0] <= 0):
            continue  # a neighbour of the matching passage, or an earlier question
        seen.add(text.casefold())
        when = f"{from_epoch(row.timestamp).astimezone():%Y-%m-%d}"
        who = "you" if row.message.role is Role.USER else "assistant"
        source = message_source(who, when, row.session_id, row.id)
        corrected_by = answers.superseded.get(hit.message_id, 0)
        passages.append(
            Passage(shown, source, hit.score, "", row.timestamp, is_told, number=row.id, corrected_by=corrected_by)
        )
        if len(passages) == MAX_PASSAGES:
            break
    return passages


def asks_memory(text: str, moment: float) -> bool:
    """Whether a message to a chat without a model tells nothing: it asks, or orders to forget."""
    from wellkept.sessions.search.periods import names_only_time

    if forget_request(text) is not None:
        return True
    return (is_asking(text) or names_only_time(text, moment)) and not statements(text)


def _name_title(store: Readable, hit: FoundMessage) -> str:
    """Return the title of a conversation that was found by it, as the beginning of its passage."""
    session = store.session(hit.session_id) if "title" in hit.parts else None
    return f"{session.title}: " if session is not None else ""


def _list_conversations(store: Readable, question: str) -> list[Passage]:
    """Return a passage for each conversation of a time: its title or what was said first."""
    from wellkept.sessions.search.discovery import find_conversations
    from wellkept.sessions.search.periods import read_period

    listed = []
    found = find_conversations(store, SearchRequest(question, limit=_READ), listed=_READ)
    period = found.found.period
    is_one = period is not None and period.is_one
    for match in found.matches:
        message = match.message.message
        if not is_one and read_period(SearchRequest(message.text), match.message.timestamp) is not None:
            continue  # a conversation that began with such a question is the current one, or contains nothing else
        moment = from_epoch(match.message.timestamp).astimezone()
        who = "you" if message.role is Role.USER else "assistant"
        source = message_source(who, f"{moment:%Y-%m-%d %H:%M}", match.session.id, match.message.id)
        text = one_line(message.text, width=PASSAGE_CHARS // 4)
        text = text if is_one else match.session.title or text
        listed.append(Passage(text, source, 0.0, f"{moment:%Y-%m-%d}"))
    if period is None or not period.is_bounded:
        return listed[:MAX_PASSAGES]  # "what did we talk about last?" does not ask for a list
    more = max(0, len(listed) - LISTED) + found.more
    return [*listed[: LISTED - 1], *(replace(last, more=more) for last in listed[LISTED - 1 : LISTED])]


def list_page_passages(memory: MemoryStore, *, archive_only: bool = False) -> list[Passage]:
    """Return every entry of the pages and of their archives, with the page and the day."""
    passages: list[Passage] = []
    for target in memory.targets:
        if not memory.is_enabled(target):
            continue
        # an unreadable page is reported when the chat starts, an unreadable archive by `kept doctor`
        with suppress(KeptError):
            passages += [] if archive_only else _list_entries(memory, target, memory.entries(target), is_page=True)
        with suppress(KeptError):
            passages += _list_entries(memory, target, memory.archived(target), is_page=False)
    return passages


def _list_entries(memory: MemoryStore, target: Target, entries: Sequence[str], *, is_page: bool) -> Iterator[Passage]:
    if not entries:
        return
    metadata = History(memory).metadata(target)
    name = (memory.pages if is_page else memory.pages.archive()).name(target)
    for entry, shown in zip(entries, memory.mask(target, entries, is_page=is_page), strict=True):
        known = metadata.get(entry)
        when = f", {from_epoch(known.changed).astimezone():%Y-%m-%d}" if known else ""
        yield Passage(shown, f"{name}{when}", 0.0, moment=known.changed if known else 0.0)


def search_pages(memory: MemoryStore, question: str, focus: str = "") -> list[Passage]:
    """Return the entries that answer a question best, preferably those that share a word with `focus`."""
    entries = list_page_passages(memory)
    near = zip(entries, relevances(focus, [passage.text for passage in entries]), strict=True)
    return _choose_best(question, [passage for passage, score in near if score > 0] or entries, MIN_SCORE)


def search_archive(memory: MemoryStore, question: str, *, least: float = MIN_SCORE) -> list[Passage]:
    """Return the entries that made room on a page and answer a question: a prompt does not contain them."""
    return _choose_best(question, list_page_passages(memory, archive_only=True), least)


def _choose_best(question: str, passages: Sequence[Passage], least: float) -> list[Passage]:
    scores = relevances(question, [passage.text for passage in passages])
    scored = [replace(p, score=score) for p, score in zip(passages, scores, strict=True) if score >= least]
    best = sorted(scored, key=lambda passage: -passage.score)[:MAX_ENTRIES]
    return [passage for passage in best if passage.score >= best[0].score * MIN_SHARE_OF_BEST]


def list_said(store: Readable) -> list[Passage]:
    """Return the person's statements in the newest conversations, newest first, without questions."""
    said: dict[str, Passage] = {}
    try:
        for session in store.recent(limit=_RECENT_SESSIONS):
            rows = store.edges(session.id, first=0, last=_RECENT_MESSAGES)[1]
            for row in reversed(rows):
                for text in _list_facts(row):
                    when = f"{from_epoch(row.timestamp).astimezone():%Y-%m-%d}"
                    source = message_source("you", when, row.session_id, row.id)
                    said.setdefault(text.casefold(), Passage(text, source, 0.0, moment=row.timestamp))
            if len(said) >= _MOST_SAID:
                break
    except StorageError:
        return []
    return list(said.values())[:_MOST_SAID]


def _list_facts(row: StoredMessage) -> list[str]:
    if row.message.role is not Role.USER or len(row.message.text) > PASSAGE_CHARS or forget_request(row.message.text):
        return []
    return [one.text for one in statements(row.message.text)]


def _is_source(store: Readable, row: StoredMessage) -> bool:
    """Whether a message is a source: not tool output, and not this assistant quoting memory."""
    if row.message.role is Role.USER:
        return forget_request(row.message.text) is None  # a request to forget something is not a source of it
    session = store.session(row.session_id)
    return (
        row.message.role is Role.ASSISTANT
        and session is not None
        and (session.model is not None or session.source != "cli")
    )


_SHORT_PART: Final = re.compile(r"\b([^\W_]{1,2})-(?=[^\W_]{2})")
"""The optional hyphen of words such as e-mail and wi-fi."""
_MIN_PREFIX: Final = 4
"""The shortest common prefix that makes two words inflections of one, such as “moving” and “moved”."""
_CLOCK: Final = re.compile(r"\d{1,2}[:h.]\d{2}|\d{4}")


@cache
def _list_words(name: str) -> frozenset[str]:
    """Return the words of all languages under a name of `[passages]`."""
    tables = (language.table.get("passages", {}) for language in list_languages())
    return frozenset(word for table in tables for word in table.get(name, "").split())


@cache
def _list_characters(name: str) -> frozenset[str]:
    """Return the characters of scripts without spaces under a name of `[passages]`.

    One-character words are content, but pairs with a character without content would lose them.
    """
    return frozenset("".join(_list_words(name)))


@cache
def _list_topics() -> Sequence[tuple[frozenset[str], frozenset[str]]]:
    """Return groups of words about one topic, each with and without its kinds, which follow a colon."""
    groups = [group for one in list_languages() for group in one.table.get("passages", {}).get("topics", ())]
    return [
        (frozenset(group.partition(":")[0].split()), frozenset(group.replace(":", " ").split())) for group in groups
    ]


@cache
def _compile(name: str) -> re.Pattern[str]:
    """Return the expression of all languages under a name of `[passages]`."""
    return re.compile(join_expressions("passages", name, file="assistant"), re.IGNORECASE)


@cache
def _compile_between() -> re.Pattern[str]:
    return re.compile(f"[{''.join(sorted(_list_characters('stops') | _list_characters('words')))}]+")


def relevances(question: str, texts: Sequence[str]) -> list[float]:
    """Return a score per text: 0 when it shares no content word with the question.

    Words that occur in few texts weigh more than words that occur in many.
    """
    asked = _terms(question)
    if not asked:
        return [0.0] * len(texts)
    terms = [_terms(text) for text in texts]
    weights, naming = {}, _list_words("naming")
    for term in asked:
        holding = sum(1 for found in terms if any(_same(term, other) for other in found))
        weights[term] = (0.5 if term in naming else 1.0) / (1.0 + holding / max(4.0, len(texts) / 2))
    scores = []
    named = asked - naming if asked & naming else frozenset[str]()
    asks_when = _compile("when").search(question) is not None
    for text, found in zip(texts, terms, strict=True):
        if named and not any(_same(term, other) for term in named for other in found) and not continues(text):
            scores.append(0.0)  # the name of something else; "she is called Mia" refers to what was named before
            continue
        score = sum(weights[term] * max((_likeness(term, other) for other in found), default=0.0) for term in asked)
        # a question for a time prefers a text that names one
        is_timely = score > 0 and asks_when and (_CLOCK.search(text) or _compile("time").search(text))
        scores.append(score / sum(weights.values()) + (0.25 if is_timely else 0.0) if score > 0 else 0.0)
    return scores


def count_shared_words(question: str, text: str) -> int:
    """Return how many content words of the question occur in the text."""
    found = _terms(text)
    return sum(1 for term in _terms(question) if any(_same(term, other) for other in found))


@lru_cache(maxsize=512)
def _terms(text: str) -> frozenset[str]:
    plain = _SHORT_PART.sub(r"\1", strip_accents(strip_greeting(text).casefold()))
    words = [word for word in WORD.findall(plain) if not UNSPACED.search(word)]
    stop = stop_words(words) | _list_words("courtesy")
    found = {word for word in words if word not in stop}
    # requests to remember are no content, and their second character also means "to live"
    for run in UNSPACED.findall(_compile("orders").sub(" ", unicodedata.normalize("NFC", plain))):
        found |= {pair for pair in split_pairs(run) if _list_characters("stops").isdisjoint(pair)}
        found |= _list_characters("words") & set(run)
        found |= {piece for piece in _compile_between().split(run) if len(piece) == 1}
    return frozenset(found)


def _same(one: str, other: str) -> bool:
    return _likeness(one, other) > 0


@lru_cache(maxsize=16_384)
def _likeness(one: str, other: str) -> float:
    """Return 1 for equal words, less for inflections and for words about one topic, 0 for all others."""
    if one == other:
        return 0.6 if one in _list_characters("words") else 1.0
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    shorter, longer = sorted((len(one), len(other)))
    if shared >= _MIN_PREFIX and shared >= shorter - 2 and shared * 2 >= longer:
        return 0.9  # inflections
    if shorter >= 3 and shared == shorter and longer - shorter <= 3:
        return 0.8  # a short word with an ending, such as “dog” and “dogs”
    pairs = ((one, other), (other, one))
    return 0.5 if any(a in general and b in group for general, group in _list_topics() for a, b in pairs) else 0.0


def list_by_day(passages: Sequence[Passage]) -> Iterator[str]:
    """Yield the lines of a list of conversations, under their days."""
    for day, of_day in groupby(passages, key=lambda passage: passage.day):
        yield day
        yield from (quote(f"  {passage.text}", passage.source) for passage in of_day)


def merge_passages(question: str, pages: Sequence[Passage], past: Sequence[Passage]) -> list[Passage]:
    """Merge both sources, the better one first, and drop passages far below the other source's best.

    A passage that a later one corrects comes after it and is marked.
    """
    scores = relevances(question, [passage.text for passage in (*pages, *past)])
    best = max(scores, default=0.0)
    scores = [best if each.is_told else score for each, score in zip((*pages, *past), scores, strict=True)]
    on_pages, in_past = scores[: len(pages)], scores[len(pages) :]
    for_page, for_past = max(in_past, default=0.0), max(on_pages, default=0.0)
    kept_pages = [each for each in zip(pages, on_pages, strict=True) if each[1] >= for_page * MIN_SHARE_OF_BEST]
    kept_past = [each for each in zip(past, in_past, strict=True) if each[1] >= for_past * MIN_SHARE_OF_BEST]
    first, second = (kept_past, kept_pages) if for_page > for_past else (kept_pages, kept_past)
    return _mark_superseded(question, [passage for passage, _ in (*first, *second)])


def _mark_superseded(question: str, passages: Sequence[Passage]) -> list[Passage]:
    if len(passages) < 2:
        return list(passages)
    # what "no, blue" refers to is not among the passages, but the search has read it
    links = find_superseded([Statement(one.text, one.moment) for one in passages])
    relation = find_relation(question)
    superseded = dict.fromkeys(
        old
        for old, new in links.items()
        if not is_about_another_thing(relation, passages[old].text, passages[new].text)
    )
    shown = {one.number for one in passages if one.number}
    superseded |= dict.fromkeys(place for place, one in enumerate(passages) if one.corrected_by in shown)
    kept = [one for place, one in enumerate(passages) if place not in superseded]
    return kept + [replace(passages[place], is_superseded=True) for place in superseded]


def drop_superseded(passages: Sequence[Passage], entries: Sequence[Passage]) -> list[Passage]:
    """Return the passages that neither an entry nor a later passage corrects."""
    links = find_superseded([Statement(one.text, one.moment) for one in (*passages, *entries)])
    return [one for place, one in enumerate(passages) if place not in links]


def repeats_entry(passage: Passage, pages: Sequence[Passage]) -> bool:
    """Whether a passage repeats one of these entries: in the same words, or as the request that saved it."""
    said = {passage.text, *(one.text for one in statements(passage.text))}
    return any(page.text in text for page in pages for text in said)
