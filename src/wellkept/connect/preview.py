"""Preview of what an agent would be given for a project and a prompt: the exact text, its tokens, and what is new."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.connect.events import parse_event
from wellkept.core.clock import iso_moment
from wellkept.core.errors import KeptError, Reason, Refused
from wellkept.core.text import JSON
from wellkept.memory.page import Target
from wellkept.sessions.recall import tokens

STARTS = {"cursor": "sessionStart"}
PROMPTS = {"gemini": "BeforeAgent", "cursor": "beforeSubmitPrompt"}
"""Names of events of clients that differ from the usual ones."""
_SESSION = "preview"
"""The session of the synthetic event; no stored session has this name, so nothing counts as already given."""


class Given(Struct, frozen=True):
    """One thing that the agent would be given."""

    text: str
    """What the model reads."""
    line: str
    """The line that `kept hook` prints, byte for byte."""

    @property
    def token_count(self) -> int:
        """Return about how many tokens it takes."""
        return tokens(self.text)


class Preview(Struct, frozen=True):
    """What a client would be given at the start of a session and with a prompt."""

    client: str
    project: str | None
    start: Given | None
    recall: Given | None
    pages: Mapping[str, int]
    """Tokens of the block of each page."""
    last: float | None
    """When this client was last given the pages."""
    gone: tuple[str, ...]
    """Entries that it was given then and would not be given now."""
    new: tuple[str, ...]

    def as_json(self) -> dict[str, JSON]:
        """Return the texts, their tokens, and the difference from the last time."""
        return {
            "client": self.client,
            "project": self.project,
            "start": None if self.start is None else self.start.text,
            "start_line": None if self.start is None else self.start.line,
            "prompt": None if self.recall is None else self.recall.text,
            "prompt_line": None if self.recall is None else self.recall.line,
            "tokens": {
                **self.pages,
                "start": 0 if self.start is None else self.start.token_count,
                "prompt": 0 if self.recall is None else self.recall.token_count,
            },
            "last": iso_moment(self.last),
            "gone": list(self.gone),
            "new": list(self.new),
        }


class Choices(Struct, frozen=True):
    """Settings to try out; None leaves one as it is."""

    recall: str | None = None
    sessions: int | None = None
    passages: int | None = None


def preview_agent(
    caller: Caller, client: str, *, project: str | None = None, prompt: str = "", choices: Choices | None = None
) -> Preview:
    """Return what `client` would be given in `project`, with the stored settings or with others to try out."""
    from wellkept.operations.memory import render_snapshot

    tried = _with_choices(caller, choices or Choices())
    blocks = render_snapshot(tried, project=project).blocks
    last, gone, new = _compare(caller, client)
    asked = {"prompt": prompt} if prompt.strip() else None
    return Preview(
        client,
        project,
        _ask(tried, client, STARTS.get(client, "SessionStart"), {"source": "startup"}, project),
        _ask(tried, client, PROMPTS.get(client, "UserPromptSubmit"), asked, project) if asked else None,
        {page.value: tokens(block) for page, block in blocks.items() if block},
        last,
        gone,
        new,
    )


def _ask(caller: Caller, client: str, name: str, fields: Mapping[str, str] | None, project: str | None) -> Given | None:
    from wellkept.connect.hooks import plan_answer

    event = {"hook_event_name": name, "session_id": _SESSION, "cwd": project or "/", **(fields or {})}
    answer = plan_answer(caller, parse_event(client, json.dumps(event)))
    if answer is None:
        return None
    return Given(_find_text(answer), json.dumps(answer, ensure_ascii=False))


def _find_text(answer: Mapping[str, Any]) -> str:
    inner = answer.get("hookSpecificOutput") or {}
    return str(inner.get("additionalContext") or answer.get("additional_context") or "")


def read_choices(caller: Caller) -> Choices:
    """Return the stored settings; another process may have changed them since this one started."""
    settings = _read_settings(caller)
    return Choices(settings.recall, settings.sessions, settings.passages)


def _read_settings(caller: Caller) -> Any:
    from wellkept.config.settings import load

    return load(caller.app.home, caller.app.environ).settings.connect


def _with_choices(caller: Caller, choices: Choices) -> Caller:
    """Return the caller of an app with other settings; everything else is shared."""
    values = {
        name: value
        for name, value in (("recall", choices.recall), ("sessions", choices.sessions), ("passages", choices.passages))
        if value is not None
    }
    _ = caller.database  # opened once, for both
    shadow = copy(caller.app)
    shadow.settings = replace(shadow.settings, connect=replace(_read_settings(caller), **values))
    return replace(caller, app=shadow)


def save_choices(caller: Caller, choices: Choices) -> Choices | Refused:
    """Store settings of what agents are given; hooks read them with their next event."""
    from wellkept.config.settings import set_value

    caller.require(Scope.ADMIN)
    try:
        for name, value in (("recall", choices.recall), ("sessions", choices.sessions), ("passages", choices.passages)):
            if value is not None:
                set_value(caller.app.home, f"connect.{name}", str(value), why_no_person=caller.why_no_person)
    except KeptError as error:
        return Refused(Reason.INVALID, error.message, error.remedy)
    return read_choices(caller)


def _compare(caller: Caller, client: str) -> tuple[float | None, tuple[str, ...], tuple[str, ...]]:
    """Return when the client last got the pages, and the entries that were removed and added since."""
    from wellkept.operations.memory import read_pages_at

    found = caller.space.sessions.receipts.recent(limit=1, kind="start", client=client)
    if not found:
        return None, (), ()
    then = read_pages_at(caller, found[0].created).pages
    pages = (Target.MEMORY, Target.USER)
    before = [entry for page in pages for entry in then.get(page, ())]
    now = [entry for page in pages for entry in caller.space.memory.page(page).entries]
    gone = tuple(entry for entry in before if entry not in now)
    return found[0].created, gone, tuple(entry for entry in now if entry not in before)
