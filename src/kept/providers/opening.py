"""How a manager is opened: on a database that is there, or alone with a folder and a database of its own in it."""

from pathlib import Path

from kept.core.clock import SystemClock
from kept.core.events import ignore
from kept.core.ports import EventSink
from kept.providers.audit import Audit
from kept.providers.base import StartContext
from kept.providers.manager import ProviderManager
from kept.providers.outbox import Outbox
from kept.providers.settings import ProviderSettings
from kept.providers.surroundings import Surroundings
from kept.storage.files import make_folder
from kept.storage.sqlite import Database
from kept.storage.state import STATE_NAME, open_state


def manager_on(
    database: Database, *, surroundings: Surroundings, settings: ProviderSettings | None = None
) -> ProviderManager:
    """Return a manager whose outbox and health live in `database`."""
    chosen, clock = settings or ProviderSettings(), surroundings.clock
    return ProviderManager(
        Outbox(database, clock=clock, limit=chosen.outbox_limit),
        Audit(database, clock=clock, keep_days=chosen.audit_days),
        surroundings=surroundings,
        settings=chosen,
    )


def open_providers(
    folder: Path | str,
    *,
    context: StartContext | None = None,
    settings: ProviderSettings | None = None,
    sink: EventSink = ignore,
) -> ProviderManager:
    """Return a manager whose outbox and health live in `<folder>/state.db`; register providers, then start it."""
    home = Path(folder).absolute()
    make_folder(home)
    around = Surroundings(context=context or StartContext(kept_home=str(home)), clock=SystemClock(), sink=sink)
    return manager_on(open_state(home / STATE_NAME, sink=sink), surroundings=around, settings=settings)
