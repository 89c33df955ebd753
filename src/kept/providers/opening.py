"""A manager that stands alone: opened with a folder, on a database of its own there."""

from pathlib import Path

from kept.core.clock import SystemClock
from kept.core.events import Event
from kept.core.ports import EventSink
from kept.providers.audit import Audit
from kept.providers.base import StartContext
from kept.providers.manager import ProviderManager, Surroundings
from kept.providers.outbox import Outbox
from kept.providers.settings import ProviderSettings
from kept.storage.files import make_folder
from kept.storage.state import STATE_NAME, open_state


def _unheard(_event: Event) -> None:
    """Hear an event that nobody asked for."""


def open_providers(
    folder: Path | str,
    *,
    context: StartContext | None = None,
    settings: ProviderSettings | None = None,
    sink: EventSink = _unheard,
) -> ProviderManager:
    """Return a manager whose outbox and health live in `<folder>/state.db`; register providers, then start it."""
    home = Path(folder).absolute()
    make_folder(home)
    chosen, clock = settings or ProviderSettings(), SystemClock()
    database = open_state(home / STATE_NAME, sink=sink)
    around = Surroundings(context=context or StartContext(kept_home=str(home)), clock=clock, sink=sink)
    outbox = Outbox(database, clock=clock, limit=chosen.outbox_limit)
    return ProviderManager(outbox, Audit(database, clock=clock), surroundings=around, settings=chosen)
