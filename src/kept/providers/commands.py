"""Commands that providers add to the command line."""

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
    """A command and the provider it belongs to."""

    provider: MemoryProvider
    command: ProviderCommand

    @property
    def full_name(self) -> str:
        """Return the name with the provider, which is unique among several providers."""
        return f"{self.provider.name}.{self.command.name}"


def find_commands(names: Sequence[str], plugins: Path, environ: Mapping[str, str]) -> list[OfferedCommand]:
    """Return the commands of the named providers, without starting these."""
    found: list[OfferedCommand] = []
    for name in names:
        provider = load(name, plugins, environ)
        if overrides(provider, "get_commands"):
            commands = _run_with_timeout(f"{name}: naming its commands", provider.get_commands)
            found += [OfferedCommand(provider, command) for command in commands]
    return found


def run_command(asked: OfferedCommand, words: Sequence[str], context: StartContext) -> CommandAnswer:
    """Start the provider, run its command with the words after its name, and shut it down."""

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
    """Run plugin code with a deadline; whatever it raises becomes a one-line ProviderError."""
    job = start_job(work, name="kept-provider-command")
    if not job.wait(COMMAND_SECONDS):
        raise ProviderError(f"{what} did not end within {COMMAND_SECONDS:g} s", _LOOK)
    if job.error is not None and not isinstance(job.error, KeptError):
        raise ProviderError(f"{what} failed: {type(job.error).__name__}: {job.error}", _LOOK)
    return job.value()
