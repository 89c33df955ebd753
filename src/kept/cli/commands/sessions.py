"""`kept sessions`: list, read, organise and search past conversations, and explain what a search finds."""

import codecs
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kept import operations
from kept.app import Caller
from kept.cli.terminal import (
    MOST,
    Bold,
    JsonFlag,
    YesFlag,
    confirm,
    fail,
    indent_lines,
    join_groups,
    moment,
    note,
    open_caller,
    print_json,
    print_json_line,
    say,
)
from kept.core.clock import from_epoch
from kept.core.errors import UsageError
from kept.core.messages import Session, StoredMessage
from kept.core.text import one_line
from kept.core.values import dataclass, replace

if TYPE_CHECKING:
    from kept.operations.search import Filters, ProfileHits
    from kept.sessions.search.why import Explanation

app = typer.Typer(no_args_is_help=True, help="Past conversations: find, read, tidy.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A session's id, the beginning of it, or its title.")]


def register(program: typer.Typer) -> None:
    """Add the group, with the commands of the other modules."""
    from kept.cli.commands import sessions_transfer, sessions_upkeep

    join_groups(app, sessions_transfer.app, sessions_upkeep.app)
    program.add_typer(app, name="sessions")


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many.")] = 20,
    source: Annotated[str | None, typer.Option("--source", help="Only from this source.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's instead of the owner's.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones, too.")] = False,
    trash: Annotated[bool, typer.Option("--trash", help="What was deleted and can be restored.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List sessions, the last active first."""
    with open_caller(user) as caller:
        if trash:
            found = operations.sessions.list_trash(caller, limit=limit)
        else:
            found = operations.sessions.list_sessions(caller, limit=limit, source=source, archived=archived)
    if as_json:
        print_json(found.as_json())
        return
    for session in found.sessions:
        say_session(session, preview=found.previews.get(session.id, ""))
    if found.sessions:
        return
    if trash:
        note("the trash is empty")
    elif source is not None or user is not None:
        note("no matching sessions")
    else:
        note("no sessions: talk with `kept chat`, or bring some along with `kept import`")


@app.command()
def show(
    name: Name,
    first: Annotated[int | None, typer.Option("--first", min=1, max=MOST, help="Only the first N messages.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, max=MOST, help="Only the last N messages.")] = None,
    audit: Annotated[bool, typer.Option("--audit", help="The calls of external memories instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print a session's messages, or its calls of external memories."""
    if audit:
        _show_calls(name, as_json=as_json)
        return
    with open_caller() as caller:
        found = operations.sessions.show_session(caller, name, first=first, last=last)
    if as_json:
        print_json(found.as_json())
        return
    say_session(found.session)
    for message in found.messages:
        say_message(message)


def _show_calls(name: str, *, as_json: bool) -> None:
    """Print one line per call: provider, call, time, duration, outcome and bytes, never any text."""
    with open_caller() as caller:
        found = operations.sessions.list_provider_calls(caller, name)
    if as_json:
        print_json(found.as_json())
        return
    for call in found.calls:
        what = f"{call.provider} {call.call}"
        took = f"{call.seconds * 1000:.0f} ms"
        size = f"{call.bytes_out:,} out, {call.bytes_in:,} in"
        say(f"{local_time(call.started)}  {what:32} {took:>9}  {call.outcome}  {size}")
    if not found.calls:
        note("no external memory was called in this session")


@app.command()
def scroll(
    message: Annotated[int, typer.Argument(help="The id of a message.")],
    window: Annotated[int, typer.Option("--window", "-w", min=1, max=200, help="Messages on each side.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Print the messages around one; continue with the first or last id shown."""
    with open_caller() as caller:
        found = operations.sessions.scroll(caller, message, window=window)
    if as_json:
        print_json(found.as_json())
        return
    say(f"session {found.session_id}")
    for one in found.messages:
        say_message(one, mark=">" if one.id == message else " ")


@app.command()
def rename(name: Name, title: Annotated[str, typer.Argument(help="The new title.")], as_json: JsonFlag = False) -> None:
    """Give a session a title; a taken one gets ` #N`."""
    with open_caller() as caller:
        renamed = operations.sessions.rename_session(caller, name, title)
    if as_json:
        print_json(renamed.as_json())
    else:
        say(f"{renamed.session_id}  {renamed.title}")


@app.command()
def archive(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Show it in lists again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Hide a conversation from lists; search still finds it."""
    with open_caller() as caller:
        changed = operations.sessions.archive_session(caller, name, archived=not undo)
    if as_json:
        print_json(changed.as_json())
    else:
        say(f"{'shown again' if undo else 'archived'}: {', '.join(changed.sessions)}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(help="Sessions by id, beginning of an id, or title.")],
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move conversations to the trash; `restore` brings them back for `sessions.trash_days` days."""
    with open_caller() as caller:
        ids = operations.sessions.resolve_sessions(caller, names)
        if not confirm(f"move {', '.join(ids)} to the trash?", yes=yes):
            fail("nothing was deleted")
        deleted = operations.sessions.delete_sessions(caller, ids)
    if as_json:
        print_json(deleted.as_json())
    else:
        say(f"in the trash for {deleted.restorable_days} days: {', '.join(deleted.sessions)}")


@app.command()
def restore(name: Name, as_json: JsonFlag = False) -> None:
    """Bring a deleted conversation back."""
    with open_caller() as caller:
        restored = operations.sessions.restore_session(caller, name)
    if as_json:
        print_json(restored.as_json())
    else:
        say(f"restored: {', '.join(restored.sessions)}")


def local_time(epoch: float) -> str:
    """Return a moment in the local time zone."""
    try:
        return f"{from_epoch(epoch).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return str(epoch)


def highlight(text: str, terms: Sequence[str]) -> list[str | Bold]:
    """Return `text` in parts, the terms in bold."""
    if not terms:
        return [text]
    from kept.sessions.search.occurrences import pattern

    wanted = pattern(terms)
    parts: list[str | Bold] = []
    place = 0
    for match in wanted.finditer(text) if wanted is not None else ():
        parts += [text[place : match.start()], Bold(match.group())]
        place = match.end()
    return [*parts, text[place:]]


def say_message(message: StoredMessage, *, terms: Sequence[str] = (), mark: str = " ") -> None:
    """Print one message with its id and date."""
    head = f"{mark}[{message.id}] {local_time(message.timestamp)} {message.message.role.value}"
    note = "" if message.state.value == "active" else f" ({message.state.value})"
    say(f"{head}{note}")
    say(*highlight(indent_lines(message.message.display_text), terms))


def say_session(session: Session, *, preview: str = "") -> None:
    """Print one session on two lines."""
    title = session.title or one_line(preview, width=60) or "(no title)"
    flags = " archived" if session.archived else ""
    when_active = local_time(session.last_active or session.started)
    messages = f"{session.message_count:>5} {'message ' if session.message_count == 1 else 'messages'}"
    say(f"{session.id}  {when_active}  {messages}  {session.source}{flags}")
    say(f"    {title}")


PASSAGE_CHARS = 320

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many sessions and messages.")]
After = Annotated[str | None, typer.Option("--after", help="Only since then: 2026-03-01, last week.")]
Before = Annotated[str | None, typer.Option("--before", help="Only before then.")]
RoleNames = Annotated[list[str] | None, typer.Option("--role", help="Only messages of this role.")]
Sources = Annotated[list[str] | None, typer.Option("--source", help="Only sessions from this source.")]
Project = Annotated[str | None, typer.Option("--project", help="Only sessions of this folder.")]
InSession = Annotated[str | None, typer.Option("--session", help="Only inside this session.")]


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """The options that narrow a search, as they were given."""

    limit: int
    after: str | None
    before: str | None
    role: list[str] | None
    source: list[str] | None
    project: str | None
    session: str | None

    def filters(self, caller: Caller) -> "Filters":
        """Return them as the operation takes them; raises UsageError for an invalid date or role."""
        from kept.operations.search import Filters, check_roles

        now = caller.app.clock.now().timestamp()
        return Filters(
            limit=self.limit,
            after=None if self.after is None else moment(self.after, now=now),
            before=None if self.before is None else moment(self.before, now=now),
            roles=check_roles(self.role or ()),
            sources=tuple(self.source or ()),
            project=self.project,
            session=self.session,
        )


@app.command()
def search(
    query: Annotated[list[str] | None, typer.Argument(help="A question, or words to find.", metavar="QUERY")] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="A file with one query per line; - reads them.")] = None,
    limit: Limit = 10,
    after: After = None,
    before: Before = None,
    role: RoleNames = None,
    source: Sources = None,
    project: Project = None,
    session: InSession = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's sessions instead of the owner's.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Other profiles, with commas.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find past messages: a plain question, words, "phrases", AND, OR, NOT, prefix*."""
    from kept.operations.search import search as search_conversations
    from kept.operations.search import search_many

    if (not query) == (batch is None):
        fail("give a query or --batch FILE", 'kept sessions search "what did we decide?"', code=2)
    with open_caller(user) as caller:
        profiles = None if profile is None else tuple(one.strip() for one in profile.split(",") if one.strip())
        narrowing = _Narrowing(limit, after, before, role, source, project, session)
        filters = replace(narrowing.filters(caller), profiles=profiles)
        if batch is not None:
            for answer in search_many(caller, _lines(batch), filters):
                print_json_line(answer.as_line())
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


def show_hits(hits: "ProfileHits") -> None:
    """Print the best passage of each conversation, or the reason and the nearest sessions when there is none."""
    answer, prefix = hits.conversations, f"[{hits.profile}] " if hits.profile else ""
    if not answer.matches:
        note(f"{prefix}nothing matched well enough; the nearest:" if answer.nearest else f"{prefix}{answer.reason}")
        for session in answer.nearest:
            note(f"  {session.id}  {local_time(session.started)}  {session.title or '(no title)'}")
        return
    from kept.sessions.search.discovery import describe_unchecked
    from kept.sessions.search.occurrences import Marker

    marker = Marker(answer.found.terms)
    for match in answer.matches:
        text = " ".join(match.message.message.display_text.split())
        passage = marker.around(text, width=PASSAGE_CHARS)
        title, when = match.session.title or "(no title)", local_time(match.message.timestamp)
        say(f"{prefix}{when}  {title}  {match.session.id} [{match.message.id}]")
        say(*highlight(indent_lines(f"{match.message.message.role.value}: {passage}"), answer.found.terms))
    if answer.found.unchecked:
        note(f"{prefix}{describe_unchecked(answer.found)}: narrow it with --after and --before, or add a rarer word")


@app.command()
def why(
    message: Annotated[int, typer.Argument(help="The id of a message.")],
    query: Annotated[str, typer.Option("--query", "-q", help="The question that it should answer.")],
    limit: Limit = 10,
    after: After = None,
    before: Before = None,
    role: RoleNames = None,
    source: Sources = None,
    project: Project = None,
    session: InSession = None,
    as_json: JsonFlag = False,
) -> None:
    """Explain why a search shows a message, or why not: rank, parts of the score, or what kept it out."""
    from kept.operations.search import explain_message

    with open_caller() as caller:
        narrowing = _Narrowing(limit, after, before, role, source, project, session)
        found = explain_message(caller, message, query, narrowing.filters(caller))
    if as_json:
        print_json(found.as_json())
    else:
        _show_explanation(found)


def _show_explanation(found: "Explanation") -> None:
    say(f"message {found.message_id}: {found.reason}")
    if found.score is not None:
        say(f"  score {found.score:.3f}, rank {found.message_rank} of all messages that were ranked")
        for name, value in sorted(found.parts.items(), key=lambda part: -part[1]):
            if value:
                say(f"    {name:<12} {value:8.3f}")
    for term in found.terms:
        held = "contains" if term.is_held else "lacks"
        say(f"  {held:<9} {term.text} (weight {term.weight:.2f})")
    if found.last_shown is not None and found.outcome == "below_limit":
        last = found.last_shown
        say(f"  the last one shown: message {last.message_id} at rank {last.rank}, score {last.score:.3f}")
