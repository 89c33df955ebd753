"""The members: every provider in use, asked at once, in the session that goes on."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from kept.core.text import JSON
from kept.providers.crew import Crew
from kept.providers.guarded import Outcome
from kept.providers.member import Member
from kept.providers.settings import ProviderSettings

_GRACE_SECONDS = 0.25
"""How much longer than a call's own time-out its answer is waited for, so that the call can tell of it."""


class Members:
    """The providers of one agent, in the order in which they were registered."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.crew = Crew("kept-provider")
        self.session_id = ""
        self._settings = settings
        self._all: list[Member] = []

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all)

    @property
    def names(self) -> list[str]:
        """Return their names."""
        return [each.name for each in self._all]

    def add(self, member: Member) -> None:
        """Take one in."""
        self._all.append(member)

    def enter(self, session_id: str) -> None:
        """Go on in another session."""
        self.session_id = session_id
        for each in self._all:
            each.session_id = session_id

    def ready(self, *hooks: str) -> list[Member]:
        """Return those that are started and offer one of `hooks`; without hooks all that are started."""
        offering = (each for each in self._all if not hooks or any(map(each.guarded.offers, hooks)))
        return [each for each in offering if each.guarded.ready]

    def start_all(self, work: Callable[[Member], None]) -> None:
        """Do `work` with each of them at once; one that takes longer than a start may is left behind."""
        jobs = [(each, self.crew.submit(partial(work, each))) for each in self._all]
        seconds = self._settings.start_timeout_seconds
        deadline = time.monotonic() + seconds + _GRACE_SECONDS
        for each, job in jobs:
            if not job.wait(deadline - time.monotonic()):
                each.problem = f"it did not answer within {seconds:g} s"

    def ask_all(
        self, hook: str, *args: object, session_id: str | None = None, expects: type = object, **keywords: Any
    ) -> list[Outcome]:
        """Call a hook of all that are ready at once, and return the outcomes in order, after a turn's time at most."""
        session = self.session_id if session_id is None else session_id
        pending = [
            each.guarded.begin(hook, *args, session_id=session, expects=expects, **keywords) for each in self.ready()
        ]
        return [call.wait(self._settings.prefetch_timeout_seconds) for call in pending]

    def recalled(self, query: str, *, turn: int, context: Mapping[str, JSON]) -> list[str]:
        """Begin the turn with all of them at once, and return what each recalls, after a turn's time at most."""
        deadline = time.monotonic() + self._settings.prefetch_timeout_seconds
        jobs = [
            self.crew.submit(partial(each.recalled, query, turn=turn, context=context, deadline=deadline))
            for each in self.ready("on_turn_start", "prefetch")
        ]
        return [str(job.result or "") for job in jobs if job.wait(deadline + _GRACE_SECONDS - time.monotonic())]
