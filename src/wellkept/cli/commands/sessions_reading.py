"""`kept sessions list | show | scroll | rename | archive | delete | restore`: read and organise past conversations."""

from collections.abc import Sequence
from typing import Annotated

import typer

from wellkept import operations
from wellkept.cli.commands.sessions import After, Before, On, highlight, local_time, time_span
from wellkept.cli.terminal import (
    MOST,
    JsonFlag,
    YesFlag,
    confirm,
    fail,
    indent_lines,
    note,
    open_caller,
    print_json,
    say,
)
from wellkept.core.messages import Session, StoredMessage
from wellkept.core.text import one_line

app = typer.Typer()

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
    if as_json:
        print_json(found.as_json())
        return
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
    """Move conversations to the trash, from which `restore` can bring them back for `sessions.trash_days` days."""
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
    """Restore a deleted conversation."""
    with open_caller() as caller:
        restored = operations.sessions.restore_session(caller, name)
    if as_json:
        print_json(restored.as_json())
    else:
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
