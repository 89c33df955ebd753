"""The background review: a restricted fork that looks back and keeps what will matter."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kept.agent.act import Acting, act, deny
from kept.agent.model_call import Heard, request, think
from kept.agent.offload import offload
from kept.agent.toolbox import Toolbox
from kept.context.repair import repaired
from kept.core.errors import StorageError
from kept.core.events import Event, MemoryStaged, MemoryWritten, ModelCalled, Reviewed
from kept.core.ids import SessionId, new_group_id, new_session_id
from kept.core.messages import ChatRequest, ChatResponse, Message, NewMessage, Origin, Role, Session, StoredMessage
from kept.core.ports import EventSink
from kept.core.text import JSON, resource_text
from kept.core.tools import Tool, ToolContext
from kept.memory.edits import Target
from kept.prompt.tiers import guidance
from kept.security.fence import sanitize_context, shown_thinking, unwrapped

if TYPE_CHECKING:
    from kept.agent.conversation import Live


SKILL_CALLS = 5
"""From so many tool calls in one turn on, its procedure may be worth keeping."""


@dataclass(frozen=True, slots=True)
class Nudges:
    """User turns since memory was last written or reviewed, and tool rounds since skills were."""

    turns: int = 0
    iterations: int = 0

    def after_turn(self, *, used: frozenset[str], iterations: int) -> "Nudges":
        """Return the counters after a turn; using a tool resets its counter."""
        turns = 0 if "memory" in used else self.turns + 1
        rounds = 0 if "skill_manage" in used else self.iterations + iterations
        return Nudges(turns, rounds)

    def memory_due(self, interval: int) -> bool:
        """Whether memory is to be reviewed; an interval of 0 switches it off."""
        return interval > 0 and self.turns >= interval

    def skills_due(self, interval: int, *, calls: int, corrected: bool) -> bool:
        """Whether skills are to be reviewed: after much work, a correction, or many rounds."""
        if interval <= 0:
            return False
        return calls >= SKILL_CALLS or corrected or self.iterations >= interval

    def reviewed(self, *, memory: bool, skills: bool) -> "Nudges":
        """Return the counters after a review."""
        return replace(self, turns=0 if memory else self.turns, iterations=0 if skills else self.iterations)

    def as_json(self) -> dict[str, JSON]:
        """Return what is kept with the session."""
        return {"turns": self.turns, "iterations": self.iterations}


def nudges_from(value: JSON) -> Nudges:
    """Return the counters that a session was left with."""
    if not isinstance(value, Mapping):
        return Nudges()
    turns, iterations = value.get("turns"), value.get("iterations")
    return Nudges(turns if isinstance(turns, int) else 0, iterations if isinstance(iterations, int) else 0)


log = logging.getLogger(__name__)

MAX_ITERATIONS = 16
TOOLS = ("memory", "skills_list", "skill_view", "skill_manage")
DIGEST_CHARS = 24_000
DIGEST_LINE_CHARS = 600


@dataclass(slots=True)
class Review:
    """One review under way: what it wrote, and its transcript."""

    group_id: str = field(default_factory=new_group_id)
    saved: list[str] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)
    transcript: list[Message] = field(default_factory=list)

    def hear(self, event: Event, /) -> None:
        """Take down what the review wrote."""
        match event:
            case MemoryWritten(after=after, before=before):
                self.saved.append(after if after is not None else f"(removed) {before}")
            case MemoryStaged(text=text):
                self.staged.append(text)
            case _:
                return


def instruction(*, memory: bool, skills: bool) -> str:
    """Return what the fork is asked."""
    tasks = [
        resource_text("kept.agent", name).strip()
        for name, wanted in (("review_memory.md", memory), ("review_skills.md", skills))
        if wanted
    ]
    return resource_text("kept.agent", "review.md").replace("{tasks}", "\n\n".join(tasks)).strip()


async def review(live: "Live", *, memory: bool, skills: bool) -> Review | None:
    """Run one review; its failure is logged, never an error of the turn."""
    try:
        if live.parts.model is None or not _within_budget(live):
            return None
        done = await _reviewed(live, memory=memory, skills=skills)
        live.reviewing = None
    except Exception:  # background task: whatever fails here must not reach the chat
        log.warning("review_failed", exc_info=True)
        return None
    await offload(_keep, live, done)
    if done.saved or done.staged or done.skills:
        live.parts.sink(Reviewed(done.group_id, tuple(done.saved), tuple(done.staged), tuple(done.skills)))
    return done


async def _reviewed(live: "Live", *, memory: bool, skills: bool) -> Review:
    done = Review()
    live.reviewing = done.hear
    model = live.parts.reviewer or live.parts.model
    assert model is not None
    order = instruction(memory=memory, skills=skills)
    asked = _first_request(live, order) if live.parts.reviewer is None else _digest_request(live, order)
    done.transcript.append(asked.messages[-1])
    toolbox = Toolbox({name: _guarded(tool, live) for name, tool in live.parts.toolbox.only(TOOLS).tools.items()})
    quiet = _quiet(live)
    for _ in range(MAX_ITERATIONS):
        response: ChatResponse = await think(model, asked, sink=quiet, heard=Heard(), task="review")
        await offload(live.count_usage, "review", response.model, response.usage)
        done.transcript.append(response.message)
        if not response.message.tool_calls:
            break
        context = ToolContext(
            session_id=live.record.session.id, user_id=live.user_id, origin="background_review",
            platform=live.platform, turn=-live.turns, group_id=done.group_id,
        )  # fmt: skip
        acting = Acting(toolbox, context, quiet, deny, live.parts.limits.tool_seconds)
        acted = await act(response.message.tool_calls, acting)
        done.transcript += [each.message for each in acted]
        done.skills += [told for each in acted if each.call.name == "skill_manage" and (told := _told(each.message))]
        answers = tuple(each.message for each in acted)
        asked = replace(asked, messages=(*asked.messages, response.message, *answers))
    return done


def _told(answer: Message) -> str:
    """Return in a sentence what `skill_manage` did, with the way back; nothing when it did nothing."""
    try:
        row = json.loads(answer.text)
    except ValueError:
        return ""
    if not isinstance(row, dict):
        return ""
    if row.get("pending_id"):
        return f"a change of a skill waits for your approval (kept skills approve {row['pending_id']})"
    if not row.get("success"):
        return ""
    return f"{row.get('message', '')} ({row['undo']})" if row.get("undo") else str(row.get("message", ""))


def _first_request(live: "Live", order: str) -> ChatRequest:
    """Return the conversation, clean of recalled text, with the order at its end; the prefix stays cacheable."""
    rows = [_unrecalled(row) for row in live.record.rows]
    asked = request(
        live.prompt, rows, tools=live.parts.toolbox.schemas, pruning=live.record.pruning, conversation_id=live.root
    )
    return replace(asked, messages=repaired([*asked.messages, Message(Role.USER, order)]))


def _unrecalled(row: StoredMessage) -> StoredMessage:
    """Return the row without recalled text, in words and thoughts."""
    thought = shown_thinking(row.message.reasoning)
    if thought != row.message.reasoning:
        row = replace(row, message=replace(row.message, reasoning=thought))
    return replace(row, api_content=None)


def _digest_request(live: "Live", order: str) -> ChatRequest:
    """Return what a cheaper model is given: the pages, the newest words, and only the tools that it may use."""
    lines = []
    for row in live.record.rows:
        text = " ".join(sanitize_context(row.message.text).split())
        if text and row.message.role is not Role.TOOL:
            lines.append(f"{row.message.role.value}: {text[:DIGEST_LINE_CHARS]}")
        lines += [f"tool call: {call.name} {call.arguments[:DIGEST_LINE_CHARS]}" for call in row.message.tool_calls]
    digest = "\n".join(lines)[-DIGEST_CHARS:]
    pages = [live.parts.memory.render_snapshot(page) for page in Target] if live.parts.memory is not None else []
    parts = [*(block for block in pages if block), f"The conversation:\n{digest}", order]
    return ChatRequest(
        system=guidance("memory"),
        messages=(Message(Role.USER, "\n\n".join(parts)),),
        tools=live.parts.toolbox.only(TOOLS).schemas,
    )


def _guarded(tool: Tool, live: "Live") -> Tool:
    """Return the tool without what was recalled: recalled memory must not come back as new."""
    if tool.schema.name != "memory":
        return tool
    # what earlier processes recalled stands in the rows only
    stored = [unwrapped(row.api_content.removeprefix(row.message.text)) for row in live.record.rows if row.api_content]
    texts = [*live.recalled_texts, *stored]
    recalled = {" ".join(line.split()).casefold() for text in texts for line in text.splitlines()}

    def call(arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        texts = [arguments.get("content")]
        operations = arguments.get("operations")
        if isinstance(operations, list):
            texts += [each.get("content") for each in operations if isinstance(each, Mapping)]
        for text in texts:
            if isinstance(text, str) and _same(sanitize_context(text), recalled):
                return {"success": False, "error": "That was recalled from memory; it is kept already.", "done": True}
        return tool.call(arguments, context)

    return replace(tool, call=call)


def _same(text: str, recalled: set[str]) -> bool:
    plain = " ".join(text.split()).casefold()
    return any(plain == line.lstrip("-*• ").strip() or plain == line for line in recalled)


def _quiet(live: "Live") -> EventSink:
    """Return a sink that only counts: the fork's words and calls are nobody's business while they happen."""

    def hear(event: Event, /) -> None:
        if isinstance(event, ModelCalled):
            live.parts.sink(event)

    return hear


def _within_budget(live: "Live") -> bool:
    settings = live.parts.review
    return settings.enabled and live.parts.review_tokens_today() < settings.max_tokens_per_day


def _keep(live: "Live", done: Review) -> None:
    """Keep the transcript of the review as a hidden session."""
    store = live.parts.sessions
    if store is None or live.incognito or live.parts.model is None:
        return
    now = live.now()
    session_id: SessionId = new_session_id(live.parts.clock.now())
    try:
        model = (live.parts.reviewer or live.parts.model).name
        store.create(Session(id=session_id, source="review", started=now, model=model, user_id=live.user_id))
        store.append(session_id, [NewMessage(message, now, Origin.SYNTHETIC) for message in done.transcript])
        store.end(session_id, "reviewed")
    except StorageError:
        log.warning("review transcript not stored", exc_info=True)
