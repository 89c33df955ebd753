"""`kept connect` and `kept disconnect`: give other agents this memory, and undo that."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, get_args

import typer
from msgspec import Struct
from msgspec.structs import replace

from wellkept import imports
from wellkept.app import Caller
from wellkept.cli.commands.imports import show_report
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    complete_hint,
    confirm,
    count_noun,
    fail,
    note,
    on_one_line,
    open_caller,
    print_json,
    refuse,
    say,
    show_json,
)
from wellkept.connect import connect as connections
from wellkept.connect import status as connection_status
from wellkept.connect.record import RECALLS, Recall
from wellkept.core.errors import Reason, Refused
from wellkept.core.text import JSON

if TYPE_CHECKING:
    from wellkept.connect.connect import ConnectOptions, ConnectPlan
    from wellkept.connect.status import ClientStatus
    from wellkept.imports.run import ImportReport
    from wellkept.imports.sources import FoundSource

_ACTIONS = ("status", "pause", "resume")


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.command("connect")(connect)
    program.command("disconnect")(disconnect)


def _refuse(refused: Refused, *, as_json: bool, code: int = 1) -> NoReturn:
    """Print a refusal; the JSON names the next step as every error does."""
    detail: dict[str, JSON] = {**refused.detail, "next": refused.remedy}
    refuse(replace(refused, detail=detail), as_json=as_json, code=code)


def _complete(incomplete: str) -> list[str]:
    return [name for name in (*connections.client_names(), *_ACTIONS) if name.startswith(incomplete)]


def connect(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLIENT]...",
            help="The clients to connect, by default all installed ones; or one of: status, pause, resume.",
            autocompletion=_complete,
        ),
    ] = None,
    project: Annotated[
        bool, typer.Option("--project", help="Write to this project instead of your user settings.")
    ] = False,
    recall: Annotated[
        str | None,
        typer.Option(
            "--recall",
            help="What the agent is given. start: your pages and the last sessions when a session starts; sure: also "
            "passages of past conversations with prompts where they clearly fit; off: nothing, it can only search.",
            metavar="MODE",
        ),
    ] = None,
    capture: Annotated[
        bool | None, typer.Option("--capture/--no-capture", help="Whether its conversations are stored.")
    ] = None,
    import_: Annotated[
        bool | None,
        typer.Option("--import/--no-import", help="Whether its past conversations and memory files are imported too."),
    ] = None,
    print_only: Annotated[bool, typer.Option("--print", help="Print the files, to add them by hand.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Rewrite every connection after kept was moved.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Give other agents this memory, and store their conversations.

    Clients: claude-code, codex, opencode, gemini, cursor, claude-desktop, vscode. Every file that is changed is
    backed up, and `kept disconnect` restores it. `kept connect status` shows the state of each client;
    `pause` and `resume` stop and start capture and recall of all of them.
    """
    names = words or []
    with open_caller() as caller:
        if names and names[0] in _ACTIONS:
            _act(caller, names, as_json=as_json)
            return
        if repair:
            plan = connections.plan_repair(caller)
            _write(caller, plan, None, None, _How(dry_run=dry_run, yes=yes, as_json=as_json))
            return
        options = _options(project=project, recall=recall, capture=capture, as_json=as_json)
        names = names or _find(caller, as_json=as_json)
        plan = connections.plan_connect(caller, names, options)
        if print_only:
            _print_files(plan, as_json=as_json)
        else:
            how = _How(dry_run=dry_run, yes=yes, as_json=as_json)
            _write(caller, plan, (names, options), _History(wanted=import_, yes=yes), how)


def disconnect(
    clients: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CLIENT]...",
            help="The clients to disconnect, by default all connected ones.",
            autocompletion=_complete,
        ),
    ] = None,
    project: Annotated[bool, typer.Option("--project", help="Only from this project.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove everything that connect wrote to an agent; its stored conversations stay.

    A file that nobody has edited since is restored byte for byte; from any other, only kept's part is removed.
    `kept forget --source CLIENT` removes the stored conversations.
    """
    with open_caller() as caller:
        place = connections.project_of(Path.cwd()) if project else None
        names = clients or connections.connected_clients(caller, place)
        plan = connections.plan_disconnect(caller, names, project=place)
        if not dry_run and not isinstance(plan, Refused):
            is_named = bool(clients) and not sys.stdin.isatty()  # a script that names the clients has decided
            _ask(plan, "remove this?", yes=yes or is_named)
            plan = connections.disconnect(caller, names, project=place)
    if isinstance(plan, Refused):
        _refuse(plan, as_json=as_json, code=2)
    show_json({**plan.as_json(), "dry_run": dry_run}, as_json=as_json)
    if not plan.clients:
        say("nothing was connected")
    _show(plan, done=not dry_run)


def _options(*, project: bool, recall: str | None, capture: bool | None, as_json: bool) -> "ConnectOptions":
    if recall is not None and recall not in RECALLS:
        _refuse(
            Refused(Reason.INVALID, f"--recall cannot be {recall!r}", f"use one of: {', '.join(RECALLS)}"),
            as_json=as_json,
            code=2,
        )
    mode: Recall | None = next((choice for choice in get_args(Recall) if choice == recall), None)
    place = connections.project_of(Path.cwd()) if project else None
    return connections.ConnectOptions(place, mode, capture)


def _find(caller: Caller, *, as_json: bool) -> list[str]:
    """Return the clients that are installed; exit when there is none."""
    clients = connections.find_clients(caller)
    names = [client.client.name for client in clients if client.is_installed]
    if not names:
        looked = "; ".join(f"{client.client.name}: {', '.join(client.looked)}" for client in clients)
        _refuse(
            Refused(Reason.NO_MATCH, f"no client was found; looked for {looked}", "name one: kept connect CLIENT"),
            as_json=as_json,
        )
    return names


class _How(Struct, frozen=True):
    """The options of a command that writes."""

    dry_run: bool
    yes: bool
    as_json: bool


def _write(
    caller: Caller,
    plan: "ConnectPlan | Refused",
    asked: "tuple[list[str], ConnectOptions] | None",
    history: "_History | None",
    how: _How,
) -> None:
    """Show the plan, ask, and carry it out; without `asked` it is a repair."""
    if isinstance(plan, Refused):
        _refuse(plan, as_json=how.as_json, code=2)
    if not how.dry_run:
        plan = _write_files(caller, plan, asked, how)
    if not how.as_json:
        _show(plan, done=not how.dry_run)
    past = history.offer(caller, plan, as_json=how.as_json) if history is not None and not how.dry_run else {}
    if how.as_json:
        print_json({**plan.as_json(), "dry_run": how.dry_run, **past})
        return
    for client in plan.clients:
        if client.next_step and client.is_changed and not how.dry_run:
            note(f"{client.connection.client}: {client.next_step}")


def _write_files(
    caller: Caller, plan: "ConnectPlan", asked: "tuple[list[str], ConnectOptions] | None", how: _How
) -> "ConnectPlan":
    """Say what a connection does, ask, and write the files."""
    if asked is not None and plan.is_changed and not how.as_json:
        note(_explain(caller, plan, asked[1]))
    what = "write these files" if asked is None else "write these files, and do so from now on"
    _ask(plan, f"{what}?", yes=how.yes)
    done = connections.repair(caller) if asked is None else connections.connect(caller, *asked)
    if isinstance(done, Refused):
        _refuse(done, as_json=how.as_json, code=2)
    return done


class _History(Struct, frozen=True):
    """What to do about the conversations that clients had before they were connected."""

    wanted: bool | None
    """Whether they are imported; None asks."""
    yes: bool

    def offer(self, caller: Caller, plan: "ConnectPlan", *, as_json: bool) -> dict[str, JSON]:
        """Import them if the person wants that; else say how. Return what was found and the reports."""
        names = [client.connection.client for client in plan.clients if client.is_changed or self.wanted]
        history = connections.find_history(caller, names) if self.wanted is not False else []
        reports = [
            report
            for source in history
            if self._is_wanted(source, as_json=as_json)
            for report in _import(caller, source)
        ]
        if not as_json:
            for report in reports:
                show_report(report)
        imported = {report.source for report in reports}
        for source in history:
            if source.source not in imported and not as_json:
                note(f"{source.source}: {_count(source)} from before can be imported: kept import {source.source}")
        return {
            "history": [source.as_json() for source in history],
            "imported": [report.as_json() for report in reports],
        }

    def _is_wanted(self, found: "FoundSource", *, as_json: bool) -> bool:
        if self.wanted is not None or self.yes or as_json or not sys.stdin.isatty():
            return bool(self.wanted)
        return confirm(f"import {_count(found)} that {found.source} has from before?", yes=False)


def _count(found: "FoundSource") -> str:
    parts = [count_noun(found.new, "conversation")]
    if found.new_memory_files:
        parts.append(count_noun(found.new_memory_files, "memory file"))
    if found.skills:
        parts.append(count_noun(found.skills, "skill"))
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _import(caller: Caller, found: "FoundSource") -> "list[ImportReport]":
    report = imports.run.run_import(caller, found)
    if isinstance(report, Refused):
        note(f"{found.source}: {report.error}")
        return []
    return [report]


def _explain(caller: Caller, plan: "ConnectPlan", options: "ConnectOptions") -> str:
    """Return what a connection does, in one paragraph: what is stored, and which text leaves the machine."""
    settings = caller.app.settings.connect
    recall = options.recall or settings.recall
    stores = settings.capture if options.capture is None else options.capture
    has_hooks = connections.any_sends_events([client.connection.client for client in plan.clients])
    stored = (
        f"What you and these agents say, and their tool calls and results, is stored in {caller.app.home.path} "
        "on this machine; credentials are redacted, and <private>…</private> is left out."
        if stores and has_hooks
        else "Nothing of what these agents do is stored."
    )
    block = "When a session starts, your memory pages and the titles of the last sessions are added to it"
    given = {
        "start": f"{block}. That",
        "sure": f"{block}; with a prompt, up to three passages of past conversations. That",
        "off": "Nothing is added to what they send. The",
    }[recall if has_hooks else "off"]
    looked_up = "text that an agent looks up with kept's tools"
    text = looked_up if given.endswith("The") else f"text, and {looked_up},"
    return (
        f"{stored} {given} {text} leaves this machine: it goes to the provider of that agent's model, and by this "
        "connection nowhere else. `kept connect pause` stops all of it."
    )


def _ask(plan: "ConnectPlan", question: str, *, yes: bool) -> None:
    if yes or not plan.is_changed:
        return
    _show(plan, done=False, to_stderr=True)
    if not confirm(question, yes=False):
        fail("nothing was changed")


_DONE = {"create": "wrote", "change": "changed", "remove": "removed", "none": "unchanged"}


def _show(plan: "ConnectPlan", *, done: bool, to_stderr: bool = False) -> None:
    """Print each file with what happens to it; before it is changed, with the lines that change."""
    put = note if to_stderr else say
    for client in plan.clients:
        where = f" (project {client.connection.project})" if client.connection.project else ""
        put(f"{client.connection.client}{where}")
        for change in client.changes:
            put(f"  {_DONE[change.action] if done else change.action:<9} {change.path}")
            # a new file is shown by --print
            for line in change.diff() if not done and change.action == "change" else ():
                put(f"      {line}")


def _print_files(plan: "ConnectPlan | Refused", *, as_json: bool) -> None:
    if isinstance(plan, Refused):
        _refuse(plan, as_json=as_json, code=2)
    files: list[tuple[str, str, str]] = [
        (one.connection.client, str(change.path), change.addition())
        for one in plan.clients
        for change in one.changes
        if change.parts
    ]
    if as_json:
        rows: list[JSON] = [{"client": client, "path": path, "text": text} for client, path, text in files]
        print_json({"files": rows})
        return
    for client, path, text in files:
        say(f"# {client}: {path}\n{text}")


def _act(caller: Caller, words: list[str], *, as_json: bool) -> None:
    if len(words) > 1:
        _refuse(
            Refused(Reason.INVALID, f"{words[0]} takes no {words[1]!r}", f"write kept connect {words[0]}"),
            as_json=as_json,
            code=2,
        )
    if words[0] == "status":
        _show_status(caller, as_json=as_json)
        return
    is_paused = words[0] == "pause"
    changed = connections.set_paused(caller, paused=is_paused)
    if as_json:
        print_json({"paused": is_paused, "changed": changed})
    else:
        say("paused: connected agents are given nothing, and nothing of theirs is stored" if is_paused else "resumed")


def _show_status(caller: Caller, *, as_json: bool) -> None:
    status = connection_status.read_status(caller)
    if as_json:
        print_json(status.as_json())
        return
    if status.is_paused:
        say("paused: connected agents are given nothing, and nothing of theirs is stored")
    if status.note:
        say(status.note)
    for client in status.clients:
        say(f"{client.client:<15} {_describe(client)}")
        for error in client.errors:
            say(f"{'':<15} error: {on_one_line(error)}")
        if client.next_step:
            say(f"{'':<15} next: {complete_hint(client.next_step)}")


def _describe(one: "ClientStatus") -> str:
    if not one.connected:
        return f"installed {one.version or ''}, not connected".replace(" ,", ",") if one.installed else "not found"
    trust = {True: ", trusted", False: ", not trusted yet", None: ""}[one.trusted]
    lag = f", {one.lag_seconds:g} s behind" if one.lag_seconds else ""
    seen = f", last event {_ago(one.last_event)}" if one.last_event else ""
    stored = f", last stored {_ago(one.last_captured)}" if one.last_captured else ""
    return f"connected {one.version or ''}{trust}{seen}{stored}{lag}".replace(" ,", ",")


_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))


def _ago(moment: float) -> str:
    """Return how long ago a moment was, in its largest unit."""
    seconds = max(0.0, time.time() - moment)
    for name, size in _UNITS:
        if seconds >= size:
            return f"{count_noun(int(seconds // size), name)} ago"
    return "just now"
