"""Commands of their own that the providers in use bring to the command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kept.core.errors import KeptError, ProviderError
from kept.core.refusal import Reason, Refused
from kept.providers.base import CommandAnswer, MemoryProvider, ProviderCommand, StartContext
from kept.providers.calling import call_hook
from kept.providers.choosing import lend_variables
from kept.providers.crew import Crew
from kept.providers.discovery import load

COMMAND_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Offered:
    """One command, and who brings it."""

    provider: MemoryProvider
    command: ProviderCommand

    @property
    def full_name(self) -> str:
        """Return the name that is clear among several providers."""
        return f"{self.provider.name}.{self.command.name}"


def offered(names: Sequence[str], plugins: Path, environ: Mapping[str, str]) -> list[Offered]:
    """Return what the providers of these names bring; none of them is started yet."""
    found: list[Offered] = []
    for name in names:
        provider = load(name, plugins)
        lend_variables(provider, environ)
        found += [Offered(provider, command) for command in provider.get_commands()]
    return found


def answered(asked: Offered, words: Sequence[str], context: StartContext) -> CommandAnswer | Refused:
    """Start the provider, run its command with the words after its name, and stop it."""

    def run() -> CommandAnswer:
        call_hook(asked.provider, "initialize", ("cli",), context.keywords())
        try:
            return asked.command.run(words)
        finally:
            asked.provider.shutdown()

    job = Crew("kept-provider-command").submit(run)
    if not job.wait(COMMAND_SECONDS):
        return Refused(Reason.UNAVAILABLE, f"{asked.full_name} did not end within {COMMAND_SECONDS:g} s", _LOOK)
    match job.error, job.result:
        case KeptError() as error, _:
            raise error
        case BaseException() as error, _:
            raise ProviderError(f"{asked.full_name} failed: {type(error).__name__}: {error}", _LOOK)
        case _, CommandAnswer() as answer:
            return answer
        case _:
            raise ProviderError(f"{asked.full_name} did not answer with a CommandAnswer", "tell whoever wrote it")


_LOOK = "see `kept providers status`"
