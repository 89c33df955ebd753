"""`kept sessions`: find, read, organise, import and export past conversations."""

import codecs
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer
from msgspec import Struct
from msgspec.structs import replace

from wellkept import operations
from wellkept.app import Caller
from wellkept.cli.terminal import (
    MOST,
    Bold,
    JsonFlag,
    YesFlag,
    confirm,
    count_noun,
    fail,
    indent_lines,
    join_groups,
    moment,
    note,
    open_caller,
    print_json,
    print_json_line,
    say,
    show_json,
    write_lines,
)
from wellkept.core.clock import from_epoch
from wellkept.core.errors import UsageError
from wellkept.core.messages import Session, StoredMessage
from wellkept.core.regular_files import load_bytes, open_regular
from wellkept.core.text import dumps, one_line
from wellkept.languages.dates import DAY_SECONDS, parse_span

if TYPE_CHECKING:
    from wellkept.operations.search import Filters, ProfileHits
    from wellkept.sessions.search.discovery import Conversations, Explanation

app = typer.Typer(no_args_is_help=True, help="Past conversations: find, read, tidy.", rich_markup_mode=None)

After = Annotated[str | None, typer.Option("--after", help="Only since then: 2026-03-01, last week.")]
Before = Annotated[str | None, typer.Option("--before", help="Only before then.")]
On = Annotated[
    str | None, typer.Option("--on", help="Only within this time: yesterday, 2026-03-01, last week, im März.")
]


def register(program: typer.Typer) -> None:
    """Add the group, with the commands of the other module."""
    from wellkept.cli.commands import sessions_upkeep

    join_groups(app, sessions_upkeep.app)
    program.add_typer(app, name="sessions")


def time_span(
    after: str | None, before: str | None, on: str | None, *, now: float
) -> tuple[float | None, float | None]:
    """Return the times of `--after`, `--before` and `--on`; raises UsageError for an invalid date."""
    if on is None:
        first = None if after is None else moment(after, now=now)
        last = None if before is None else moment(before, now=now)
        if first is not None and last is not None and first >= last:
            raise UsageError(
                f"--after {after!r} ({local_time(first)}) is not earlier than --before {before!r} ({local_time(last)})",
                "exchange them, or leave one out",
            )
        return first, last
    if after is not None or before is not None:
        raise UsageError("--on cannot be combined with --after or --before", "give only one of them")
    span = parse_span(on, now=now)
    if span is not None:
        return span.start, span.end
    day = moment(on, now=now)
    return day, day + DAY_SECONDS


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
    from wellkept.sessions.search.occurrences import pattern

    wanted = pattern(terms)
    parts: list[str | Bold] = []
    place = 0
    for match in wanted.finditer(text) if wanted is not None else ():
        parts += [text[place : match.start()], Bold(match.group())]
        place = match.end()
    return [*parts, text[place:]]


PASSAGE_CHARS = 320
_SHOWN = 10
_NEAREST = "nothing matched well enough; the nearest:"

LISTED = 50
"""How many conversations a question about a time lists: one line each, so more than passages."""

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many sessions and messages.")]
Most = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", min=1, max=MOST, help="How many; default: 10, or 50 for a question only about a time."
    ),
]
RoleNames = Annotated[list[str] | None, typer.Option("--role", help="Only messages of this role.")]
Sources = Annotated[list[str] | None, typer.Option("--source", help="Only sessions from this source.")]
Project = Annotated[str | None, typer.Option("--project", help="Only sessions of this folder.")]
InSession = Annotated[str | None, typer.Option("--session", help="Only inside this session.")]


class _Narrowing(Struct, frozen=True):
    """The options that narrow a search, as they were given."""

    limit: int | None
    after: str | None
    before: str | None
    role: list[str] | None
    source: list[str] | None
    project: str | None
    session: str | None
    on: str | None = None

    def filters(self, caller: Caller) -> "Filters":
        """Return them as the operation takes them; raises UsageError for an invalid date or role."""
        from wellkept.operations.search import Filters, check_roles

        after, before = time_span(self.after, self.before, self.on, now=caller.app.clock.now().timestamp())
        return Filters(
            limit=self.limit or _SHOWN,
            listed=LISTED if self.limit is None else 0,
            after=after,
            before=before,
            roles=check_roles(self.role or ()),
            sources=tuple(self.source or ()),
            project=self.project,
            session=self.session,
        )


@app.command()
def search(
    query: Annotated[list[str] | None, typer.Argument(help="A question, or words to find.", metavar="QUERY")] = None,
    batch: Annotated[str | None, typer.Option("--batch", help="A file with one query per line; - reads them.")] = None,
    limit: Most = None,
    after: After = None,
    before: Before = None,
    on: On = None,
    role: RoleNames = None,
    source: Sources = None,
    project: Project = None,
    session: InSession = None,
    sort: Annotated[
        Literal["newest", "oldest"] | None, typer.Option("--sort", help="By time instead of by relevance.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's sessions instead of the owner's.")] = None,
    profile: Annotated[str | None, typer.Option("--profile", "-p", help="Other profiles, with commas.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find past messages: a plain question, words, "phrases", AND, OR, NOT, prefix*.

    A question that is only about a time ("what did we do last week?"), or a time without a query, lists the
    conversations of that time.
    """
    from wellkept.operations.search import search as search_conversations
    from wellkept.operations.search import search_many

    has_time = any(value is not None for value in (after, before, on))
    if (bool(query) and batch is not None) or not (query or batch is not None or has_time):
        fail("give a query, a time or --batch FILE", 'kept sessions search "what did we decide?"', code=2)
    with open_caller(user) as caller:
        profiles = None if profile is None else tuple(name.strip() for name in profile.split(",") if name.strip())
        narrowing = _Narrowing(limit, after, before, role, source, project, session, on)
        filters = replace(narrowing.filters(caller), profiles=profiles, sort=sort)
        if batch is not None:
            for answer in search_many(caller, _lines(batch), filters):
                print_json_line(answer.as_line())
            return
        found = search_conversations(caller, " ".join(query or ()), filters)
    show_json(found, as_json=as_json)
    for hits in found.profiles:
        show_hits(hits)


def _lines(name: str) -> Iterator[str]:
    if name == "-":
        raw = sys.stdin.buffer.read()
    else:
        try:
            raw = load_bytes(Path(name))
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
        said = "nothing from that time matched well enough; its conversations:" if answer.found.of_time else _NEAREST
        note(f"{prefix}{said}" if answer.nearest else f"{prefix}{answer.reason}")
        for session in answer.nearest:
            note(f"  {session.id}  {local_time(session.started)}  {session.title or '(no title)'}")
        return
    if answer.found.period is not None:
        _show_days(answer, prefix)
        return
    from wellkept.sessions.search.discovery import describe_unchecked
    from wellkept.sessions.search.occurrences import Marker

    marker = Marker(answer.found.terms)
    for match in answer.matches:
        text = " ".join(marker.show(match.message.message).split())
        passage = marker.around(text, width=PASSAGE_CHARS)
        title, when = match.session.title or "(no title)", local_time(match.message.timestamp)
        later = "" if match.superseded_by is None else f"  (superseded by [{match.superseded_by}])"
        say(f"{prefix}{when}  {title}  {match.session.id} [{match.message.id}]{later}")
        say(*highlight(indent_lines(f"{match.message.message.role.value}: {passage}"), answer.found.terms))
    if answer.found.unchecked:
        note(f"{prefix}{describe_unchecked(answer.found)}: narrow it with --after and --before, or add a rarer word")


def _show_days(answer: "Conversations", prefix: str) -> None:
    """Print the conversations of a time, a line each, by day."""
    from wellkept.sessions.search.periods import by_day

    period = answer.found.period
    assert period is not None
    for day, matches in by_day(answer.matches):
        say(f"{prefix}{day:%Y-%m-%d, %A}")
        for match in matches:
            words = one_line(match.message.message.display_text, width=60)
            # a question for the first thing that was said wants its words
            title = (words if period.is_one else match.session.title or words) or "(no title)"
            say(f"  {local_time(match.message.timestamp)[11:]}  {title}  {match.session.id}")
    if answer.more:
        note(f"{prefix}{answer.more:,} more from that time: name a shorter time, or a higher --limit")


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
    """Explain why a search shows a message, or why not: rank, parts of the score, or what excludes it."""
    from wellkept.operations.search import explain_message

    with open_caller() as caller:
        narrowing = _Narrowing(limit, after, before, role, source, project, session)
        explanation = explain_message(caller, message, query, narrowing.filters(caller))
    show_json(explanation, as_json=as_json)
    _show_explanation(explanation)


def _show_explanation(found: "Explanation") -> None:
    say(f"message {found.message_id}: {found.reason}")
    if found.source is not None:
        from wellkept.core.provenance import describe

        say(f"  its text came from {describe(found.source)}; agents are given it as unverified")
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


Name = Annotated[str, typer.Argument(help="A session's id, the beginning of it, or its title.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many.")] = 20,
    source: Annotated[str | None, typer.Option("--source", help="Only from this source.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's instead of the owner's.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Include archived sessions.")] = False,
    trash: Annotated[bool, typer.Option("--trash", help="List deleted sessions that can be restored.")] = False,
    after: After = None,
    before: Before = None,
    on: On = None,
    as_json: JsonFlag = False,
) -> None:
    """List sessions, last active first; with a time, those with messages in it."""
    with open_caller(user) as caller:
        if trash:
            found = operations.sessions.list_trash(caller, limit=limit)
        else:
            first, last = time_span(after, before, on, now=caller.app.clock.now().timestamp())
            wanted = operations.sessions.Listed(limit, source, archived, first, last)
            found = operations.sessions.list_sessions(caller, wanted)
    show_json(found, as_json=as_json)
    for session in found.sessions:
        say_session(session, preview=found.previews.get(session.id, ""))
    if found.sessions:
        return
    if trash:
        note("the trash is empty")
    elif any(value is not None for value in (source, user, after, before, on)):
        note("no matching sessions")
    else:
        note("no sessions yet: start one with `kept chat`, or import some with `kept import`")


@app.command()
def show(
    name: Name,
    first: Annotated[int | None, typer.Option("--first", min=1, max=MOST, help="Only the first N messages.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, max=MOST, help="Only the last N messages.")] = None,
    audit: Annotated[bool, typer.Option("--audit", help="Show the calls to external memories instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print a session's messages, or its calls to external memories."""
    if audit:
        _show_calls(name, as_json=as_json)
        return
    with open_caller() as caller:
        session = operations.sessions.show_session(caller, name, first=first, last=last)
    show_json(session, as_json=as_json)
    say_session(session.session)
    for message in session.messages:
        say_message(message)


def _show_calls(name: str, *, as_json: bool) -> None:
    """Print one line per call: provider, call, time, duration, outcome and bytes, never any text."""
    with open_caller() as caller:
        provider_calls = operations.sessions.list_provider_calls(caller, name)
    if as_json:
        print_json(provider_calls.as_json())
        return
    for call in provider_calls.calls:
        what = f"{call.provider} {call.call}"
        took = f"{call.seconds * 1000:.0f} ms"
        size = f"{call.bytes_out:,} out, {call.bytes_in:,} in"
        say(f"{local_time(call.started)}  {what:32} {took:>9}  {call.outcome}  {size}")
    if not provider_calls.calls:
        note("no external memory was called in this session")


@app.command()
def scroll(
    message: Annotated[int, typer.Argument(help="The id of a message.")],
    window: Annotated[int, typer.Option("--window", "-w", min=1, max=200, help="Messages on each side.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Print the messages around one; continue with the first or last id shown."""
    with open_caller() as caller:
        excerpt = operations.sessions.scroll(caller, message, window=window)
    show_json(excerpt, as_json=as_json)
    say(f"session {excerpt.session_id}")
    for one in excerpt.messages:
        say_message(one, mark=">" if one.id == message else " ")


@app.command()
def rename(name: Name, title: Annotated[str, typer.Argument(help="The new title.")], as_json: JsonFlag = False) -> None:
    """Give a session a title; a taken one gets ` #N`."""
    with open_caller() as caller:
        renamed = operations.sessions.rename_session(caller, name, title)
    show_json(renamed, as_json=as_json)
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
    show_json(changed, as_json=as_json)
    say(f"{'shown again' if undo else 'archived'}: {', '.join(changed.sessions)}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(help="Sessions by id, beginning of an id, or title.")],
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move conversations to the trash, from which `restore` can bring them back for `sessions.trash_days` days."""
    with open_caller() as caller:
        ids = operations.sessions.resolve_sessions(caller, names)
        if not confirm(f"move {', '.join(ids)} to the trash?", yes=yes):
            fail("nothing was deleted")
        deleted = operations.sessions.delete_sessions(caller, ids)
    show_json(deleted, as_json=as_json)
    say(f"in the trash for {deleted.restorable_days} days: {', '.join(deleted.sessions)}")


@app.command()
def restore(name: Name, as_json: JsonFlag = False) -> None:
    """Restore a deleted conversation."""
    with open_caller() as caller:
        restored = operations.sessions.restore_session(caller, name)
    show_json(restored, as_json=as_json)
    say(f"restored: {', '.join(restored.sessions)}")


def say_message(message: StoredMessage, *, terms: Sequence[str] = (), mark: str = " ") -> None:
    """Print one message with its id and date."""
    head = f"{mark}[{message.id}] {local_time(message.timestamp)} {message.message.role.value}"
    note = "" if message.state.value == "active" else f" ({message.state.value})"
    if message.source is not None:
        from wellkept.core.provenance import describe

        note += f" (from {describe(message.source)})"
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


_PROBLEMS_SHOWN = 20


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(help="Messages or conversations as JSONL or JSON; - reads it.")],
    source: Annotated[str, typer.Option("--source", help="The source of lines that name none.")] = "import:jsonl",
    as_json: JsonFlag = False,
) -> None:
    """Import conversations; known lines are skipped, invalid ones are reported.

    A line is a message as `kept sessions export` writes it, or a message or a whole conversation in the shape of
    OpenAI's or Anthropic's API. A JSON array of them is accepted too.
    """
    with open_caller() as caller:
        if file == "-":
            done = operations.sessions.import_sessions(caller, sys.stdin.buffer, source=source)
        else:
            path = Path(file)
            with _open_file(path) as lines:
                done = operations.sessions.import_sessions(caller, lines, source=source, total=_count_lines(path))
    _show_import(done, as_json=as_json)
    if done.failed:
        raise typer.Exit(1)


def _show_import(done: "operations.sessions.Imported", *, as_json: bool) -> None:
    report = done.report
    for number, why in report.problems[:_PROBLEMS_SHOWN]:
        note(f"line {number}: {why}")
    if report.bad > _PROBLEMS_SHOWN:
        note(f"and {count_noun(report.bad - _PROBLEMS_SHOWN, 'more bad line')}")
    if as_json:
        print_json(done.as_json())
    else:
        forgotten = f"; {report.forgotten:,} stay forgotten" if report.forgotten else ""
        bad = f"; {count_noun(report.bad, 'bad line')} skipped" if report.bad else ""
        new = f"{count_noun(report.messages, 'message')} in {count_noun(report.sessions, 'new session')}"
        say(f"{new}; {report.known:,} already known{forgotten}{bad}")
    if done.vectors_waiting:
        waiting = count_noun(done.vectors_waiting, "message")
        note(f"{waiting} without vectors; to search them by meaning, run: kept sessions embed")


def _open_file(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}", "give a JSONL file") from error


def _count_lines(path: Path) -> int:
    with open_regular(path) as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


@app.command()
def export(
    names: Annotated[list[str] | None, typer.Argument(help="Sessions; without any, all.")] = None,
    user: Annotated[str | None, typer.Option("--user", help="This user's instead of the owner's.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "--output", "-o", help="Write to this file.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Also what was sent to the model.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write conversations as JSONL: one line for the session, then one per message; `import` reads it."""
    with open_caller(user) as caller:
        lines = operations.sessions.export_sessions(caller, names or (), raw=raw)
        if out is None:
            for line in lines:
                print_json_line(line)
            return
        count = write_lines(out, map(dumps, lines), caller.app.home.root)
    show_json({"file": str(out), "lines": count}, as_json=as_json)
    note(f"{count_noun(count, 'line')} in {out}")
