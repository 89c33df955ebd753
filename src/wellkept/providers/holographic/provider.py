"""The holographic provider, a memory for facts that needs no server, model or key, and its two tools."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Struct

from wellkept.core.clock import SystemClock
from wellkept.core.errors import ProviderError
from wellkept.core.ids import OWNER, UserId
from wellkept.core.ports import Clock
from wellkept.core.settings import Between
from wellkept.core.text import JSON, dumps, resource_text
from wellkept.providers.base import (
    CommandAnswer,
    ForgetRequest,
    MemoryAction,
    MemoryProvider,
    Messages,
    ProviderCommand,
)
from wellkept.providers.config import load_settings, questions
from wellkept.providers.holographic.store import Fact, FactStore
from wellkept.security.scan import scan
from wellkept.security.secrets import redact

if TYPE_CHECKING:
    from wellkept.providers.holographic.search import FactSearch, Hit

HELPFUL, UNHELPFUL = 0.05, -0.10
"""The change of trust by feedback; a wrong fact should disappear faster than a right one rises."""
ACTIONS = ("add", "search", "probe", "related", "reason", "contradict", "update", "remove", "list")
MAX_FACT_CHARS = 4_000

_COMPARED = 500
"""The newest facts among which contradictions are looked for."""
_NEIGHBOURS = 12
"""How many similar facts each of them is compared with."""
_DEFAULT_LIMIT = 10
_MAX_LIMIT = 100

Arguments = Mapping[str, JSON]


class BadArgumentsError(Exception):
    """The model gave unusable arguments; the message says what to do instead."""


def schemas() -> list[Mapping[str, JSON]]:
    """Return the schemas of both tools."""
    text: Mapping[str, JSON] = {"type": "string"}
    store: Mapping[str, JSON] = {
        "action": {"type": "string", "enum": list(ACTIONS), "description": "What to do."},
        "content": {**text, "description": "The fact, for add and update."},
        "query": {**text, "description": "The question, for search."},
        "entity": {**text, "description": "A person, project, place or thing, for probe and related."},
        "entities": {"type": "array", "items": text, "description": "Two or more, for reason; optional for add."},
        "fact_id": {"type": "integer", "description": "For update and remove."},
        "category": {**text, "description": "A word to group facts by, such as user, project or tool."},
        "tags": {**text, "description": "Further words, separated by commas."},
        "trust_delta": {"type": "number", "description": "How much to move the trust, for update."},
        "min_trust": {"type": "number", "description": "Leave out facts below this trust, for search and list."},
        "limit": {"type": "integer", "description": f"How many, {_DEFAULT_LIMIT} unless given."},
    }
    feedback: Mapping[str, JSON] = {
        "action": {"type": "string", "enum": ["helpful", "unhelpful"], "description": "Whether the fact was useful."},
        "fact_id": {"type": "integer", "description": "The number that search and list show."},
    }
    return [
        _schema("fact_store", store, ["action"]),
        _schema("fact_feedback", feedback, ["action", "fact_id"]),
    ]


class FactTools:
    """Runs the actions of both tools on one store."""

    def __init__(self, store: FactStore, settings: "HolographicSettings", *, writable: bool) -> None:
        self._store = store
        self._settings = settings
        self._writable = writable

    @cached_property
    def _search(self) -> "FactSearch":
        from wellkept.providers.holographic.search import FactSearch  # only needed for searches; keeps start-up fast

        return FactSearch(self._store, self._settings)

    def run(self, tool: str, arguments: Arguments, *, session_id: str) -> Mapping[str, JSON]:
        """Return the answer of a tool; for bad arguments it says what to do."""
        try:
            if tool == "fact_feedback":
                return self._feedback(arguments)
            return self._store_action(arguments, session_id)
        except BadArgumentsError as bad:
            return {"success": False, "error": str(bad)}

    def _store_action(self, arguments: Arguments, session_id: str) -> Mapping[str, JSON]:
        actions: Mapping[str, Callable[[Arguments], Mapping[str, JSON]]] = {
            "add": lambda given: self._add(given, session_id),
            "search": self._search_facts,
            "probe": self._probe,
            "related": self._related,
            "reason": self._reason,
            "contradict": self._contradict,
            "update": self._update,
            "remove": self._remove,
            "list": self._list,
        }
        action = arguments.get("action")
        if not isinstance(action, str) or action not in actions:
            raise BadArgumentsError(f"unknown action {action!r}; use one of {', '.join(ACTIONS)}")
        return {"success": True, "action": action, **actions[action](arguments)}

    def _add(self, arguments: Arguments, session_id: str) -> Mapping[str, JSON]:
        self._require_write_access()
        content = _safe(_text(arguments, "content"))
        fact_id, is_new = self._store.add(
            content,
            trust=self._settings.default_trust,
            category=_optional_text(arguments, "category") or "general",
            tags=_optional_text(arguments, "tags") or "",
            entities=_texts(arguments, "entities"),
            session_id=session_id,
        )
        return {"fact_id": fact_id, "status": "added" if is_new else "already known"}

    def _search_facts(self, arguments: Arguments) -> Mapping[str, JSON]:
        hits = self._search.search(
            _text(arguments, "query"),
            limit=_limit(arguments),
            min_trust=_number(arguments, "min_trust"),
            category=_optional_text(arguments, "category"),
        )
        return self._render_hits(hits)

    def _probe(self, arguments: Arguments) -> Mapping[str, JSON]:
        return self._render_hits(self._search.probe(_text(arguments, "entity"), limit=_limit(arguments)))

    def _related(self, arguments: Arguments) -> Mapping[str, JSON]:
        found = self._search.related(_text(arguments, "entity"), limit=_limit(arguments))
        return {"count": len(found), "results": [{"entity": name, "facts": times} for name, times in found]}

    def _reason(self, arguments: Arguments) -> Mapping[str, JSON]:
        names = _texts(arguments, "entities")
        if len(names) < 2:
            raise BadArgumentsError("reason needs `entities`: two or more names")
        return self._render_hits(self._search.reason(names, limit=_limit(arguments)))

    def _contradict(self, arguments: Arguments) -> Mapping[str, JSON]:
        from wellkept.providers.holographic.search import contradictions  # only needed here; keeps start-up fast

        least = self._settings.min_trust_threshold
        facts = self._store.newest(min_trust=least, limit=_COMPARED)
        found = contradictions(facts, self._similar, limit=_limit(arguments))
        pairs: list[JSON] = [
            {
                "reason": each.reason,
                "score": round(each.score, 3),
                "facts": [_plain(each.first), _plain(each.second)],
            }
            for each in found
        ]
        return {"count": len(pairs), "results": pairs}

    def _update(self, arguments: Arguments) -> Mapping[str, JSON]:
        self._require_write_access()
        fact = self._require_fact(arguments)
        content = arguments.get("content")
        if content is not None:
            self._store.rewrite(fact.id, _safe(_text(arguments, "content")))
        delta = _number(arguments, "trust_delta")
        self._store.describe(
            fact,
            category=_optional_text(arguments, "category"),
            tags=_optional_text(arguments, "tags"),
            trust=None if delta is None else fact.trust + delta,
        )
        return {"fact": _plain(self._require_fact(arguments))}

    def _remove(self, arguments: Arguments) -> Mapping[str, JSON]:
        self._require_write_access()
        fact = self._require_fact(arguments)
        self._store.remove(fact.id)
        return {"fact_id": fact.id, "status": "removed"}

    def _list(self, arguments: Arguments) -> Mapping[str, JSON]:
        facts = self._store.newest(
            min_trust=_number(arguments, "min_trust") or 0.0,
            category=_optional_text(arguments, "category"),
            limit=_limit(arguments),
        )
        return {"count": len(facts), "results": [_plain(fact) for fact in facts]}

    def _feedback(self, arguments: Arguments) -> Mapping[str, JSON]:
        self._require_write_access()
        action = arguments.get("action")
        if action not in {"helpful", "unhelpful"}:
            raise BadArgumentsError(f"unknown action {action!r}; use helpful or unhelpful")
        fact = self._require_fact(arguments)
        change = HELPFUL if action == "helpful" else UNHELPFUL
        rated = self._store.feedback(fact.id, change)
        assert rated is not None
        return {"success": True, "fact_id": fact.id, "old_trust": round(fact.trust, 4), "trust": round(rated.trust, 4)}

    def _similar(self, fact: Fact) -> Sequence[int]:
        return [hit.fact.id for hit in self._search.search(fact.text, limit=_NEIGHBOURS)]

    def _require_fact(self, arguments: Arguments) -> Fact:
        fact_id = arguments.get("fact_id")
        if isinstance(fact_id, str) and fact_id.strip().isdigit():
            fact_id = int(fact_id)
        if isinstance(fact_id, bool) or not isinstance(fact_id, int):
            raise BadArgumentsError("give `fact_id`: the number that search and list show")
        fact = self._store.fact(fact_id) if abs(fact_id) < 2**63 else None
        if fact is None:
            raise BadArgumentsError(f"there is no fact {fact_id}; search or list shows the numbers")
        return fact

    def _require_write_access(self) -> None:
        if not self._writable:
            raise BadArgumentsError("facts cannot be changed here: this is not a conversation with the person")

    def _render_hits(self, hits: "Sequence[Hit]") -> Mapping[str, JSON]:
        names = self._store.entities_of([hit.fact.id for hit in hits])
        results: list[JSON] = [
            {**_plain(hit.fact), "score": round(hit.score, 4), "entities": names.get(hit.fact.id, [])} for hit in hits
        ]
        return {"count": len(results), "results": results}


def _schema(name: str, properties: Mapping[str, JSON], required: list[str]) -> Mapping[str, JSON]:
    text = resource_text("wellkept.providers.holographic", f"{name}.md").strip()
    parameters: Mapping[str, JSON] = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": text, "parameters": parameters}


def _plain(fact: Fact) -> dict[str, JSON]:
    return {
        "fact_id": fact.id,
        "content": fact.text,
        "category": fact.category,
        "tags": fact.tags,
        "trust": round(fact.trust, 4),
    }


def _safe(content: str) -> str:
    """Return the content with secrets redacted; reject text that looks like a prompt injection."""
    if len(content) > MAX_FACT_CHARS:
        raise BadArgumentsError(f"a fact has at most {MAX_FACT_CHARS:,} characters; store several shorter ones")
    verdict = scan(content)
    if verdict.blocked:
        raise BadArgumentsError(f"this content is not stored: it looks like an attack ({', '.join(verdict.rules)})")
    return redact(content)


def _text(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadArgumentsError(f"give `{name}`: some text")
    return value.strip()


def _optional_text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if isinstance(value, list):
        value = ", ".join(str(each) for each in value)
    if value is not None and not isinstance(value, str):
        raise BadArgumentsError(f"`{name}` is text")
    return value.strip() or None if value is not None else None


def _texts(arguments: Arguments, name: str) -> list[str]:
    value = arguments.get(name, [])
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Sequence):
        raise BadArgumentsError(f"`{name}` is a list of names")
    return [each.strip() for each in value if isinstance(each, str) and each.strip()]


def _number(arguments: Arguments, name: str) -> float | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadArgumentsError(f"`{name}` is a number")
    return float(value)


def _limit(arguments: Arguments) -> int:
    value = _number(arguments, "limit")
    return _DEFAULT_LIMIT if value is None else max(1, min(_MAX_LIMIT, int(value)))


RunTool: TypeAlias = Callable[[Mapping[str, JSON]], Mapping[str, Any]]
_COMMAND_LIMIT = 50


def commands(fact_store: RunTool) -> list[ProviderCommand]:
    """Return the commands, which use the same tool as the model."""

    def facts(words: Sequence[str]) -> CommandAnswer:
        query = " ".join(words).strip()
        action: dict[str, JSON] = {"action": "search", "query": query} if query else {"action": "list"}
        found = fact_store({**action, "limit": _COMMAND_LIMIT})
        lines = [_line(fact) for fact in found["results"]]
        return CommandAnswer("\n".join(lines) or "no facts", dict(found))

    def contradictions(_words: Sequence[str]) -> CommandAnswer:
        found = fact_store({"action": "contradict", "limit": _COMMAND_LIMIT})
        lines = [
            f"{each['reason']}\n" + "\n".join(f"  {_line(fact)}" for fact in each["facts"]) for each in found["results"]
        ]
        return CommandAnswer("\n".join(lines) or "no facts contradict each other", dict(found))

    return [
        ProviderCommand("facts", "Facts that answer the words, or the newest ones.", facts),
        ProviderCommand("contradictions", "Facts that cannot both be true.", contradictions),
    ]


def _line(fact: Mapping[str, Any]) -> str:
    return f"{fact['fact_id']:>5}  trust {fact['trust']:.2f}  {fact['content']}"


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
    stated = [
        sentence
        for sentence in sentences
        if _STATED.search(sentence) and not sentence.endswith("?") and len(sentence) <= _MAX_CHARS
    ]
    return [_LEAD.sub("", each) for each in stated]
