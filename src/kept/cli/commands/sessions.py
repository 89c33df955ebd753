"""`kept sessions`: list, read and tidy past conversations."""

from collections.abc import Sequence
from typing import Annotated

import typer

from kept.cli.commands.sessions_audit import show_audit
from kept.cli.commands.transcript import message_json, say_message, say_session, session_json
from kept.cli.terminal import MOST, JsonFlag, YesFlag, confirmed, fail, note, opened, print_json, say
from kept.cli.text import printable
from kept.core.errors import UsageError
from kept.core.ids import MessageId, SessionId, UserId
from kept.core.messages import Session
from kept.core.text import JSON

app = typer.Typer(no_args_is_help=True, help="Past conversations: find, read, tidy.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="A session's id, the beginning of it, or its title.")]


def register(program: typer.Typer) -> None:
    """Add the group, with the commands that stand in modules of their own."""
    from kept.cli.commands import sessions_care, sessions_compress, sessions_embed, sessions_search, sessions_transfer

    for part in (sessions_search, sessions_transfer, sessions_care, sessions_embed, sessions_compress):
        part.add_to(app)
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
    with opened() as kept:
        store = kept.sessions if user is None else kept.sessions.for_user(UserId(user))
        if trash:
            found = store.keeping.trashed()[:limit]
        else:
            found = store.recent(limit=limit, source=source, archived=archived)
        if as_json:
            print_json([session_json(session) for session in found])
            return
        for session in found:
            say_session(session, preview="" if session.title else store.preview(session.id))
        if not found and trash:
            note("the trash is empty")
        elif not found and (source is not None or user is not None):
            note("no session fits")
        elif not found:
            note("no sessions: talk with `kept chat`, or bring some with `kept sessions import FILE.jsonl`")


@app.command()
def show(
    name: Name,
    first: Annotated[int | None, typer.Option("--first", min=1, max=MOST, help="Only the first N messages.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, max=MOST, help="Only the last N messages.")] = None,
    audit: Annotated[bool, typer.Option("--audit", help="The calls of external memories instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print a session with its messages, or what external memories were asked and told in it."""
    with opened() as kept:
        store = kept.sessions
        if audit:
            show_audit(kept, store.resolve(name), as_json=as_json)
            return
        session = store.session(store.resolve(name))
        assert session is not None
        if first is None and last is None:
            messages = store.messages(session.id)
        else:
            head, tail = store.edges(session.id, first=first or 0, last=last or 0)
            messages = list({message.id: message for message in [*head, *tail]}.values())
        if as_json:
            print_json({"session": session_json(session), "messages": [message_json(message) for message in messages]})
            return
        say_session(session)
        for message in messages:
            say_message(message)


@app.command()
def scroll(
    message: Annotated[int, typer.Argument(help="The id of a message.")],
    window: Annotated[int, typer.Option("--window", "-w", min=1, max=200, help="Messages on each side.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Print the messages around one; go on with the first or last id shown."""
    with opened() as kept:
        around = kept.sessions.window(MessageId(message), before=window, after=window)
        if as_json:
            shown: list[JSON] = [{**message_json(one), "anchor": one.id == message} for one in around]
            print_json({"session_id": around[0].session_id, "messages": shown})
            return
        say(f"session {printable(around[0].session_id)}")
        for one in around:
            say_message(one, mark=">" if one.id == message else " ")


@app.command()
def rename(name: Name, title: Annotated[str, typer.Argument(help="The new title.")], as_json: JsonFlag = False) -> None:
    """Give a session a title; a taken one gets ` #N`."""
    with opened() as kept:
        session_id = kept.sessions.resolve(name)
        given = kept.sessions.rename(session_id, title)
        if as_json:
            print_json({"session_id": session_id, "title": given})
        else:
            say(printable(f"{session_id}  {given}"))


@app.command()
def archive(
    name: Name,
    undo: Annotated[bool, typer.Option("--undo", help="Show it in lists again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Hide a conversation from lists; search still finds it."""
    with opened() as kept:
        changed = kept.sessions.keeping.archive(kept.sessions.resolve(name), archived=not undo)
        if as_json:
            print_json({"sessions": list(changed), "archived": not undo})
        else:
            say(f"{'shown again' if undo else 'archived'}: {', '.join(changed)}")


@app.command()
def delete(
    names: Annotated[list[str], typer.Argument(help="Sessions by id, beginning of an id, or title.")],
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move conversations to the trash; `restore` brings them back for `sessions.trash_days` days."""
    with opened() as kept:
        ids = [kept.sessions.resolve(name) for name in names]
        if not confirmed(f"move {', '.join(ids)} to the trash?", yes=yes):
            fail("nothing was deleted")
        gone = kept.sessions.keeping.delete(ids)
        if as_json:
            print_json({"deleted": list(gone), "restorable_days": kept.settings.sessions.trash_days})
        else:
            say(f"in the trash for {kept.settings.sessions.trash_days} days: {', '.join(gone)}")


@app.command()
def restore(name: Name, as_json: JsonFlag = False) -> None:
    """Bring a deleted conversation back."""
    with opened() as kept:
        keeping = kept.sessions.keeping
        back = keeping.restore(_in_trash(keeping.trashed(), name))
        if as_json:
            print_json({"restored": list(back)})
        else:
            say(f"restored: {', '.join(back)}")


def _in_trash(trashed: Sequence[Session], name: str) -> SessionId:
    """Return the deleted session that a person means, or raise UsageError."""
    found = [one.id for one in trashed if name in (one.id, one.title)]
    found = found or [one.id for one in trashed if name and one.id.startswith(name)]
    if len(found) > 1:
        raise UsageError(f"{name!r} could be {', '.join(found[:5])}", "give the whole id")
    if not found:
        raise UsageError(f"the trash holds no session {name!r}", "`kept sessions list --trash` shows what it holds")
    return found[0]
