"""`kept sessions search`: one query for a person, or many in one process for programs."""

import codecs
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kept.app import App
from kept.cli.commands.transcript import highlighted, local
from kept.cli.terminal import MOST, JsonFlag, fail, moment, note, opened, print_json, say
from kept.cli.text import indented, printable
from kept.config.settings import nearest as nearest_word
from kept.core.errors import UsageError
from kept.core.ids import OWNER, SessionId, UserId
from kept.core.messages import Role
from kept.core.search import Found, SearchRequest
from kept.core.text import JSON, dumps
from kept.operations.sessions import message_json
from kept.sessions.ports import Sessions
from kept.sessions.recall import said
from kept.sessions.search.discovery import nearest, unchecked, why
from kept.sessions.search.snippets import Marker

PASSAGE_CHARS = 320


def add_to(app: typer.Typer) -> None:
    """Add the command to its group."""
    app.command()(search)


def search(
    query: Annotated[list[str] | None, typer.Argument(help="A question, or words to find.", metavar="QUERY")] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="A file with one query per line; - reads them.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many sessions and messages.")] = 10,
    after: Annotated[str | None, typer.Option("--after", help="Only since then: 2026-03-01, last week.")] = None,
    before: Annotated[str | None, typer.Option("--before", help="Only before then.")] = None,
    role: Annotated[list[str] | None, typer.Option("--role", help="Only messages of this role.")] = None,
    source: Annotated[list[str] | None, typer.Option("--source", help="Only sessions from this source.")] = None,
    project: Annotated[str | None, typer.Option("--project", help="Only sessions of this folder.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only inside this session.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's sessions instead of the owner's.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Other profiles, with commas.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find past messages by a plain question, words, "phrases", AND, OR, NOT, prefix*."""
    if (not query) == (batch is None):
        fail("give a query or --batch FILE", 'kept sessions search "what did we decide?"', code=2)
    with opened() as kept:
        now = kept.clock.now().timestamp()
        owner = UserId(user) if user is not None else OWNER
        base = SearchRequest(
            " ".join(query or ()),
            limit=limit,
            after=None if after is None else moment(after, now=now),
            before=None if before is None else moment(before, now=now),
            roles=_roles(role or ()),
            sources=tuple(source or ()),
            project=project,
            session_id=_session_id(kept, session, profile, owner),
        )
        stores = [(name, store.for_user(owner)) for name, store in _stores(kept, profile)]
        if batch is not None:
            for line in _lines(batch):
                request = replace(base, query=line)
                say(dumps(_answer(request, [store.search(request) for _, store in stores])))
            return
        if as_json:
            found = [(store, store.search(base)) for _, store in stores]
            print_json({**_answer(base, [answer for _, answer in found]), "passages": _passages(base, found)})
            return
        for name, store in stores:
            _show(name, store, base)


def _session_id(kept: App, name: str | None, profile: str | None, owner: UserId) -> SessionId | None:
    if name is None:
        return None
    return SessionId(name) if profile is not None else kept.sessions.for_user(owner).resolve(name)


def _roles(names: Sequence[str]) -> tuple[str, ...]:
    """Return the roles that are asked for, several in one word where commas stand between them."""
    known = [role.value for role in Role]
    roles = tuple(one.strip() for name in names for one in name.split(",") if one.strip())
    for role in roles:
        if role not in known:
            raise UsageError(f"there is no role {role!r}{nearest_word(role, known)}", f"use one of {', '.join(known)}")
    return roles


def _stores(kept: App, profiles: str | None) -> list[tuple[str, Sessions]]:
    """Return the store of this home, or those of the named profiles, which are only read."""
    if profiles is None:
        return [("", kept.sessions)]
    names = list(dict.fromkeys(one.strip() for one in profiles.split(",") if one.strip()))
    if not names:
        raise UsageError("--profile needs a name", "write --profile NAME, or several with commas between them")
    found = []
    for name in names:
        store = kept.sessions_of(name)
        if store is None:
            note(f"[{name}] no conversation is stored yet")
        else:
            found.append((name, store))
    return found


def _lines(name: str) -> Iterator[str]:
    if name == "-":
        raw = sys.stdin.buffer.read()
    else:
        try:
            raw = Path(name).read_bytes()
        except OSError as error:
            raise UsageError(
                f"cannot read {name!r}: {error.strerror}", "give a file with one query per line"
            ) from error
    lines = raw.removeprefix(codecs.BOM_UTF8).split(b"\n")
    for line in lines[:-1] if lines[-1] == b"" else lines:
        yield line.removesuffix(b"\r").decode("utf-8", "replace")


def _answer(request: SearchRequest, founds: Sequence[Found]) -> dict[str, JSON]:
    sessions = sorted((one for found in founds for one in found.sessions), key=lambda one: -one.score)
    messages = sorted((one for found in founds for one in found.messages), key=lambda one: -one.score)
    return {
        "query": request.query,
        "sessions": [{"session_id": one.session_id, "score": round(one.score, 6)} for one in sessions[: request.limit]],
        "messages": [
            {"external_id": one.external_id, "session_id": one.session_id, "score": round(one.score, 6)}
            for one in messages[: request.limit]
        ],
        "abstained": all(found.abstained for found in founds),
    }


def _passages(request: SearchRequest, found: Sequence[tuple[Sessions, Found]]) -> list[JSON]:
    return [
        {**message_json(message), "score": round(hit.score, 6), "parts": dict(hit.parts)}
        for store, answer in found
        for hit in answer.messages[: request.limit]
        if (message := store.message(hit.message_id)) is not None
    ]


def _show(name: str, store: Sessions, request: SearchRequest) -> None:
    found = store.search(request)
    prefix = f"[{name}] " if name else ""
    if found.abstained and not found.sessions:
        note(f"{prefix}{why(store, request, found)}")
        return
    if found.abstained:
        note(f"{prefix}nothing matched well enough; the nearest:")
        for session in nearest(store, found):
            note(f"  {printable(session.id)}  {local(session.started)}  {printable(session.title or '(no title)')}")
        return
    _show_passages(prefix, store, found, limit=request.limit)
    if found.unchecked:
        note(f"{prefix}{unchecked(found)}: narrow it with --after and --before, or add a rarer word")


def _show_passages(prefix: str, store: Sessions, found: Found, *, limit: int) -> None:
    lineage = store.lineage()
    seen: set[SessionId] = set()
    marker = Marker(found.terms)
    for hit in found.sessions[:limit]:
        root = lineage.root(hit.session_id)
        session, message = store.session(hit.session_id), store.message(hit.best_message_id)
        if root in seen or session is None or message is None:
            continue
        seen.add(root)
        text = printable(" ".join(said(message).split()))
        passage = marker.around(text, width=PASSAGE_CHARS)
        title = printable(session.title or "(no title)")
        say(f"{prefix}{local(message.timestamp)}  {title}  {printable(session.id)} [{message.id}]")
        say(highlighted(indented(f"{message.message.role.value}: {passage}"), found.terms))
