"""A caller: who asks for an operation, in which session, and where the events of it go."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Self

from kept.core.errors import NotAllowed
from kept.core.events import ignore
from kept.core.ids import OWNER, SessionId, UserId

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from kept.app.root import App
    from kept.app.space import UserSpace
    from kept.core.ports import EventSink


class Scope(StrEnum):
    """What a caller may do."""

    READ = "read"
    """Look at what belongs to the user."""
    WRITE = "write"
    """Change it."""
    ADMIN = "admin"
    """Manage the home: other users, profiles, settings, whole files."""


OWNER_SCOPES = frozenset(Scope)
USER_SCOPES = frozenset({Scope.READ, Scope.WRITE})


@dataclass(frozen=True, slots=True)
class Caller:
    """One user of an open app. Every operation takes one, and reaches data only through it.

    Used as a context manager, its sink hears the user's events until the end of the block.
    """

    app: App
    space: UserSpace
    session_id: SessionId | None = None
    sink: EventSink = ignore
    scopes: frozenset[Scope] = USER_SCOPES
    _stop_listening: list[Callable[[], None]] = field(default_factory=list, repr=False)

    @property
    def user(self) -> UserId:
        """Return whose data this caller reaches."""
        return self.space.user

    @property
    def is_owner(self) -> bool:
        """Whether this is the person whose home it is."""
        return self.user == OWNER

    def require(self, scope: Scope) -> None:
        """Raise NotAllowed unless the caller has `scope`."""
        if scope not in self.scopes:
            raise NotAllowed(f"this needs the scope {scope.value!r}", "ask the owner of this home")

    def for_user(self, user: UserId) -> Caller:
        """Return a caller who acts for another user with the same scopes; needs the scope admin."""
        if user == self.user:
            return self
        self.require(Scope.ADMIN)
        return Caller(self.app, self.app.space(user), None, self.sink, self.scopes)

    def __enter__(self) -> Self:
        if self.sink is not ignore:
            self._stop_listening.append(self.space.listeners.add(self.sink, session_id=self.session_id))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._stop_listening:
            self._stop_listening.pop()()
