"""Commands of their own that the providers in use bring to the command line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kept.core.errors import KeptError, ProviderError
from kept.core.threads import start_job
from kept.providers.base import CommandAnswer, MemoryProvider, ProviderCommand, StartContext
from kept.providers.hooks import call_hook, overrides
from kept.providers.loading import load

T = TypeVar("T")
COMMAND_SECONDS = 120.0
_LOOK = "see `kept providers status`"


@dataclass(frozen=True, slots=True)
class OfferedCommand:
    """One command, and who brings it."""

    provider: MemoryProvider
    command: ProviderCommand

    @property
    def full_name(self) -> str:
        """Return the name that is clear among several providers."""
        return f"{self.provider.name}.{self.command.name}"


def find_commands(names: Sequence[str], plugins: Path, environ: Mapping[str, str]) -> list[OfferedCommand]:
    """Return what the providers of these names bring; none of them is started yet."""
    found: list[OfferedCommand] = []
    for name in names:
        provider = load(name, plugins, environ)
        if overrides(provider, "get_commands"):
            commands = _run_with_timeout(f"{name}: naming its commands", provider.get_commands)
            found += [OfferedCommand(provider, command) for command in commands]
    return found


def run_command(asked: OfferedCommand, words: Sequence[str], context: StartContext) -> CommandAnswer:
    """Start the provider, run its command with the words after its name, and stop it."""

    def run() -> CommandAnswer:
        call_hook(asked.provider, "initialize", ("cli",), context.keywords())
        try:
            return asked.command.run(words)
        finally:
            if hasattr(asked.provider, "shutdown"):
                asked.provider.shutdown()

    answer = _run_with_timeout(asked.full_name, run)
    if not isinstance(answer, CommandAnswer):
        raise ProviderError(f"{asked.full_name} did not answer with a CommandAnswer", "tell whoever wrote it")
    return answer


def _run_with_timeout(what: str, work: Callable[[], T]) -> T:
    """Return what foreign code came to; it is given a time, and whatever it raises is one line."""
    job = start_job(work, name="kept-provider-command")
    if not job.wait(COMMAND_SECONDS):
        raise ProviderError(f"{what} did not end within {COMMAND_SECONDS:g} s", _LOOK)
    if job.error is not None and not isinstance(job.error, KeptError):
        raise ProviderError(f"{what} failed: {type(job.error).__name__}: {job.error}", _LOOK)
    return job.value()
