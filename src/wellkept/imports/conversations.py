"""The sessions of conversations from another program: creation, links, titles, excluded projects."""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from wellkept.core.clock import from_epoch
from wellkept.core.ids import MessageId, SessionId, SourceName
from wellkept.core.messages import Link, Message, NewMessage, Origin, Session, StoredMessage
from wellkept.core.provenance import accept_claim
from wellkept.formats.port import Conversation, Kind, Said
from wellkept.imports.record import Captures, Known, mark_of
from wellkept.security.taint import Flow
from wellkept.sessions.records import SALVAGED
from wellkept.storage.files import find_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wellkept.core.ports import Clock, UnitOfWork
    from wellkept.core.text import JSON
    from wellkept.sessions.ports import Sessions

EVENT_PREFIX = "event:"
"""The beginning of the external id of a message that an event gave."""
_TURN_MESSAGES = 50
"""How many stored messages are examined for the sources that a continued turn has read."""


class Opened(Struct, frozen=True):
    """The session of a conversation."""

    session_id: SessionId
    is_new: bool = False
    adopted: Known = field(default_factory=dict)
    """Messages of a session that was imported another way, by key."""
    may_hold_copies: bool = True
    """Whether the source may have given stored messages new ids."""


class Conversations:
    """Finds or creates the session of each conversation that a capture meets."""

    def __init__(
        self, store: Sessions, captures: Captures, clock: Clock, *, imported: SourceName | None = None
    ) -> None:
        self._store = store
        self._imported = imported
        """The import as the source of the messages, whatever author they name; None for a running agent."""
        self._captures = captures
        self._clock = clock
        self._facts: dict[str, Conversation] = {}
        self._changed: set[str] = set()
        self._shared: dict[str, MessageId] = {}
        self._contents: dict[SessionId, dict[int, list[StoredMessage]]] = {}
        self._opened: dict[str, Opened] = {}
        self.has_trashed = False
        """Whether messages were left out because their session is in the trash."""

    def begin_file(self) -> None:
        """Forget what belongs to one file only."""
        self._facts.clear()
        self._changed.clear()
        self._shared.clear()
        self._contents.clear()
        self._opened.clear()
        self.has_trashed = False

    def note_facts(self, conversation: Conversation) -> None:
        """Note the facts of a conversation."""
        self._facts[conversation.external_id] = conversation
        self._changed.add(conversation.external_id)

    def note_shared(self, external: str, message_id: MessageId) -> None:
        """Note a stored message that this conversation contains as well: a fork begins with copies."""
        self._shared[external] = message_id

    def open(self, unit: UnitOfWork, external: str, fresh: Sequence[Said]) -> Opened | None:
        """Return the session to store messages in, creating it if needed.

        None if it was removed here; with nothing to store no session is created.
        """
        if external in self._opened:
            return self._opened[external]
        branched = self._open_branch(unit, external, fresh)
        if branched is not None:
            self._opened[external] = branched
            return branched
        known = self._captures.session(unit, external)
        if known is None:
            if not fresh:
                message = self._store.message(self._shared[external]) if external in self._shared else None
                return None if message is None else Opened(message.session_id)
            opened: Opened | None = self._create(unit, external, fresh[0].timestamp)
        elif self._store.session(known.session_id) is None:
            self.has_trashed = self.has_trashed or known.session_id in {one.id for one in self._store.upkeep.trash()}
            return None
        else:
            opened = Opened(known.session_id)
        if opened is not None and fresh:
            self._opened[external] = opened
        return opened

    def _open_branch(self, unit: UnitOfWork, external: str, fresh: Sequence[Said]) -> Opened | None:
        """Return the session that new messages of a tree continue: that of the message before them, or a branch.

        None if nothing is known of the conversation: then its name decides.
        """
        facts = self._facts.get(external)
        shared = self._shared.get(external)
        if facts is None or not facts.is_tree or shared is None or not fresh:
            return None
        before = self._store.message(shared)
        if before is None:
            return None
        _, last = self._store.edges(before.session_id, first=0, last=1)
        if last and last[0].id == shared:
            return Opened(before.session_id, may_hold_copies=False)
        is_taken = self._captures.session(unit, external) is not None
        name = f"{external}#{fresh[0].external_id}" if is_taken else external
        self._facts[name] = replace(facts, external_id=name)
        self._shared[name] = shared
        return self._create(unit, name, fresh[0].timestamp)

    def _create(self, unit: UnitOfWork, external: str, started: float) -> Opened:
        facts = self._facts.get(external) or Conversation(external)
        now = self._clock.now().timestamp()
        moment = started or now
        session_id = SessionId(facts.session_id) if facts.session_id else self._session_id(external, moment)
        adopted: Known = {}
        waits_for = None
        is_there = self._store.session(session_id) is not None
        if is_there:
            adopted = self._adopt(unit, session_id)
            self._store.transfer.describe_salvaged(self._describe(unit, facts, session_id, moment), unit=unit)
        else:
            waits_for = self._begin(unit, facts, session_id, moment)
        title = (stored.title if (stored := self._store.session(session_id)) else None) if facts.title else None
        children = self._captures.add_session(
            unit, external, session_id, waits_for=waits_for, title=title, now=now, is_own=not is_there
        )
        for child in children:
            self._store.transfer.fill_in(child, parent=session_id, unit=unit)
        return Opened(session_id, is_new=not is_there, adopted=adopted)

    def _begin(self, unit: UnitOfWork, facts: Conversation, session_id: SessionId, moment: float) -> str | None:
        """Create the session; return the conversation that it waits to be linked to."""
        session = self._describe(unit, facts, session_id, moment)
        is_delegate = facts.kind is Kind.SUBAGENT
        origin = self._store.message(self._shared[facts.external_id]) if facts.external_id in self._shared else None
        if origin is not None and not is_delegate:
            self._store.branch(origin.session_id, at=origin.id, new=session)
        else:
            self._store.create(session)
        return facts.parent if is_delegate and session.parent_session_id is None else None

    def _describe(self, unit: UnitOfWork, facts: Conversation, session_id: SessionId, moment: float) -> Session:
        is_delegate = facts.kind is Kind.SUBAGENT
        metadata: dict[str, JSON] = {"external_id": facts.external_id, **facts.metadata}
        if facts.kind is Kind.HEADLESS:
            metadata["headless"] = True
        parent = self._captures.session(unit, facts.parent) if facts.parent else None
        return Session(
            session_id,
            "subagent" if is_delegate else facts.source or self._captures.client,
            moment,
            project=find_project(facts.folder),
            model=facts.model,
            title=facts.title,
            parent_session_id=parent.session_id if parent else None,
            link=(facts.link or (Link.DELEGATE if is_delegate else Link.BRANCH)) if parent else None,
            last_active=moment,
            metadata=metadata,
        )

    def _session_id(self, external: str, moment: float) -> SessionId:
        """Return an id that is the same whenever the conversation is captured, so that it is recognised elsewhere."""
        whole = f"{self._store.user}\0{self._captures.client}\0{external}"
        digest = hashlib.blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return SessionId(f"{from_epoch(moment):%Y%m%d_%H%M%S}_{digest}")

    def _adopt(self, unit: UnitOfWork, session_id: SessionId) -> Known:
        """Remember the messages of a session that was restored from an export."""
        adopted: Known = {}
        for message in self._store.messages(session_id):
            if message.external_id is not None:
                key, mark = self._captures.key(message.external_id), mark_of(message.message)
                self._captures.remember(unit, key, message.id, mark, is_own=False)
                adopted[key] = (message.id, mark)
        return adopted

    def update(self, unit: UnitOfWork) -> None:
        """Bring title and model of the sessions up to date where the source changed them."""
        for external in list(self._changed):
            known = self._captures.session(unit, external)
            session = self._store.session(known.session_id) if known is not None else None
            if known is None or session is None:
                continue
            self._changed.discard(external)
            facts = self._facts[external]
            if session.source == SALVAGED:
                self._store.transfer.describe_salvaged(
                    self._describe(unit, facts, session.id, session.started), unit=unit
                )
            if facts.model is not None and facts.model != session.model:
                self._store.transfer.fill_in(session.id, model=facts.model, unit=unit)
            # a title that is not the one that was captured last was chosen by a person
            if facts.title and session.title == known.title and not _is_numbered(facts.title, session.title):
                self._captures.set_title(unit, external, self._store.rename(session.id, facts.title))

    def contents(self, session_id: SessionId) -> dict[int, list[StoredMessage]]:
        """Return the messages of a session by their marks, without those that an event gave for the time being."""
        if session_id not in self._contents:
            found: dict[int, list[StoredMessage]] = {}
            for message in self._store.messages(session_id):
                if not (message.external_id or "").startswith(EVENT_PREFIX):
                    found.setdefault(mark_of(message.message), []).append(message)
            self._contents[session_id] = found
        return self._contents[session_id]

    def find_sources(self, session_id: SessionId, run: Sequence[Said]) -> list[SourceName | None]:
        """Return where the texts of new messages came from; by default, from the import."""
        facts = self._facts.get(run[0].conversation)
        flow = Flow(
            folder=(facts.folder if facts is not None else None) or "",
            imported=self._imported,
            program=self._captures.client if facts is not None and facts.kind is Kind.HEADLESS else "",
        )
        for before in self._store.edges(session_id, first=0, last=_TURN_MESSAGES)[1]:
            flow.take(before.message, before.origin)
        found = [(item.provenance, flow.take(item.message, item.origin)) for item in run]
        return [accept_claim(claimed, self._imported) if claimed else source for claimed, source in found]

    def redact(self, message: Message) -> Message:
        """Return a message as the store would keep it."""
        from wellkept.sessions.redaction import Redaction  # loads all shapes of credentials

        return Redaction().message(NewMessage(message, 0.0, Origin.SYNTHETIC)).message


def _is_numbered(title: str, stored: str | None) -> bool:
    """Whether a stored title is this one, possibly with the number that makes it unique."""
    base, _, number = (stored or "").rpartition(" #")
    return stored == title or (base == title and number.isdecimal())


def is_excluded(folder: str | None, patterns: Sequence[str], home: str) -> bool:
    """Whether a working folder is, or is below, one that the patterns name: a path, a name, or with `*` and `?`."""
    if folder is None or not patterns:
        return False
    places = [PurePath(folder), *PurePath(folder).parents]
    for pattern in patterns:
        wanted = pattern.rstrip("/") or "/"
        if wanted == "~" or wanted.startswith("~/"):
            wanted = f"{home}{wanted[1:]}"
        if "/" in wanted:
            if any(fnmatchcase(str(place), wanted) for place in places):
                return True
        elif any(fnmatchcase(place.name, wanted) for place in places):
            return True
    return False
