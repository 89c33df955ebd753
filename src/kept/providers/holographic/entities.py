"""Entities: the names that a fact is about, read off its text."""

import re
from collections.abc import Iterator

from kept.providers.holographic.words import stop_words

_SPEAKER = re.compile(r"^\s*([^\W\d_][\w'’.-]{0,30}(?: [^\W\d_][\w'’.-]{0,30})?):\s+\S")
_NAME = re.compile(r"[^\W\d_a-z][\w'’.+#-]*(?:\s+(?:(?:of|de|van|von|the|da|del)\s+)?[^\W\d_a-z][\w'’.+#-]*)*")
_QUOTED = re.compile(r"[\"“„`]([^\"“”„`\n]{2,60})[\"”“`]")
_MENTION = re.compile(r"(?<!\w)@[\w-]{2,40}")
_EDGES = "'’.,-"
_MAX = 12


def speaker_of(text: str) -> str | None:
    """Return the name before the colon where a text reads as `Name: what was said`, in lower case."""
    found = _SPEAKER.match(text)
    return found[1].casefold() if found and found[1][0].isupper() else None


def entity_key(name: str) -> str:
    """Return what makes two spellings of a name one entity."""
    plain = re.sub(r"['’]s$", "", " ".join(name.split()).strip(_EDGES))
    return plain.casefold()


def entities_in(text: str) -> list[str]:
    """Return the names in `text`, each once, in order."""
    found: dict[str, str] = {}
    for name in _candidates(text):
        key = entity_key(name)
        if len(key) > 1 and key not in stop_words():
            found.setdefault(key, re.sub(r"['’]s$", "", name.strip(_EDGES)))
    return list(found.values())[:_MAX]


def _candidates(text: str) -> Iterator[str]:
    for match in _QUOTED.finditer(text):
        yield match[1]
    for match in _MENTION.finditer(text):
        yield match[0]
    for match in _NAME.finditer(text):
        yield from _without_opener(match[0].split(), at_start=_begins_sentence(text, match.start()))


def _without_opener(parts: list[str], *, at_start: bool) -> Iterator[str]:
    """Cut off a stop word at the start of a sentence: its capital is grammar, not a name."""
    while parts and at_start and re.sub(r"['’].*", "", parts[0]).casefold() in stop_words():
        parts = parts[1:]
    if parts:
        yield " ".join(parts)


def _begins_sentence(text: str, place: int) -> bool:
    before = text[:place].rstrip()
    return not before or before[-1] in '.!?:;\n"“(-•'
