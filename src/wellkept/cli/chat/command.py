"""`kept chat` and `kept run`: a conversation with the agent, or the answer to one message."""

import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept.cli.chat.screen import Screen
from wellkept.cli.terminal import (
    JsonFlag,
    complete_hint,
    count_noun,
    fail,
    note,
    open_caller,
    print_json,
    read_input,
    say,
    say_exactly,
    wrap,
)
from wellkept.core.errors import KeptError, StorageError, Unreadable
from wellkept.core.provenance import UNSTATED
from wellkept.core.text import JSON
from wellkept.memory.store import FILE_NAMES
from wellkept.operations import memory

if TYPE_CHECKING:
    from wellkept.agent.turn import Answer, SavedEntry
    from wellkept.app import Caller
    from wellkept.cli.chat.slash import Slash
    from wellkept.core.provenance import Stated


CONNECT = (
    "No model is connected: I keep what you tell me and answer from memory. To connect one, set ANTHROPIC_API_KEY or "
    "OPENAI_API_KEY, or run `kept model set NAME`."
)


ContinueFlag = Annotated[bool, typer.Option("--continue", "-c", help="Continue the newest session.")]
ResumeOption = Annotated[
    str | None, typer.Option("--resume", help="Continue this session: id, its beginning, or title.")
]
ModelOption = Annotated[str | None, typer.Option("--model", "-m", help="The model, as provider/name.")]
ReadsFlag = Annotated[bool, typer.Option("--yes-to-reads", help="Do not ask before read-only tools.")]


def register(program: typer.Typer) -> None:
    """Add both commands."""
    program.command("chat")(chat)
    program.command("run")(run)


def chat(
    continue_: ContinueFlag = False,
    resume: ResumeOption = None,
    incognito: Annotated[bool, typer.Option("--incognito", help="Store nothing, remember nothing.")] = False,
    model: ModelOption = None,
    yes_to_reads: ReadsFlag = False,
) -> None:
    """Talk with an agent that remembers; /help lists what you can type."""
    from wellkept.agent.workspace import Workspace
    from wellkept.cli.chat.loop import Leaving, approver, open_talk
    from wellkept.operations.conversations import choose_session, open_conversation, run_curator_after
    from wellkept.operations.upkeep import sweep_trash

    with open_caller() as caller:
        app = caller.app
        app.sink = screen = Screen(app.settings.display.memory_notifications)
        session = choose_session(caller, resume, newest=continue_, incognito=incognito)
        approve = approver(Workspace(app.folder), app.settings.approvals, yes_to_reads=yes_to_reads)
        agent = open_conversation(caller, resume=session, incognito=incognito, approve=approve, model_name=model)
        sweep_trash(caller)
        screen.cost_of = agent.parts.cost_of
        _greet(caller, agent.parts.model.name if agent.parts.model is not None else None, incognito=incognito)
        wait = app.settings.review.exit_wait_seconds
        with run_curator_after(caller, incognito=incognito), open_talk(agent, exit_wait_seconds=wait) as talk:
            from wellkept.cli.chat.slash import Slash

            slash = Slash(caller, talk, screen)
            for line in _lines(caller, slash):
                if not line.strip():
                    continue
                try:
                    if not slash.handle(line):
                        exchange(slash, line)
                except KeyboardInterrupt as pressed:  # in a slash command; a turn handles Ctrl-C itself
                    if isinstance(pressed, Leaving) or talk.is_pressed_again():
                        raise
                    note("(stopped; Ctrl-C again to leave)")
                except KeptError as error:
                    screen.end()
                    note(f"kept: {error.message}" + (f"\n  next: {error.remedy}" if error.remedy else ""))
                if slash.leaving:
                    break


def exchange(slash: "Slash", line: str, *, loaded: str = "", source: "Stated" = None) -> None:
    """Send one message, show the answer and what was saved, and start a review if one is due.

    `loaded` is the skill that the person loaded with the message.
    """
    slash.screen.begin()
    slash.screen.is_verbatim = slash.talk.agent.parts.model is None
    answer = slash.talk.turn(line, loaded=loaded, source=source)
    slash.screen.end()
    if answer.interrupted:
        note("(interrupted; the answer so far is stored)")
    if slash.talk.agent.parts.model is not None:
        _notices(slash, answer.saved)
    agent = slash.talk.agent
    trouble = agent.conversation.record.trouble
    if agent.parts.sessions is None and not agent.opening.incognito:
        trouble = "the database cannot be used; see the first lines of this chat"
    if trouble:
        note(f"(not stored: {trouble})")
    slash.talk.begin_review()


def _notices(slash: "Slash", saved: "tuple[SavedEntry, ...]") -> None:
    if slash.screen.notifications == "off":
        return
    for entry in saved:
        undo = complete_hint(f" (undo: kept memory undo {entry.ledger_id})") if entry.ledger_id else ""
        note(f"saved to {entry.target}: {entry.text}{undo}")


def _greet(caller: "Caller", model: str | None, *, incognito: bool) -> None:
    from wellkept import __version__

    if model is None:
        note(wrap(f"kept {__version__}. {CONNECT}"))
    else:
        note(wrap(f"kept {__version__}, {model}. {caller.app.models.caching(model).status_line}".rstrip()))
    if incognito:
        note("Incognito: this conversation is not stored, and memory is not changed.")
    try:
        _report_pages(caller, has_model=model is not None)
    except StorageError:
        if caller.app.server is None:
            raise
        # errors of a server were reported when the conversation began, which continues without it
    if sys.stdin.isatty():
        keys = "/help lists the commands, Alt-Enter adds a line, Ctrl-O shows full tool answers, Ctrl-D leaves."
        note(wrap(keys))


def _report_pages(caller: "Caller", *, has_model: bool) -> None:
    """Name the unreadable pages, unless building the prompt for a model reports them, and count pending writes."""
    for page in () if has_model else memory.list_pages(caller):
        try:
            memory.read_page(caller, page)
        except Unreadable as error:
            name = FILE_NAMES.get(page, "the page of the project")
            note(f"kept: continuing without {name}: {error.message}\n  next: {error.remedy}")
    waiting = len(memory.list_pending(caller))
    if waiting:
        note(f"{count_noun(waiting, 'memory write')} pending: /memory pending")


def _lines(caller: "Caller", slash: "Slash") -> Iterator[str]:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield from _read_piped()
        return
    from wellkept.cli.chat.input_line import Prompt
    from wellkept.operations.conversations import find_history

    model = slash.talk.agent.parts.model

    def warm() -> None:
        if model is not None:
            caller.app.models.preload(model.name)
        threading.Thread(target=_warm_up, name="kept-warm", daemon=True).start()

    # only after the prompt is shown: imports in another thread would delay it
    prompt = Prompt(find_history(caller), slash, when_shown=warm)
    while (line := prompt.ask()) is not None:
        yield line


def _warm_up() -> None:
    from wellkept.core.threads import share_one_heap
    from wellkept.security.rules import table

    share_one_heap()
    table()


def _read_piped() -> Iterator[str]:
    """Yield the lines of standard input, decoded as UTF-8 whatever the locale."""
    for number, raw in enumerate(sys.stdin.buffer, start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            note(f"kept: line {number} is not UTF-8 text and was skipped")
            note("  next: convert it to UTF-8 and send it again")
            continue
        if line.strip():
            say(f"> {line}")
        yield line


def run(
    prompt: Annotated[
        str | None, typer.Argument(help="The message; - or --stdin reads it from standard input.")
    ] = None,
    resume: ResumeOption = None,
    continue_: ContinueFlag = False,
    model: ModelOption = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the prompt from standard input.")] = False,
    incognito: Annotated[bool, typer.Option("--incognito", help="Store nothing.")] = False,
    yes_to_reads: ReadsFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Answer one message and exit."""
    from wellkept.agent.workspace import Workspace
    from wellkept.cli.chat.loop import approver, open_talk
    from wellkept.cli.chat.screen import Screen
    from wellkept.operations.conversations import choose_session, open_conversation, run_curator_after

    text = read_input() if stdin or prompt == "-" else prompt
    if text is None or not text.strip():
        fail("the message is empty", 'write it like: kept run "What did we decide about the API?"', code=2)
    with open_caller() as caller:
        app = caller.app
        app.sink = Screen(app.settings.display.memory_notifications, quiet=True)
        session = choose_session(caller, resume, newest=continue_, incognito=incognito)
        approve = approver(Workspace(app.folder), app.settings.approvals, yes_to_reads=yes_to_reads)
        agent = open_conversation(
            caller, resume=session, incognito=incognito, approve=approve, model_name=model, has_message=True
        )
        wait = app.settings.review.exit_wait_seconds
        with run_curator_after(caller, incognito=incognito), open_talk(agent, exit_wait_seconds=wait) as talk:
            answer = talk.turn(text, source=UNSTATED)
            if as_json:
                print_json(_as_json(answer))
            else:
                say_exactly(answer.text)
            talk.begin_review()
        if answer.interrupted:
            raise typer.Exit(130)
        if answer.unsaved:
            fail(f"not saved: {answer.unsaved}", "free some space or repair the home, then say it again", code=74)


def _as_json(answer: "Answer") -> dict[str, JSON]:
    usage = answer.usage
    unfinished: dict[str, JSON] = {
        "interrupted": answer.interrupted,
        "stopped_by": answer.stopped_by,
        "unsaved": answer.unsaved,
    }
    return {
        "answer": answer.text,
        "session_id": answer.session_id,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "cost": answer.cost,
        },
        "tool_calls": [
            {"name": call.name, "arguments": _arguments(call.arguments), "ok": call.ok} for call in answer.tool_calls
        ],
        "saved": [{"ledger_id": entry.ledger_id, "target": entry.target, "text": entry.text} for entry in answer.saved],
        **{name: value for name, value in unfinished.items() if value},
    }


def _arguments(text: str) -> JSON:
    import json

    try:
        value: JSON = json.loads(text or "{}")
    except ValueError:
        return text
    return value
