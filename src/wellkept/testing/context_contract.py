"""The contract of every context engine: one suite, run against each implementation."""

from collections.abc import Sequence

from msgspec.structs import replace

from wellkept.context.boundaries import Window
from wellkept.context.engine import Compaction, ContextEngine, Outcome, Pruned, Setup, Unchanged
from wellkept.context.lossless import NodesInMemory
from wellkept.context.messages import faults, last_user, prune, request_messages
from wellkept.context.settings import CompressionSettings
from wellkept.core.clock import FixedClock
from wellkept.core.ids import MessageId, SessionId
from wellkept.core.messages import ImagePart, Message, Origin, Role, StoredMessage, TextPart, ToolCall
from wellkept.core.text import dumps

IMAGE_TOKENS = 1_600


def count_by_length(message: Message) -> int:
    """Return a plain estimate of a message's tokens: four characters each, 1,600 an image."""
    parts = () if isinstance(message.content, str) else message.content
    images = sum(isinstance(part, ImagePart) for part in parts)
    called = sum(len(call.arguments) + len(call.name) for call in message.tool_calls)
    return 4 + (len(message.text) + called) // 4 + images * IMAGE_TOKENS


def as_stored(messages: Sequence[Message], *, first_id: int = 1) -> list[StoredMessage]:
    """Return `messages` as a store returns them, with ids in order."""
    origins = {Role.USER: Origin.PERSON, Role.ASSISTANT: Origin.MODEL, Role.TOOL: Origin.TOOL}
    return [
        StoredMessage(
            MessageId(place),
            SessionId("contract"),
            message,
            float(place),
            origins.get(message.role, Origin.SYNTHETIC),
        )
        for place, message in enumerate(messages, start=first_id)
    ]


def prepare_engine(
    engine: ContextEngine,
    rows: Sequence[StoredMessage] = (),
    *,
    context_length: int = 16_000,
    overhead_tokens: int = 500,
    settings: CompressionSettings | None = None,
) -> ContextEngine:
    """Return `engine` ready to work without a model on `rows`."""
    by_id = {row.id: row for row in rows}
    engine.prepare(
        Setup(
            window=Window(context_length, overhead_tokens),
            count=count_by_length,
            clock=FixedClock(),
            redact=lambda text: text,
            settings=settings or CompressionSettings(),
            nodes=NodesInMemory(),
            originals=lambda ids: [by_id[one] for one in ids if one in by_id],
        )
    )
    engine.on_session_start(SessionId("contract"))
    return engine


def context_after(rows: Sequence[StoredMessage], outcome: Outcome) -> list[StoredMessage]:
    """Return the context that a store returns after storing `outcome`."""
    match outcome:
        case Unchanged():
            return list(rows)
        case Pruned() as small:
            return prune(rows, head=small.head, through=small.through)
        case Compaction() as done:
            by_id = {row.id: row for row in rows}
            new_id = MessageId(max(by_id, default=MessageId(0)) + 1)
            summary = StoredMessage(new_id, SessionId("contract"), done.summary, 0.0, Origin.SYNTHETIC)
            head = [by_id[one] for one in done.kept_head]
            return [*head, summary, *(by_id[one] for one in done.kept_tail)]


def conversation(turns: int, *, words: int = 60, with_tools: bool = True) -> list[StoredMessage]:
    """Return a conversation about code, each turn with a question, a tool call and an answer."""
    messages: list[Message] = []
    for turn in range(turns):
        messages.append(Message(Role.USER, f"question {turn}: " + "please look at the parser " * (words // 5)))
        if with_tools:
            call = ToolCall(f"call_{turn}", "read_file", f'{{"path": "src/part_{turn}.py"}}')
            messages.append(Message(Role.ASSISTANT, "", tool_calls=(call,)))
            text = f"line {turn} of the file\n" * words
            messages.append(Message(Role.TOOL, text, tool_call_id=call.id, tool_name="read_file"))
        messages.append(Message(Role.ASSISTANT, f"answer {turn}: " + "the parser reads tokens " * (words // 4)))
    return as_stored(messages)


def check_outcome(engine: ContextEngine, rows: Sequence[StoredMessage], outcome: Outcome) -> None:
    """Assert the invariants of every outcome."""
    match outcome:
        case Unchanged(messages=messages):
            assert len(messages) == len(rows), "an unchanged context is the one that was given"
        case Compaction() as done:
            assert faults(done.messages) == [], faults(done.messages)
            assert done.tokens_after < done.tokens_before
            ids = [row.id for row in rows]
            assert sorted([*done.kept_head, *done.covered, *done.kept_tail]) == sorted(ids), "no message is lost"
            assert done.covered, "something was covered"
            _check_last_user(rows, done.messages)
            again = faults_of_context(rows, outcome)
            assert again == [], again
        case Pruned() as small:
            assert faults(small.messages) == [], faults(small.messages)
            assert small.tokens_after < small.tokens_before
            _check_last_user(rows, small.messages)
    assert engine.get_status()["engine"] == engine.name


def faults_of_context(rows: Sequence[StoredMessage], outcome: Outcome) -> list[str]:
    """Return the problems in the request built from the stored outcome."""
    return faults(request_messages(context_after(rows, outcome)))


def _check_last_user(rows: Sequence[StoredMessage], messages: Sequence[Message]) -> None:
    place = last_user([row.message for row in rows])
    if place is None:
        return
    wanted = rows[place].message
    texts = [part for message in messages if message.role is Role.USER for part in _texts(message)]
    assert all(text in texts for text in _texts(wanted)), "the last user message is kept"


def _texts(message: Message) -> list[str]:
    if isinstance(message.content, str):
        return [message.content] if message.content else []
    return [part.text for part in message.content if isinstance(part, TextPart) and part.text]


class ContextEngineContract:
    """Inherit, implement `engine()`, and pytest runs the suite: `class TestMine(ContextEngineContract)`."""

    def engine(self) -> ContextEngine:
        """Return a new engine, not yet prepared."""
        raise NotImplementedError

    def test_it_has_a_name(self) -> None:
        """The setting `context.engine` refers to an engine by name."""
        assert self.engine().name

    def test_a_long_conversation_gets_shorter_and_stays_valid(self) -> None:
        """Above the threshold the request shrinks below it, in an order that every API accepts."""
        rows = conversation(60)
        engine = prepare_engine(self.engine(), rows)

        outcome = engine.compress(rows)

        check_outcome(engine, rows, outcome)
        assert not isinstance(outcome, Unchanged)
        assert outcome.tokens_after < engine.limits.threshold

    def test_a_forced_compaction_covers_messages(self) -> None:
        """A forced compaction works below the threshold too."""
        rows = conversation(30, words=20)
        engine = prepare_engine(self.engine(), rows, context_length=200_000)

        outcome = engine.compress(rows, force=True)

        check_outcome(engine, rows, outcome)
        assert isinstance(outcome, Compaction)

    def test_nothing_to_do_changes_nothing(self) -> None:
        """A short conversation stays unchanged, however often it is compressed."""
        rows = conversation(2, words=10)
        engine = prepare_engine(self.engine(), rows)

        outcomes = [engine.compress(rows) for _ in range(2)]

        assert all(isinstance(outcome, Unchanged) for outcome in outcomes)
        assert outcomes[0].messages == outcomes[1].messages

    def test_a_compacted_context_is_not_compacted_again(self) -> None:
        """The result of a compaction needs no second one."""
        rows = conversation(60)
        engine = prepare_engine(self.engine(), rows)
        first = engine.compress(rows)

        second = engine.compress(context_after(rows, first))

        assert isinstance(second, Unchanged)

    def test_odd_lists_are_survived(self) -> None:
        """Empty, system only, images only, one giant message, unpaired tools: valid or unchanged."""
        call = ToolCall("a", "read_file", "{}")
        picture = Message(Role.USER, (ImagePart("image/png", "AAAA"),))
        giant = Message(Role.USER, "word " * 40_000)
        lists: list[list[Message]] = [
            [],
            [Message(Role.SYSTEM, "be kind")],
            [picture] * 40,
            [giant],
            [giant, Message(Role.ASSISTANT, "answer " * 9_000), Message(Role.USER, "and now?")],
            [Message(Role.TOOL, "lost " * 9_000, tool_call_id="zz")] * 30,
            [Message(Role.ASSISTANT, "", tool_calls=(call,)), Message(Role.USER, "go on " * 9_000)] * 20,
            [Message(Role.ASSISTANT, "alone " * 900)] * 60,
            [Message(Role.USER, "")] * 60,
        ]
        for messages in lists:
            for force in (False, True):
                rows = as_stored(messages)
                engine = prepare_engine(self.engine(), rows)
                check_outcome(engine, rows, engine.compress(rows, force=force))

    def test_one_long_turn_shrinks_around_its_question(self) -> None:
        """A single request with many tool calls is compacted and keeps that request."""
        messages = [Message(Role.USER, "fix the build")]
        for step in range(80):
            call = ToolCall(f"c{step}", "terminal", f'{{"command": "make step_{step}"}}')
            messages.append(Message(Role.ASSISTANT, f"step {step}", tool_calls=(call,)))
            output = f"output of step {step} " * 40
            messages.append(Message(Role.TOOL, output, tool_call_id=call.id, tool_name="terminal"))
        rows = as_stored(messages)
        engine = prepare_engine(self.engine(), rows)

        outcome = engine.compress(rows)

        check_outcome(engine, rows, outcome)
        assert not isinstance(outcome, Unchanged)
        assert outcome.tokens_after < engine.limits.threshold

    def test_the_state_survives_a_restart(self) -> None:
        """The value of `state` can be passed to another process."""
        engine = prepare_engine(self.engine())
        other = prepare_engine(self.engine())

        other.on_session_start(SessionId("contract"), state=engine.state())

        assert other.state() == engine.state()

    def test_its_tools_answer_bad_arguments(self) -> None:
        """A tool never raises for invalid arguments."""
        from wellkept.core.tools import ToolContext

        engine = prepare_engine(self.engine())
        for tool in engine.tools():
            assert dumps(tool.schema.parameters), "the schema can be sent"
            for arguments in ({}, {"pattern": 3}, {"node_id": "x", "message_ids": "y"}, {"max_tokens": -5}):
                assert "success" in tool.call(arguments, ToolContext())

    def test_disabled_compression_waits_for_a_person(self) -> None:
        """With `compression.enabled: false` only `force` compacts."""
        rows = conversation(60)
        settings = replace(CompressionSettings(), enabled=False)
        engine = prepare_engine(self.engine(), rows, settings=settings)

        outcomes = engine.compress(rows), engine.compress(rows, force=True)

        assert isinstance(outcomes[0], Unchanged)
        assert not engine.should_compress(10**9)
        assert isinstance(outcomes[1], Compaction)
