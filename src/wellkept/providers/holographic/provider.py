"""The holographic provider: a memory for facts that needs no server, model or key."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from wellkept.core.clock import SystemClock
from wellkept.core.errors import ProviderError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.ports import Clock
from wellkept.core.settings import Between
from wellkept.core.text import JSON, dumps
from wellkept.providers.base import ForgetRequest, MemoryAction, MemoryProvider, Messages, ProviderCommand
from wellkept.providers.config import load_settings, questions
from wellkept.providers.holographic.store import FactStore
from wellkept.providers.holographic.tools import FactTools, commands, schemas
from wellkept.security.scan import scan
from wellkept.security.secrets import redact

NAME = "holographic"
DATABASE = "holographic.db"

_RECALLED_FACTS = 5
_LEAST_SHARE = 0.2
"""The share of the message's term weight that a fact must contain to be recalled."""
_LEAST_SCORE = 0.4
"""The share of the best score that a fact must reach to be recalled too."""

_MAX_STATED = 20
_MAX_CHARS = 300
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_STATED = re.compile(
    r"\b(?:remember|note|keep in mind) that\b"
    r"|\bmy (?:\w+ ){1,3}(?:is|are|was|lives?|works?)\b"
    r"|\bI(?:'m| am) (?:a|an|the|from|allergic|based|called|named|vegetarian|vegan|left-handed)\b"
    r"|\bI (?:live|work|prefer|use|always|never|hate|love|like|need|own|have (?:a|an|two|three))\b"
    r"|\bwe (?:decided|agreed|use|always|never|deploy|call)\b"
    r"|\bcall me\b",
    re.IGNORECASE,
)
_LEAD = re.compile(r"^(?:please\s+)?(?:remember|note|keep in mind) that\s+", re.IGNORECASE)


class HolographicSettings(Struct, frozen=True, kw_only=True):
    """The settings in `holographic.json`."""

    auto_extract: bool = False
    """Whether facts that the person stated are stored when a session ends."""
    default_trust: Annotated[float, Between(0.0, 1.0)] = 0.5
    """The trust of a new fact."""
    min_trust_threshold: Annotated[float, Between(0.0, 1.0)] = 0.3
    """Facts below this trust are not recalled."""
    temporal_decay_half_life: Annotated[float, Between(0.0)] = 0.0
    """After how many days a fact counts half; 0 never."""
    hrr_dim: Annotated[int, Between(64, 8192)] = 1024
    """The length of the holographic vectors; a change is applied to all facts at the next start."""
    hrr_weight: Annotated[float, Between(0.0, 10.0)] = 0.3
    """The weight of holographic similarity relative to the words."""


QUESTIONS = {
    "auto_extract": "Take facts from a session when it ends",
    "default_trust": "Trust of a new fact, 0 to 1",
    "min_trust_threshold": "Recall no facts below this trust",
    "temporal_decay_half_life": "Days after which a fact counts half, 0 for never",
    "hrr_dim": "Length of the holographic vectors",
    "hrr_weight": "Weight of holographic similarity",
}
"""The questions of setup, by setting."""


class HolographicProvider(MemoryProvider):
    """Facts in `<home>/holographic.db`; each user sees their own."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = HolographicSettings()
        self._store: FactStore | None = None
        self._writable = True
        self._session_id = ""

    @property
    def name(self) -> str:
        """Return `holographic`."""
        return NAME

    def is_available(self) -> bool:
        """Return True: it needs nothing."""
        return True

    def initialize(self, session_id: str, **context: Any) -> None:
        """Open the fact store for the home and the user in `context`."""
        home = Path(context["kept_home"])
        self._settings = load_settings(HolographicSettings, home, NAME)
        self._writable = context.get("agent_context", "primary") == "primary"
        self._session_id = session_id
        self._store = self._open(home / DATABASE, UserId(context.get("user_id") or OWNER))

    def get_tool_schemas(self) -> Sequence[Mapping[str, JSON]]:
        """Return `fact_store` and `fact_feedback`."""
        return schemas()

    def handle_tool_call(self, name: str, args: Mapping[str, JSON], **context: Any) -> str:
        """Run one of the two tools."""
        return dumps(self._tools().run(name, args, session_id=context.get("session_id") or self._session_id))

    def system_prompt_block(self) -> str:
        """Mention the fact store, and how many facts it holds when the session starts."""
        count = self._require_store().count()
        known = f"{count} facts are" if count != 1 else "1 fact is"
        return f"Fact store: {known} kept for this person. Look them up and add to them with fact_store."

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - facts of all sessions are searched
        """Return the five facts that match the message best, if any match well enough."""
        from wellkept.providers.holographic.search import FactSearch  # only needed for searches; keeps start-up fast

        hits = FactSearch(self._require_store(), self._settings).search(query, limit=_RECALLED_FACTS)
        if not hits or max(hit.share for hit in hits) < _LEAST_SHARE:
            return ""
        floor = _LEAST_SCORE * hits[0].score
        return "\n".join(f"- {' '.join(hit.fact.text.split())}" for hit in hits if hit.score >= floor)

    def on_session_switch(self, new_id: str, **_context: Any) -> None:
        """Store new facts under the new session."""
        self._session_id = new_id

    def on_session_end(self, messages: Messages, *, session_id: str = "") -> None:
        """Store facts that the person stated, if `auto_extract` is on."""
        if not self._settings.auto_extract or not self._writable:
            return
        store = self._require_store()
        for text in stated_facts(messages):
            if not scan(text).findings:
                trust = self._settings.default_trust
                store.add(redact(text), trust=trust, source="extracted", session_id=session_id)

    def on_memory_write(
        self,
        action: MemoryAction,
        target: str,  # noqa: ARG002 - the port's signature
        content: str,
        metadata: Mapping[str, JSON] | None = None,
    ) -> None:
        """Apply a write to the pages; both pages share one set of facts."""
        if not self._writable:
            return
        known = metadata or {}
        ledger_id, before = known.get("ledger_id"), known.get("before")
        self._require_store().mirror(
            action,
            content,
            ledger_id=ledger_id if isinstance(ledger_id, int) else None,
            before=before if isinstance(before, str) else "",
            trust=self._settings.default_trust,
        )

    def forget_content(self, request: ForgetRequest) -> int:
        """Delete facts with their bytes, however they came to be stored."""
        return self._require_store().forget(request)

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether facts that `request` selects are left."""
        return self._require_store().holds(request)

    def shutdown(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def get_config_schema(self) -> Sequence[Mapping[str, JSON]]:
        """Return the fields that setup asks for."""
        return questions(HolographicSettings, QUESTIONS)

    def get_status(self, *, kept_home: str = "", user_id: str = "") -> Mapping[str, JSON]:
        """Return the number of facts; the arguments are needed only before `initialize`."""
        if self._store is not None:
            return {"facts": self._store.count()}
        path = Path(kept_home, DATABASE)
        if not kept_home or not path.is_file():
            return {"facts": 0}
        self._settings = load_settings(HolographicSettings, Path(kept_home), NAME)
        store = self._open(path, UserId(user_id or OWNER))
        try:
            return {"facts": store.count()}
        finally:
            store.close()

    def get_commands(self) -> Sequence[ProviderCommand]:
        """Return `facts` and `contradictions`."""
        return commands(lambda arguments: self._tools().run("fact_store", arguments, session_id=self._session_id))

    def _tools(self) -> FactTools:
        return FactTools(self._require_store(), self._settings, writable=self._writable)

    def _open(self, path: Path, user: UserId) -> FactStore:
        return FactStore(path, user=user, clock=self._clock, dim=self._settings.hrr_dim)

    def _require_store(self) -> FactStore:
        if self._store is None:
            raise ProviderError("the holographic provider is not initialised", "start it through the manager")
        return self._store


def stated_facts(messages: Messages) -> list[str]:
    """Return the sentences in which the person states facts about themselves or their work, without repeats."""
    found: dict[str, None] = {}
    for message in messages:
        if message.get("role") == "user":
            for sentence in _sentences(message.get("content")):
                found.setdefault(sentence)
    return list(found)[:_MAX_STATED]


def _sentences(content: JSON) -> list[str]:
    if not isinstance(content, str):
        return []
    sentences = [match[0].strip() for match in _SENTENCE.finditer(content)]
    stated = [each for each in sentences if _STATED.search(each) and not each.endswith("?") and len(each) <= _MAX_CHARS]
    return [_LEAD.sub("", each) for each in stated]
