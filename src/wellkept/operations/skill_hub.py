"""Skills from other sources: browse, fetch, install, update, remove and audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from wellkept.app.caller import Scope
from wellkept.core.errors import Refused
from wellkept.core.values import asdict

if TYPE_CHECKING:
    from wellkept.app.caller import Caller
    from wellkept.core.text import JSON
    from wellkept.skills.changes import Changed
    from wellkept.skills.hub.hub import AuditResult, Hub, Offer, Prepared


class Offers(Struct, frozen=True):
    """The skills at some sources, and the sources that did not answer."""

    sources: tuple[str, ...]
    offers: tuple[Offer, ...]
    failures: tuple[tuple[str, Refused], ...]

    def as_json(self) -> list[JSON]:
        """Return one object per skill."""
        return [asdict(offer) for offer in self.offers]


def browse(caller: Caller, source: str | None = None) -> Offers | Refused:
    """Return the skills at `source`, or at all configured sources; refused when the named source fails."""
    sources = (source,) if source else tuple(caller.app.settings.skills.hub_sources)
    offers: list[Offer] = []
    failures: list[tuple[str, Refused]] = []
    for one in sources:
        found = _hub(caller).browse(one)
        if not isinstance(found, Refused):
            offers += found
        elif source:
            return found
        else:
            failures.append((one, found))
    return Offers(sources, tuple(offers), tuple(failures))


def search(caller: Caller, query: str, source: str | None = None) -> Offers | Refused:
    """Return the skills at the sources that match `query`, best first."""
    from wellkept.skills.hub.hub import filter_offers

    found = browse(caller, source)
    if isinstance(found, Refused):
        return found
    return Offers(found.sources, tuple(filter_offers(query, found.offers)), found.failures)


def prepare(caller: Caller, source: str, *, skill: str | None = None) -> Prepared | Refused:
    """Fetch a skill, check and scan it; nothing is installed yet."""
    return _writable(caller).prepare(source, skill=skill)


def install(caller: Caller, prepared: Prepared, *, category: str = "", force: bool = False) -> Changed | Refused:
    """Install a prepared skill that a person agreed to; `force` accepts a dangerous one from a local source."""
    caller.require_person("`kept skills install SOURCE`")
    return _writable(caller).install(prepared, category=category, force=force)


def list_installed(caller: Caller) -> list[str]:
    """Return the names of the skills that were installed from a source."""
    return sorted(_hub(caller).lock.read())


def prepare_update(caller: Caller, name: str, *, force: bool = False) -> Prepared | Refused | None:
    """Fetch an installed skill again; None when it is up to date, refused when it was changed here."""
    return _writable(caller).prepare_update(name, force=force)


def remove(caller: Caller, name: str) -> Changed | Refused:
    """Move an installed skill to the archive and forget where it came from."""
    return _writable(caller).remove(name)


class HubAudit(Struct, frozen=True):
    """Every installed skill, compared with its entry in the lock file."""

    results: tuple[AuditResult, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every skill is as it was installed."""
        return all(one.clean for one in self.results)

    def as_json(self) -> list[JSON]:
        """Return one object per skill."""
        return [
            {
                "name": one.name,
                "clean": one.clean,
                "changed": list(one.changed),
                "missing": list(one.missing),
                "added": list(one.added),
                "verdict": one.verdict,
                "locked_verdict": one.locked_verdict,
                "rules": list(one.rules),
            }
            for one in self.results
        ]


def audit(caller: Caller) -> HubAudit:
    """Hash and scan every installed skill again."""
    return HubAudit(tuple(_hub(caller).audit()))


def _writable(caller: Caller) -> Hub:
    caller.require(Scope.WRITE)
    return _hub(caller)


def _hub(caller: Caller) -> Hub:
    from wellkept.skills.hub.hub import Hub

    return Hub(caller.space.skill_tools.editor)
