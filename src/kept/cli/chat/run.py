"""`kept run`: one turn for scripts, the answer on stdout."""

from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.terminal import JsonFlag, fail, open_caller, print_json, read_input, say
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.agent.turn import Answer


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("run")(run)


def run(
    prompt: Annotated[
        str | None, typer.Argument(help="What to say; - or --stdin reads it from standard input.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", help="Go on with this session: id, its beginning, or title.")
    ] = None,
    continue_: Annotated[bool, typer.Option("--continue", "-c", help="Go on with the newest session.")] = False,
    model: Annotated[str | None, typer.Option("--model", "-m", help="The model, as provider/name.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the prompt from standard input.")] = False,
    incognito: Annotated[bool, typer.Option("--incognito", help="Store nothing.")] = False,
    yes_to_reads: Annotated[bool, typer.Option("--yes-to-reads", help="Never ask before what only reads.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Answer one message and leave."""
    from kept.agent.workspace import Workspace
    from kept.cli.chat.approval import approver
    from kept.cli.chat.loop import talking
    from kept.cli.chat.screen import Screen
    from kept.operations.conversations import choose_session, open_conversation, run_curator_after

    text = read_input() if stdin or prompt == "-" else prompt
    if text is None or not text.strip():
        fail("there is nothing to say", 'write it like: kept run "What did we decide about the API?"', code=2)
    with open_caller() as caller:
        app = caller.app
        app.sink = Screen(app.settings.display.memory_notifications, quiet=True)
        session = choose_session(caller, resume, newest=continue_, incognito=incognito)
        approve = approver(Workspace(app.folder), app.settings.approvals, yes_to_reads=yes_to_reads)
        agent = open_conversation(caller, resume=session, incognito=incognito, approve=approve, model_name=model)
        wait = app.settings.review.exit_wait_seconds
        with run_curator_after(caller, incognito=incognito), talking(agent, exit_wait_seconds=wait) as talk:
            answer = talk.turn(text)
            if as_json:
                print_json(_as_json(answer))
            else:
                say(answer.text)
            talk.begin_review()
        if answer.interrupted:
            raise typer.Exit(130)


def _as_json(answer: "Answer") -> dict[str, JSON]:
    usage = answer.usage
    unfinished: dict[str, JSON] = {"interrupted": answer.interrupted, "stopped_by": answer.stopped_by}
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
        "saved": [{"ledger_id": each.ledger_id, "target": each.target, "text": each.text} for each in answer.saved],
        **{name: value for name, value in unfinished.items() if value},
    }


def _arguments(text: str) -> JSON:
    import json

    try:
        value: JSON = json.loads(text or "{}")
    except ValueError:
        return text
    return value
