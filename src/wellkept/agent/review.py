"""The background review: a restricted fork of the conversation that saves lasting facts and procedures."""

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.agent.offload import offload
from wellkept.agent.system_prompt import guidance
from wellkept.agent.toolbox import Toolbox, ToolEnvironment, deny, run_tools
from wellkept.agent.turn import StreamedText, build_request, stream_answer
from wellkept.context.messages import repair
from wellkept.core.errors import StorageError
from wellkept.core.events import Event, MemoryStaged, MemoryWritten, ModelCalled, Reviewed
from wellkept.core.ids import SessionId, new_group_id, new_session_id
from wellkept.core.messages import ChatRequest, ChatResponse, Message, NewMessage, Origin, Role, Session, StoredMessage
from wellkept.core.text import JSON, resource_text
from wellkept.core.tools import Tool, ToolContext
from wellkept.core.values import JsonStruct
from wellkept.memory.page import Target
from wellkept.security.fence import sanitize_context, shown_thinking, split_blocks, unwrap

if TYPE_CHECKING:
    from wellkept.agent.conversation import Conversation


SKILL_CALLS = 5
"""A turn with this many tool calls may contain a procedure worth saving."""


class Nudges(JsonStruct, frozen=True):
    """User turns since memory was last written or reviewed, and tool rounds since skills were."""

    turns: int = 0
    iterations: int = 0

    def after_turn(self, *, used: frozenset[str], iterations: int) -> "Nudges":
        """Return the counters after a turn; using a tool resets its counter."""
        turns = 0 if "memory" in used else self.turns + 1
        rounds = 0 if "skill_manage" in used else self.iterations + iterations
        return Nudges(turns, rounds)

    def memory_due(self, interval: int) -> bool:
        """Whether a memory review is due; an interval of 0 turns it off."""
        return interval > 0 and self.turns >= interval

    def skills_due(self, interval: int, *, calls: int, corrected: bool) -> bool:
        """Whether a skill review is due: after many calls, a correction, or many tool rounds."""
        if interval <= 0:
            return False
        return calls >= SKILL_CALLS or corrected or self.iterations >= interval

    def after_review(self, *, memory: bool, skills: bool) -> "Nudges":
        """Return the counters after a review."""
        return replace(self, turns=0 if memory else self.turns, iterations=0 if skills else self.iterations)


def load_nudges(value: JSON) -> Nudges:
    """Return the stored counters of a session."""
    try:
        return msgspec.convert(value, Nudges)
    except msgspec.ValidationError:
        return Nudges()


log = logging.getLogger(__name__)

MAX_ITERATIONS = 16
"""How many model calls one review may make."""
TOOLS = ("memory", "skills_list", "skill_view", "skill_manage")
DIGEST_CHARS = 24_000
"""The length of the digest for a cheaper model; the newest messages are kept."""
DIGEST_LINE_CHARS = 600


class Review(Struct):
    """A running review: what it wrote, and its transcript."""

    group_id: str = field(default_factory=new_group_id)
    saved: list[str] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)
    transcript: list[Message] = field(default_factory=list)

    def record(self, event: Event, /) -> None:
        """Record a write of the review."""
        match event:
            case MemoryWritten(after=after, before=before):
                self.saved.append(after if after is not None else f"(removed) {before}")
            case MemoryStaged(text=text):
                self.staged.append(text)
            case _:
                return


def instruction(*, memory: bool, skills: bool) -> str:
    """Return the instruction for the fork."""
    tasks = [
        resource_text("wellkept.agent", name).strip()
        for name, wanted in (("review_memory.md", memory), ("review_skills.md", skills))
        if wanted
    ]
    return resource_text("wellkept.agent", "review.md").replace("{tasks}", "\n\n".join(tasks)).strip()


async def review(conversation: "Conversation", *, memory: bool, skills: bool) -> Review | None:
    """Run one review; a failure is logged and never raised."""
    try:
        if conversation.parts.model is None or not _within_budget(conversation):
            return None
        finished = await _run_review(conversation, memory=memory, skills=skills)
        conversation.review_sink = None
    except Exception:  # background task: a failure must not reach the chat
        log.warning("the review failed", exc_info=True)
        return None
    await offload(_store_transcript, conversation, finished)
    if finished.saved or finished.staged or finished.skills:
        conversation.parts.sink(
            Reviewed(finished.group_id, tuple(finished.saved), tuple(finished.staged), tuple(finished.skills))
        )
    return finished


async def _run_review(conversation: "Conversation", *, memory: bool, skills: bool) -> Review:
    run = Review()
    conversation.review_sink = run.record
    model = conversation.parts.reviewer or conversation.parts.model
    assert model is not None
    order = instruction(memory=memory, skills=skills)
    request = (
        _first_request(conversation, order)
        if conversation.parts.reviewer is None
        else _digest_request(conversation, order)
    )
    run.transcript.append(request.messages[-1])
    toolbox = Toolbox(
        {
            name: _refuse_recalled(tool, conversation)
            for name, tool in conversation.parts.toolbox.only(TOOLS).tools.items()
        }
    )

    def usage_only(event: Event, /) -> None:
        """Pass on usage only; the text and the calls of the fork are not shown."""
        if isinstance(event, ModelCalled):
            conversation.parts.sink(event)

    before = conversation.record.read_context().for_review()
    for _ in range(MAX_ITERATIONS):
        response: ChatResponse = await stream_answer(
            model, request, sink=usage_only, streamed=StreamedText(), task="review"
        )
        await offload(conversation.count_usage, "review", response.model, response.usage)
        run.transcript.append(response.message)
        if not response.message.tool_calls:
            break
        # a negative turn number, so that the memory tool counts the review's refusals apart from the turn's
        context = ToolContext(
            session_id=conversation.record.session.id, user_id=conversation.user_id, origin="background_review",
            platform=conversation.platform, turn=-conversation.turns, group_id=run.group_id,
            find_taint=before.find_taint, said="\n".join(before.said),
        )  # fmt: skip
        environment = ToolEnvironment(toolbox, context, usage_only, deny, conversation.parts.limits.tool_seconds)
        results = await run_tools(response.message.tool_calls, environment)
        run.transcript += [result.message for result in results]
        run.skills += [
            change
            for result in results
            if result.call.name == "skill_manage" and (change := _describe_skill_change(result.message))
        ]
        answers = tuple(result.message for result in results)
        request = replace(request, messages=(*request.messages, response.message, *answers))
    return run


def _describe_skill_change(answer: Message) -> str:
    """Describe what `skill_manage` did and how to undo it; empty when it did nothing."""
    try:
        row = json.loads(answer.text)
    except ValueError:
        return ""
    if not isinstance(row, dict):
        return ""
    if row.get("pending_id"):
        return f"a change of a skill needs your approval (kept skills approve {row['pending_id']})"
    if not row.get("success"):
        return ""
    return f"{row.get('message', '')} ({row['undo']})" if row.get("undo") else str(row.get("message", ""))


def _first_request(conversation: "Conversation", order: str) -> ChatRequest:
    """Return the conversation without recalled text, followed by the instruction; its prefix is cached."""
    rows = [_strip_recalled(row) for row in conversation.record.rows]
    request = build_request(
        conversation.prompt,
        rows,
        tools=conversation.parts.toolbox.schemas,
        pruning=conversation.record.pruning,
        conversation_id=conversation.root,
    )
    return replace(request, messages=repair([*request.messages, Message(Role.USER, order)]))


def _strip_recalled(row: StoredMessage) -> StoredMessage:
    """Return the row without recalled text in content and reasoning."""
    thought = shown_thinking(row.message.reasoning)
    if thought != row.message.reasoning:
        row = replace(row, message=replace(row.message, reasoning=thought))
    return replace(row, api_content=None)


def _digest_request(conversation: "Conversation", order: str) -> ChatRequest:
    """Return the request for a cheaper model: the pages, the newest messages, and only the allowed tools."""
    lines = []
    for row in conversation.record.rows:
        text = " ".join(sanitize_context(row.message.text).split())
        if text and row.message.role is not Role.TOOL:
            lines.append(f"{row.message.role.value}: {text[:DIGEST_LINE_CHARS]}")
        lines += [f"tool call: {call.name} {call.arguments[:DIGEST_LINE_CHARS]}" for call in row.message.tool_calls]
    digest = "\n".join(lines)[-DIGEST_CHARS:]
    pages = (
        [conversation.parts.memory.render_snapshot(page) for page in Target]
        if conversation.parts.memory is not None
        else []
    )
    parts = [*(block for block in pages if block), f"The conversation:\n{digest}", order]
    return ChatRequest(
        system=guidance("memory"),
        messages=(Message(Role.USER, "\n\n".join(parts)),),
        tools=conversation.parts.toolbox.only(TOOLS).schemas,
    )


def _refuse_recalled(tool: Tool, conversation: "Conversation") -> Tool:
    """Return the memory tool, refusing text that was recalled: it must not be saved as new."""
    if tool.schema.name != "memory":
        return tool
    # texts recalled by earlier processes are only in the rows
    stored = [
        unwrap(piece)
        for row in conversation.record.rows
        for piece, fenced in split_blocks(row.api_content or "")
        if fenced
    ]
    texts = [*conversation.recalled_texts, *stored]
    recalled = {" ".join(line.split()).casefold() for text in texts for line in text.splitlines()}

    def call(arguments: Mapping[str, JSON], context: ToolContext) -> Mapping[str, JSON]:
        texts = [arguments.get("content")]
        operations = arguments.get("operations")
        if isinstance(operations, list):
            texts += [operation.get("content") for operation in operations if isinstance(operation, Mapping)]
        for text in texts:
            if isinstance(text, str) and _same(sanitize_context(text), recalled):
                return {"success": False, "error": "That was recalled from memory; it is stored already.", "done": True}
        return tool.call(arguments, context)

    return replace(tool, call=call)


def _same(text: str, recalled: set[str]) -> bool:
    plain = " ".join(text.split()).casefold()
    return any(plain == line.lstrip("-*• ").strip() or plain == line for line in recalled)


def _within_budget(conversation: "Conversation") -> bool:
    settings = conversation.parts.review
    return settings.enabled and conversation.parts.review_tokens_today() < settings.max_tokens_per_day


def _store_transcript(conversation: "Conversation", finished: Review) -> None:
    """Store the transcript of the review as a hidden session."""
    store = conversation.parts.sessions
    if store is None or conversation.incognito or conversation.parts.model is None:
        return
    now = conversation.now()
    session_id: SessionId = new_session_id(conversation.parts.clock.now())
    try:
        model = (conversation.parts.reviewer or conversation.parts.model).name
        store.create(Session(id=session_id, source="review", started=now, model=model, user_id=conversation.user_id))
        store.append(session_id, [NewMessage(message, now, Origin.SYNTHETIC) for message in finished.transcript])
        store.end(session_id, "reviewed")
    except StorageError:
        log.warning("review transcript not stored", exc_info=True)
