"""`kept receipts`: what models were shown from memory, and marks for it."""

from typing import Annotated, Literal

import typer

from wellkept import operations
from wellkept.cli.terminal import (
    MOST,
    JsonFlag,
    complete_hint,
    count_noun,
    expect,
    note,
    on_one_line,
    open_caller,
    say,
    show_json,
)
from wellkept.core.clock import from_epoch
from wellkept.core.provenance import describe
from wellkept.core.text import one_line
from wellkept.sessions.receipts import Mark, Receipt, Shown, ShownMessage, ShownPage, ShownSession

app = typer.Typer(no_args_is_help=True, help="What models were shown from memory.", rich_markup_mode=None)

Number = Annotated[int, typer.Argument(metavar="ID", min=1, help="The receipt's id.")]
MessageOption = Annotated[int | None, typer.Option("--message", min=1, help="Only this message of it.")]
Kind = Literal["start", "prompt", "search", "tool"]
_QUERY_CHARS = 60


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="receipts")


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many.")] = 20,
    before: Annotated[int | None, typer.Option("--before", min=1, help="Only ids smaller than this one.")] = None,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only this kind.")] = None,
    client: Annotated[str | None, typer.Option("--client", help="Only given to this client.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only given to this session.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the answers and blocks that models were given, newest first."""
    with open_caller() as caller:
        receipts = operations.receipts.list_receipts(
            caller, limit=limit, before=before, kind=kind, client=client, session=session
        )
    show_json(receipts, as_json=as_json)
    for receipt in receipts.receipts:
        say(_line(receipt))
    if not receipts.receipts:
        note("no receipts: one is written whenever a model is shown part of the memory")


def _line(receipt: Receipt) -> str:
    content = receipt.content
    moment = f"{from_epoch(receipt.created).astimezone():%Y-%m-%d %H:%M}"
    marks = ", ".join(sorted({mark.value for mark in receipt.marks.values()}))
    query = on_one_line(one_line(content.query, width=_QUERY_CHARS)) if content.query else "-"
    head = f"{receipt.id:>6}  {moment}  {content.kind:<6}  {content.client:<12}"
    figures = f"{len(content.shown)} of {content.candidates}, {content.tokens:,} tokens, {content.milliseconds:.0f} ms"
    return f"{head}  {query}  ({figures}){f'  [{marks}]' if marks else ''}"


@app.command()
def show(receipt: Number, as_json: JsonFlag = False) -> None:
    """Show what one answer contained, with the parts of each score."""
    with open_caller() as caller:
        details = operations.receipts.show_receipt(caller, receipt)
    show_json(details, as_json=as_json)
    content = details.receipt.content
    say(_line(details.receipt))
    if content.session_id is not None or content.project is not None:
        say(f"        given to session {content.session_id or '-'}, project {content.project or '-'}")
    for shown in content.shown:
        _say_shown(shown, details)
    if not content.shown:
        note("nothing was shown")


def _say_shown(shown: Shown, found: "operations.receipts.ShownReceipt") -> None:
    match shown:
        case ShownMessage(message_id, session_id, score, parts):
            mark = found.receipt.marks.get(message_id)
            scored = "" if score is None else f"  score {score:.3f}"
            say(f"  message {message_id}  session {session_id}{scored}{f'  [{mark.value}]' if mark else ''}")
            if parts:
                say(f"      {', '.join(f'{name} {value:.3f}' for name, value in parts.items() if value)}")
            say(f"      {on_one_line(found.excerpts.get(message_id, '(no longer stored)'))}")
            if message_id in found.sources:
                say(f"      from {describe(found.sources[message_id])} ({on_one_line(found.sources[message_id])})")
        case ShownSession(session_id):
            say(f"  session {session_id}")
        case ShownPage(page):
            say(f"  page {page}")


@app.command()
def mark(
    receipt: Number,
    word: Annotated[Mark, typer.Argument(metavar="MARK", help="useful, wrong or never.")],
    message: MessageOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Rate an answer; `never` keeps its messages out of automatic recall."""
    with open_caller() as caller:
        marked = expect(
            operations.receipts.mark_receipt(caller, receipt, word, message_id=message), as_json=as_json, code=2
        )
    show_json(marked, as_json=as_json)
    say(complete_hint(f"marked {word.value}; undo: kept receipts unmark {receipt}"))


@app.command()
def unmark(receipt: Number, message: MessageOption = None, as_json: JsonFlag = False) -> None:
    """Remove the marks of a receipt, or of one message in it."""
    with open_caller() as caller:
        done = expect(operations.receipts.undo_mark(caller, receipt, message_id=message), as_json=as_json, code=2)
    show_json(done, as_json=as_json)
    say(f"{count_noun(done.count, 'mark')} removed")
