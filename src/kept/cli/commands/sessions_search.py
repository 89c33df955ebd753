"""`kept sessions search`: one query for a person, or many in one process for programs."""

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kept.cli.commands.transcript import highlighted, local
from kept.cli.terminal import MOST, JsonFlag, fail, moment, note, open_caller, print_json, say
from kept.cli.text import indented, printable
from kept.core.errors import UsageError
from kept.core.text import dumps
from kept.operations.search import Filters, ProfileHits, check_roles, search_many
from kept.operations.search import search as search_conversations
from kept.sessions.recall import said
from kept.sessions.search.discovery import unchecked
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
    with open_caller(user) as caller:
        now = caller.app.clock.now().timestamp()
        filters = Filters(
            limit=limit,
            after=None if after is None else moment(after, now=now),
            before=None if before is None else moment(before, now=now),
            roles=check_roles(role or ()),
            sources=tuple(source or ()),
            project=project,
            session=session,
            profiles=None if profile is None else tuple(one.strip() for one in profile.split(",") if one.strip()),
        )
        if batch is not None:
            for answer in search_many(caller, _lines(batch), filters):
                say(dumps(answer.as_line()))
            return
        found = search_conversations(caller, " ".join(query or ()), filters)
    if as_json:
        print_json(found.as_json())
        return
    for hits in found.profiles:
        show_hits(hits)


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


def show_hits(hits: ProfileHits) -> None:
    """Print the best passage of each conversation, or why there is none and what comes closest."""
    answer, prefix = hits.conversations, f"[{hits.profile}] " if hits.profile else ""
    if not answer.matches:
        note(f"{prefix}nothing matched well enough; the nearest:" if answer.nearest else f"{prefix}{answer.reason}")
        for session in answer.nearest:
            note(f"  {printable(session.id)}  {local(session.started)}  {printable(session.title or '(no title)')}")
        return
    marker = Marker(answer.found.terms)
    for match in answer.matches:
        text = printable(" ".join(said(match.message).split()))
        passage = marker.around(text, width=PASSAGE_CHARS)
        title = printable(match.session.title or "(no title)")
        say(f"{prefix}{local(match.message.timestamp)}  {title}  {printable(match.session.id)} [{match.message.id}]")
        say(highlighted(indented(f"{match.message.message.role.value}: {passage}"), answer.found.terms))
    if answer.found.unchecked:
        note(f"{prefix}{unchecked(answer.found)}: narrow it with --after and --before, or add a rarer word")
