"""`kept sessions show ID --audit`: the calls that external memories got in a session."""

from typing import TYPE_CHECKING

from kept.cli.commands.transcript import local
from kept.cli.terminal import note, print_json, say
from kept.cli.text import printable
from kept.core.clock import from_epoch, iso
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.app import App
    from kept.core.ids import SessionId


def show_audit(kept: "App", session_id: "SessionId", *, as_json: bool) -> None:
    """Print one line per call: provider, call, time, duration, outcome and bytes, never any text."""
    from kept.providers.audit import Audit

    calls = Audit(kept.database, clock=kept.clock).of_session(session_id)
    if as_json:
        rows: list[JSON] = [
            {
                "provider": call.provider,
                "call": call.call,
                "time": iso(from_epoch(call.started)),
                "seconds": round(call.seconds, 4),
                "outcome": call.outcome,
                "bytes_out": call.bytes_out,
                "bytes_in": call.bytes_in,
            }
            for call in calls
        ]
        print_json({"session_id": session_id, "calls": rows})
        return
    for call in calls:
        what = printable(f"{call.provider} {call.call}")
        took = f"{call.seconds * 1000:.0f} ms"
        say(f"{local(call.started)}  {what:32} {took:>9}  {call.outcome}  {call.bytes_out:,} out, {call.bytes_in:,} in")
    if not calls:
        note("no external memory was asked or told anything in this session")
