"""Messages of a conversation, as the model sees them and as the store keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, TypeAlias

from kept.core.ids import MessageId, SessionId
from kept.core.text import JSON
from kept.core.tools import ToolSchema


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class TextPart:
    """A stretch of text."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image, inline as base64."""

    media_type: str
    data: str


Part: TypeAlias = TextPart | ImagePart


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asked for; `arguments` is its JSON text, byte for byte."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a model takes it or gives it."""

    role: Role
    content: str | tuple[Part, ...] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    reasoning: str | None = None
    """Thinking, as text or as the JSON of the blocks that must be passed back verbatim."""

    @property
    def text(self) -> str:
        """Return the textual content, parts joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, TextPart))


class State(StrEnum):
    """Where a stored message stands: in the context, summarised away, or taken back."""

    ACTIVE = "active"
    COMPACTED = "compacted"
    REWOUND = "rewound"


SUMMARY_MARKER = "[CONTEXT COMPACTION]"
"""How the text of a summary of earlier messages begins."""


class Origin(StrEnum):
    """What made a message."""

    PERSON = "person"
    MODEL = "model"
    TOOL = "tool"
    SYNTHETIC = "synthetic"

    @classmethod
    def usual(cls, role: Role) -> "Origin":
        """Return what makes messages of this role where nothing else is said."""
        match role:
            case Role.USER:
                return cls.PERSON
            case Role.ASSISTANT:
                return cls.MODEL
            case Role.TOOL:
                return cls.TOOL
            case Role.SYSTEM:
                return cls.SYNTHETIC


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to be appended to a session."""

    message: Message
    timestamp: float
    origin: Origin
    api_content: str | None = None
    """The exact text sent to the model where it differed from the content; replayed, never shown."""
    token_count: int | None = None
    external_id: str | None = None
    """The id that the platform or the import gave it."""
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message as the store keeps it."""

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


class Link(StrEnum):
    """How a session came from its parent."""

    COMPRESSION = "compression"
    BRANCH = "branch"
    DELEGATE = "delegate"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Session:
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
    """What belongs to a platform or another program: chat keys, import fields."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that one model call took, as the endpoint reported them."""

    input_tokens: int = 0
    """Input that was neither read from nor written to the cache."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """Return everything that was sent, cached or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )


StopReason = Literal["end", "tool_calls", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """Everything a model is given for one answer."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_output_tokens: int | None = None
    conversation_id: str | None = None
    """A stable key for endpoints that route by it, so that their prefix cache is met again."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The connection broke and the answer begins anew; what was streamed of it before no longer counts."""


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """The whole answer; always the last thing that a stream gives."""

    message: Message
    usage: Usage
    stop_reason: StopReason
    model: str
    """The model that really answered, which a fallback may have changed."""


Delta: TypeAlias = TextDelta | ReasoningDelta | Restarted | ChatResponse
