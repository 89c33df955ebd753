"""Forgetting at providers: each is told what to delete, and asked afterwards whether it did."""

from msgspec import Struct

from wellkept.core.text import JSON
from wellkept.providers.active import RegisteredProvider
from wellkept.providers.base import ForgetRequest, Forgotten
from wellkept.providers.guard import Answered, Failed
from wellkept.security.secrets import redact

_MAX_NOTE_CHARS = 300


class ForgetAnswer(Struct, frozen=True):
    """What one provider did."""

    provider: str
    removed: int | None = None
    """How many items it deleted; None if it cannot delete or could not be reached."""
    holds: bool | None = None
    """Whether it still holds some of the content; None if it cannot tell."""
    problem: str = ""
    note: str = ""
    """What it did where it could not delete exactly what was asked for."""

    @property
    def is_gone(self) -> bool:
        """Whether the provider confirmed that nothing is left."""
        return self.removed is not None and self.holds is False

    @property
    def outcome(self) -> str:
        """Return the outcome in words."""
        if self.problem:
            return self.problem
        if self.removed is None:
            return "it cannot delete; remove the content there yourself"
        outcomes = {False: "gone", True: "it still holds the content", None: "deleted, but it cannot verify that"}
        return "; ".join(filter(None, (outcomes[self.holds], self.note)))

    def as_json(self) -> dict[str, JSON]:
        """Return the answer without any content."""
        return {"provider": self.provider, "removed": self.removed, "gone": self.is_gone, "outcome": self.outcome}


def forget_content(provider: RegisteredProvider, request: ForgetRequest, *, timeout_seconds: float) -> ForgetAnswer:
    """Tell a started provider to forget, then ask whether it did; each call has its deadline."""
    refused = _refuse(provider)
    if refused is not None:
        return refused
    removed = provider.call("forget_content", request, timeout_seconds=timeout_seconds)
    if isinstance(removed, Failed):
        return ForgetAnswer(provider.name, problem=f"it did not forget: {removed.error}")
    found = Forgotten(removed.value) if isinstance(removed.value, int) else removed.value
    if not isinstance(found, Forgotten):
        return ForgetAnswer(provider.name)
    holds = _ask(provider, request, timeout_seconds)
    return ForgetAnswer(provider.name, found.removed, holds, note=redact(found.note[:_MAX_NOTE_CHARS]))


def find_content(provider: RegisteredProvider, request: ForgetRequest, *, timeout_seconds: float) -> ForgetAnswer:
    """Ask a started provider whether it holds what `request` selects."""
    return _refuse(provider) or ForgetAnswer(provider.name, holds=_ask(provider, request, timeout_seconds))


def _refuse(provider: RegisteredProvider) -> ForgetAnswer | None:
    if not provider.guard.offers("forget_content"):
        return ForgetAnswer(provider.name)
    if not provider.guard.ready:
        problem = f"it could not be reached: {provider.problem or 'it did not start'}"
        return ForgetAnswer(provider.name, problem=problem)
    return None


def _ask(provider: RegisteredProvider, request: ForgetRequest, seconds: float) -> bool | None:
    outcome = provider.call("holds_content", request, timeout_seconds=seconds)
    return outcome.value if isinstance(outcome, Answered) and isinstance(outcome.value, bool) else None
