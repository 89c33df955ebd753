"""Messages: in requests to a model, in its streamed answers, and in the store."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field

from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.text import JSON

if TYPE_CHECKING:
    from wellkept.core.tools import ToolSchema  # most readers of messages call no tool


class Role(StrEnum):
    """Author role of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class TextPart(Struct, frozen=True):
    """A piece of text."""

    text: str


class ImagePart(Struct, frozen=True):
    """An image, inline as base64."""

    media_type: str
    data: str


Part: TypeAlias = TextPart | ImagePart


class ToolCall(Struct, frozen=True):
    """A tool call of the model; `arguments` is its unchanged JSON text."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True):
    """One message in a request or an answer."""

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    reasoning: str | None = None
    """Thinking, as text or as the JSON of blocks that must be sent back unchanged."""

    @property
    def text(self) -> str:
        """Return the text of all parts, joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """Return the images."""
        if isinstance(self.content, str):
            return ()
        return tuple(part for part in self.content if isinstance(part, ImagePart))

    @property
    def display_text(self) -> str:
        """Return the text as a reader sees it: images are counted, and calls stand for a message without text."""
        text = self.content
        if isinstance(text, str) and text:
            return text  # most messages; an answer shows dozens
        text = self.text
        if images := len(self.images):
            text = f"{text}\n[{images} image{'s' if images != 1 else ''}]".strip()
        if not text and self.tool_calls:
            return f"[called {', '.join(call.name for call in self.tool_calls)}]"
        return text


class State(StrEnum):
    """State of a stored message: in the context, replaced by a summary, or rewound."""

    ACTIVE = "active"
    COMPACTED = "compacted"
    REWOUND = "rewound"


SUMMARY_MARKER = "[CONTEXT COMPACTION]"
"""The start of every summary of earlier messages."""


class Origin(StrEnum):
    """Who created a message."""

    PERSON = "person"
    MODEL = "model"
    TOOL = "tool"
    SYNTHETIC = "synthetic"
    LOOKUP = "lookup"
    """A question that a person asked the memory itself in a chat without a model, or the answer; no search finds it."""

    def is_person(self, role: Role) -> bool:
        """Whether a person wrote a message of this role."""
        return role is Role.USER and self in {Origin.PERSON, Origin.LOOKUP}

    @classmethod
    def usual(cls, role: Role) -> "Origin":
        """Return the default origin for messages of `role`."""
        match role:
            case Role.USER:
                return cls.PERSON
            case Role.ASSISTANT:
                return cls.MODEL
            case Role.TOOL:
                return cls.TOOL
            case Role.SYSTEM:
                return cls.SYNTHETIC


class NewMessage(Struct, frozen=True):
    """A message to append to a session."""

    message: Message
    timestamp: float
    origin: Origin
    api_content: str | None = None
    """The exact text sent to the model if it differs from the content; sent again, never shown."""
    token_count: int | None = None
    external_id: str | None = None
    """The id from the platform or the imported file."""
    interrupted: bool = False
    source: SourceName | None = None
    """Where the text of a tool or an import came from, or what a model had read before it wrote; None: its own."""


class StoredMessage(Struct, frozen=True):
    """A message in the store."""

    id: MessageId
    session_id: SessionId
    message: Message
    timestamp: float
    origin: Origin
    state: State = State.ACTIVE
    api_content: str | None = None
    token_count: int | None = None
    external_id: str | None = None
    interrupted: bool = False
    is_damaged: bool = False
    """Whether the row was damaged on the disk; the content then says so and shows what can be read."""
    source: SourceName | None = None


class Link(StrEnum):
    """How a session was derived from its parent."""

    COMPRESSION = "compression"
    BRANCH = "branch"
    DELEGATE = "delegate"
    IMPORT = "import"


class Session(Struct, frozen=True):
    """A conversation, without its messages."""

    id: SessionId
    source: str
    started: float
    user_id: str = "owner"
    profile: str | None = None
    project: str | None = None
    model: str | None = None
    title: str | None = None
    parent_session_id: SessionId | None = None
    link: Link | None = None
    ended: float | None = None
    end_reason: str | None = None
    archived: bool = False
    last_active: float | None = None
    message_count: int = 0
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    """Data of a platform or another program: chat keys, import fields."""


class Passage(Struct, frozen=True):
    """A message in its session: the messages around it, and the first and last ones of the session."""

    session: Session
    match: StoredMessage
    around: tuple[StoredMessage, ...]
    start: tuple[StoredMessage, ...]
    end: tuple[StoredMessage, ...]
    before: int
    """How many messages the session has before the window."""
    after: int


class Usage(Struct, frozen=True):
    """Tokens of one model call, as reported by the endpoint."""

    input_tokens: int = 0
    """Input tokens that were neither read from nor written to the cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Return all input tokens, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


StopReason = Literal["end", "tool_calls", "length", "refusal"]


class ChatRequest(Struct, frozen=True):
    """A request to a model."""

    system: str
    messages: tuple[Message, ...]
    tools: "tuple[ToolSchema, ...]" = ()
    max_output_tokens: int | None = None
    conversation_id: str | None = None
    """A stable routing key, so that an endpoint finds its prefix cache again."""


class TextDelta(Struct, frozen=True):
    """A piece of the answer's text."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """A piece of the model's thinking."""

    text: str


class Restarted(Struct, frozen=True):
    """The connection broke and the answer starts over; discard what was streamed so far."""


class ChatResponse(Struct, frozen=True):
    """The complete answer; always the last item of a stream."""

    message: Message
    usage: Usage
    stop_reason: StopReason
    model: str
    """The model that answered, which may be a fallback."""


Delta: TypeAlias = TextDelta | ReasoningDelta | Restarted | ChatResponse


ParentOf: TypeAlias = Callable[[SessionId], tuple[SessionId, Link | None] | None]
ChildrenOf: TypeAlias = Callable[[SessionId], Sequence[tuple[SessionId, Link | None]]]

CONVERSATION = frozenset({Link.COMPRESSION, Link.BRANCH})
"""The links inside one conversation; a delegate or an import is a conversation of its own."""
CHAIN = frozenset({Link.COMPRESSION})


class Lineage(Struct, frozen=True):
    """Walks the links between sessions; stops at a cycle, which only a damaged file can have."""

    parent_of: ParentOf
    children_of: ChildrenOf

    def root(self, session_id: SessionId, links: frozenset[Link] = CONVERSATION) -> SessionId:
        """Return the first session of the conversation."""
        seen = {session_id}
        here = session_id
        while (above := self.parent_of(here)) is not None:
            parent, link = above
            if link not in links or parent in seen:
                return here
            seen.add(parent)
            here = parent
        return here

    def family(self, session_id: SessionId, links: frozenset[Link] = CONVERSATION) -> list[SessionId]:
        """Return every session of the conversation, the first one first."""
        sessions = [self.root(session_id, links)]
        seen = set(sessions)
        for here in sessions:
            for child, link in self.children_of(here):
                if link in links and child not in seen:
                    seen.add(child)
                    sessions.append(child)
        if session_id not in seen:
            sessions.append(session_id)
        return sessions

    def chain(self, session_id: SessionId) -> list[SessionId]:
        """Return the chain of sessions that compactions created from one, oldest first."""
        return self.family(session_id, CHAIN)

    def tip(self, session_id: SessionId) -> SessionId:
        """Return the session that continues the conversation after every compression since `session_id`."""
        seen = {session_id}
        here = session_id
        while True:
            heirs = [child for child, link in self.children_of(here) if link in CHAIN and child not in seen]
            if not heirs:
                return here
            here = heirs[-1]
            seen.add(here)
