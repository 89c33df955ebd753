"""The summary by rule: what the person said, what was decided, touched and broken, extracted."""

import re
from collections.abc import Iterable, Sequence

from kept.context.marker import is_summary
from kept.context.sections import Sections
from kept.context.transcript import Redact
from kept.core.messages import Role, StoredMessage

_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_FILE = re.compile(
    r"(?<![\w/.-])(?:[\w.@~-]+/)*[\w@-]+\.[a-zA-Z][a-zA-Z0-9]{0,7}\b(?!\()"
    r"|(?<![\w/])/(?:[\w.@-]+/)+[\w.@-]+"
)
_PREFERENCE = re.compile(
    r"\b(?:prefer|always|never|don't|do not|must|should|use|avoid|only|instead|no more|please keep"
    r"|immer|nie|niemals|bitte|lieber|nur|toujours|jamais|préfère|siempre|nunca|prefiero)\b"
    r"|请|不要|必须|总是|喜欢|してください|しないで",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:decided|decision|we'll|let's|chose|choose|going with|agreed|settled on|will use|switch to"
    r"|entschieden|beschlossen|décidé|decidido)\b|决定|決め",
    re.IGNORECASE,
)
_TROUBLE = re.compile(
    r"\b(?:\w*error|exception|failed|failure|traceback|cannot|refused|denied|timed out|panic|fatal)\b"
    r"|错误|失败|エラー",
    re.IGNORECASE,
)
_NEXT = re.compile(r"\b(?:next|todo|then i|remaining|follow[- ]up|will now|still need|als nächstes)\b", re.IGNORECASE)
LONGEST_QUOTE = 220
MOST_FILES = 40


def extracted(rows: Sequence[StoredMessage], *, redact: Redact) -> Sections:
    """Return the sections that rules find in `rows`, each line with the id it came from."""
    rows = [row for row in rows if not is_summary(row.message)]
    said = [row for row in rows if row.message.role is Role.USER and row.message.text.strip()]
    answers = [row for row in rows if row.message.role is Role.ASSISTANT and row.message.text.strip()]
    results = [row for row in rows if row.message.role is Role.TOOL]
    return {
        "Goal": [_line(row, _first(row), redact) for row in said[:1]],
        "Constraints & Preferences": list(_matching(said, _PREFERENCE, redact)),
        "Done": [_line(row, _first(row), redact) for row in answers],
        "In Progress": [_line(row, _first(row), redact) for row in said[-1:]],
        "Blocked": list(_matching(results, _TROUBLE, redact))[-12:],
        "Key Decisions": list(_matching([*said, *answers], _DECISION, redact)),
        "Relevant Files": _files(rows, redact),
        "Next Steps": list(_matching(answers[-6:], _NEXT, redact)),
        "Critical Context": [_line(row, f'the person: "{_first(row)}"', redact) for row in said],
    }


def gist(rows: Sequence[StoredMessage], *, redact: Redact) -> list[str]:
    """Return one line per message that says something, the person's words first in each line's rank."""
    lines = []
    for row in rows:
        name = f"{row.message.tool_name or 'tool'} → " if row.message.role is Role.TOOL else ""
        calls = ", ".join(call.name for call in row.message.tool_calls)
        text = _first(row) or (f"calls {calls}" if calls else "")
        if text and not is_summary(row.message):
            lines.append(_line(row, f"{row.message.role.value}: {name}{text}", redact))
    return lines


def _first(row: StoredMessage) -> str:
    for sentence in _SENTENCE.split(row.message.text[:4_000]):
        if sentence.strip():
            return sentence.strip()
    return ""


def _line(row: StoredMessage, text: str, redact: Redact) -> str:
    flat = " ".join(redact(text).split())
    short = flat if len(flat) <= LONGEST_QUOTE else flat[: LONGEST_QUOTE - 1] + "…"
    return f"- {short} [#{row.id}]"


def _matching(rows: Iterable[StoredMessage], pattern: re.Pattern[str], redact: Redact) -> Iterable[str]:
    for row in sorted(rows, key=lambda one: one.id):
        for sentence in _SENTENCE.split(row.message.text[:8_000]):
            if pattern.search(sentence):
                yield _line(row, sentence.strip(), redact)
                break


def _files(rows: Sequence[StoredMessage], redact: Redact) -> list[str]:
    last_seen: dict[str, StoredMessage] = {}
    for row in rows:
        texts = (row.message.text[:8_000], *(call.arguments[:4_000] for call in row.message.tool_calls))
        for text in texts:
            for found in _FILE.findall(text):
                last_seen.pop(found, None)
                last_seen[found] = row
    return [_line(row, name, redact) for name, row in list(last_seen.items())[-MOST_FILES:]]
