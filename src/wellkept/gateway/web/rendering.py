"""Rendering of HTML: the templates, and filters for times, numbers and differences."""

from __future__ import annotations

import difflib
import hashlib
import re
import time
from datetime import UTC
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from wellkept.core.clock import from_epoch
from wellkept.core.text import printable, resource_path
from wellkept.sessions.search.occurrences import pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STEPS = ((60, "minute"), (60, "hour"), (24, "day"), (7, "week"))
_CODE = re.compile("`([^`]+)`")
_MOST_DIFF_WORDS = 3_000
"""Longer texts are shown whole, before and after: comparing them would take seconds."""
ORIGINS = {
    "user": "you",
    "agent": "agent",
    "review": "review",
    "import": "import",
    "undo": "undo",
    "outside": "edited by hand",
    "overflow": "made room",
    "approval": "approved",
    "capture": "capture",
    "": "unknown",
}
PAGES = {"memory": "Memory", "user": "About you", "project": "Project"}
KINDS = {"start": "Session start", "prompt": "With a prompt", "search": "Search by the model", "tool": "Tool"}


@cache
def templates() -> Environment:
    """Return the environment of the templates: everything is escaped, and an unknown name is an error."""
    found = Environment(
        loader=PackageLoader("wellkept.gateway.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_show,
    )
    found.filters |= {
        "ago": show_moment,
        "span": describe_span,
        "number": lambda value: f"{value:,}",
        "counted": describe_count,
        "sentence": lambda text: text[:1].upper() + text[1:],
        "code": show_code,
        "size": describe_size,
        "origin": lambda word: ORIGINS.get(word, word),
        "page": lambda word: PAGES.get(str(word), str(word)),
        "kind": lambda word: KINDS.get(word, word),
        "exact": write_exactly,
        "words": show_difference,
        "day": lambda moment: f"{from_epoch(moment).astimezone():%-d %B %Y}",
        "clock": lambda moment: f"{from_epoch(moment).astimezone():%H:%M}",
        "folder": lambda path: (path or "").rstrip("/").rpartition("/")[2] or (path or ""),
    }
    found.globals["asset"] = name_asset
    return found


def _show(value: object) -> object:
    """Return a value of a template without characters that could deceive the reader, as a terminal shows it."""
    if isinstance(value, Markup):
        return Markup(printable(value))  # noqa: S704 - it is markup already
    return printable(value) if isinstance(value, str) else value


def write_exactly(value: object) -> Markup:
    """Return the value of a form field: the server gets every character back, unprintable ones by reference."""
    written = "".join(
        each if each.isprintable() or each == "\n" else f"&#{ord(each)};" for each in str(escape(value))
    )  # fmt: skip
    return Markup(written)  # noqa: S704 - it was escaped before


@cache
def name_asset(name: str) -> str:
    """Return the URL of a static file; it changes with the file, so that browsers may cache it forever."""
    content = resource_path("wellkept.gateway.web", "static", name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:10]}"


def describe_span(seconds: float) -> str:
    """Return a span of time in one unit: `3 hours`."""
    if seconds < 45:
        return f"{max(0, round(seconds))} s"
    value, unit = seconds / 60, "minute"
    for size, name in _STEPS[1:]:
        if value < size * 0.95:
            break
        value, unit = value / size, name
    if unit == "week" and value > 9:
        value, unit = value / 4.345, "month"
    if unit == "month" and value > 23:
        value, unit = value / 12, "year"
    count = round(value)
    return f"{count} {unit}{'' if count == 1 else 's'}"


def show_moment(moment: float | None) -> Markup:
    """Return a time relative to now, with the exact one as its title."""
    if moment is None:
        return Markup('<span class="quiet">never</span>')
    try:
        then = from_epoch(moment)
    except (OverflowError, ValueError, OSError):
        return escape(str(moment))
    age = time.time() - moment
    said = f"{describe_span(age)} ago" if age >= 45 else "just now"
    exact = then.astimezone()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        then.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), exact.strftime("%A, %-d %B %Y, %H:%M"), said
    )


def describe_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with what it counts: `1 message`, `1,200 messages`."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def describe_size(count: float) -> str:
    """Return a number of bytes in the unit that people read."""
    for unit in ("bytes", "KB", "MB"):
        if count < 1_000:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1_000
    return f"{count:.1f} GB"


def show_code(text: str) -> Markup:
    """Return a message of ours with its commands, which stand in backticks, as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - the text is escaped before


def show_difference(before: str | None, after: str | None) -> Markup:
    """Return the changes of a text word by word: removed words struck out, new ones marked."""
    old, new = _split(before or ""), _split(after or "")
    if before is None or after is None or len(old) + len(new) > _MOST_DIFF_WORDS:
        gone = Markup("<del>{}</del>").format(before) if before else Markup("")
        come = Markup("<ins>{}</ins>").format(after) if after else Markup("")
        return gone + (Markup(" ") if gone and come else Markup("")) + come
    return Markup("").join(_mark_difference(old, new))


def _mark_difference(old: Sequence[str], new: Sequence[str]) -> Iterator[Markup]:
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        gone, come = "".join(old[a:b]), "".join(new[c:d])
        if kind == "equal":
            yield escape(gone)
            continue
        if gone:
            yield Markup("<del>{}</del>").format(gone)
        if come:
            yield Markup("<ins>{}</ins>").format(come)


def _split(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def show_marked(text: str, terms: Sequence[str]) -> Markup:
    """Return a text with the words of a query marked."""
    wanted = pattern(terms)
    shown, end = Markup(""), 0
    for match in wanted.finditer(text) if wanted is not None else ():
        shown += escape(text[end : match.start()]) + Markup("<mark>{}</mark>").format(match.group())
        end = match.end()
    return shown + escape(text[end:])
