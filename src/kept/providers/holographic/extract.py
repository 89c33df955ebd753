"""Facts that a person states in a conversation, taken by rule from the person's own messages."""

import re

from kept.core.text import JSON
from kept.providers.base import Messages

MAX_FACTS = 20
_MAX_CHARS = 300
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_STATED = re.compile(
    r"\b(?:remember|note|keep in mind) that\b"
    r"|\bmy (?:\w+ ){1,3}(?:is|are|was|lives?|works?)\b"
    r"|\bI(?:'m| am) (?:a|an|the|from|allergic|based|called|named|vegetarian|vegan|left-handed)\b"
    r"|\bI (?:live|work|prefer|use|always|never|hate|love|like|need|own|have (?:a|an|two|three))\b"
    r"|\bwe (?:decided|agreed|use|always|never|deploy|call)\b"
    r"|\bcall me\b",
    re.IGNORECASE,
)
_LEAD = re.compile(r"^(?:please\s+)?(?:remember|note|keep in mind) that\s+", re.IGNORECASE)


def stated_facts(messages: Messages) -> list[str]:
    """Return what the person said about themselves and their work, in their own words, each once."""
    found: dict[str, None] = {}
    for message in messages:
        if message.get("role") == "user":
            for sentence in _sentences(message.get("content")):
                found.setdefault(sentence)
    return list(found)[:MAX_FACTS]


def _sentences(content: JSON) -> list[str]:
    if not isinstance(content, str):
        return []
    sentences = [match[0].strip() for match in _SENTENCE.finditer(content)]
    stated = [each for each in sentences if _STATED.search(each) and not each.endswith("?") and len(each) <= _MAX_CHARS]
    return [_LEAD.sub("", each) for each in stated]
