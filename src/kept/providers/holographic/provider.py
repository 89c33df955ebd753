"""The holographic provider: the memory that works without a server, a model or a key."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kept.core.clock import SystemClock
from kept.core.errors import ProviderError
from kept.core.ports import Clock
from kept.core.text import JSON, dumps
from kept.providers.base import MemoryAction, MemoryProvider, Messages, ProviderCommand
from kept.providers.config import load_settings, questions
from kept.providers.holographic.settings import QUESTIONS, HolographicSettings
from kept.providers.holographic.store import FactStore
from kept.providers.holographic.tools import FactTools, commands, schemas
from kept.security.scan import scan
from kept.security.secrets import redact

NAME = "holographic"
DATABASE = "holographic.db"

_RECALLED = 5
_LEAST_SHARE = 0.2
"""How much of a message's weight a fact must hold to be recalled unasked."""
_LEAST_SCORE = 0.4
"""The share of the best fact's score that a fact must reach to be recalled beside it."""


class HolographicProvider(MemoryProvider):
    """Facts in `<home>/holographic.db`; each user sees their own."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = HolographicSettings()
        self._store: FactStore | None = None
        self._user_id = "owner"
        self._writable = True
        self._session_id = ""

    @property
    def name(self) -> str:
        """Return `holographic`."""
        return NAME

    def is_available(self) -> bool:
        """Tell that it needs nothing."""
        return True

    def initialize(self, session_id: str, **context: Any) -> None:
        """Open the store of the home and the user that `context` names."""
        home = Path(context["kept_home"])
        self._settings = load_settings(HolographicSettings, home, NAME)
        self._user_id = context.get("user_id") or "owner"
        self._writable = context.get("agent_context", "primary") == "primary"
        self._session_id = session_id
        self._store = FactStore(home / DATABASE, clock=self._clock, dim=self._settings.hrr_dim)

    def get_tool_schemas(self) -> Sequence[Mapping[str, JSON]]:
        """Return `fact_store` and `fact_feedback`."""
        return schemas()

    def handle_tool_call(self, name: str, args: Mapping[str, JSON], **context: Any) -> str:
        """Run one of the two tools."""
        return dumps(self._tools().run(name, args, session_id=context.get("session_id") or self._session_id))

    def system_prompt_block(self) -> str:
        """Say that the store is there, and how full it is when the session begins."""
        count = self._open_store().count(user_id=self._user_id)
        known = f"{count} facts are" if count != 1 else "1 fact is"
        return f"Fact store: {known} kept for this person. Look them up and add to them with fact_store."

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - facts are of all sessions
        """Return the five facts that answer the message best, if they answer it at all."""
        from kept.providers.holographic.search import FactSearch  # a chat is ready sooner: nothing is asked yet

        hits = FactSearch(self._open_store(), self._settings, user_id=self._user_id).search(query, limit=_RECALLED)
        if not hits or max(hit.share for hit in hits) < _LEAST_SHARE:
            return ""
        floor = _LEAST_SCORE * hits[0].score
        return "\n".join(f"- {' '.join(hit.fact.text.split())}" for hit in hits if hit.score >= floor)

    def on_session_switch(self, new_id: str, **_context: Any) -> None:
        """Remember which session facts come from."""
        self._session_id = new_id

    def on_session_end(self, messages: Messages, *, session_id: str = "") -> None:
        """Take over what the person stated, where that is switched on."""
        if not self._settings.auto_extract or not self._writable:
            return
        store = self._open_store()
        for text in stated_facts(messages):
            if not scan(text).findings:
                trust = self._settings.default_trust
                store.add(redact(text), user_id=self._user_id, trust=trust, source="extracted", session_id=session_id)

    def on_memory_write(
        self,
        action: MemoryAction,
        target: str,  # noqa: ARG002 - the port's signature
        content: str,
        metadata: Mapping[str, JSON] | None = None,
    ) -> None:
        """Follow a write to the pages; a fact is the same whichever page it stands on."""
        if not self._writable:
            return
        known = metadata or {}
        ledger_id, before = known.get("ledger_id"), known.get("before")
        self._open_store().mirror(
            action,
            content,
            ledger_id=ledger_id if isinstance(ledger_id, int) else None,
            user_id=self._user_id,
            before=before if isinstance(before, str) else "",
            trust=self._settings.default_trust,
        )

    def shutdown(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def get_config_schema(self) -> Sequence[Mapping[str, JSON]]:
        """Return the fields that setup asks for."""
        return questions(HolographicSettings, QUESTIONS)

    def get_status(self, *, kept_home: str = "") -> Mapping[str, JSON]:
        """Return how many facts there are; the home is needed only before it is initialised."""
        store, place = self._store, Path(kept_home, DATABASE)
        if store is None and not (kept_home and place.is_file()):
            return {"facts": 0}
        opened = store or FactStore(place, clock=self._clock, dim=self._settings.hrr_dim)
        try:
            count = opened.count(user_id=self._user_id)
        finally:
            if store is None:
                opened.close()
        return {"facts": count}

    def get_commands(self) -> Sequence[ProviderCommand]:
        """Return `facts` and `contradictions`."""
        return commands(lambda arguments: self._tools().run("fact_store", arguments, session_id=self._session_id))

    def _tools(self) -> FactTools:
        return FactTools(self._open_store(), self._settings, user_id=self._user_id, writable=self._writable)

    def _open_store(self) -> FactStore:
        if self._store is None:
            raise ProviderError("the holographic provider is not initialised", "start it through the manager")
        return self._store


MAX_FACTS = 20
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


def stated_facts(messages: Messages) -> list[str]:
    """Return what the person said about themselves and their work, in their own words, each once."""
    found: dict[str, None] = {}
    for message in messages:
        if message.get("role") == "user":
            for sentence in _sentences(message.get("content")):
                found.setdefault(sentence)
    return list(found)[:MAX_FACTS]


def _sentences(content: JSON) -> list[str]:
    if not isinstance(content, str):
        return []
    sentences = [match[0].strip() for match in _SENTENCE.finditer(content)]
    stated = [each for each in sentences if _STATED.search(each) and not each.endswith("?") and len(each) <= _MAX_CHARS]
    return [_LEAD.sub("", each) for each in stated]
