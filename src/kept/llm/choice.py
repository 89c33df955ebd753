"""Which model speaks when none is named: the first that a setting, a key or a local server offers."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.llm.local_servers import SERVERS, models_at, probe
from kept.llm.settings import ModelSettings
from kept.llm.vendors import EXTRACTIVE, KEYED, LOCAL, Vendor, endpoint_of

Probe = Callable[[], Mapping[str, list[str] | None]]
LISTING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to a model, open or not, and why."""

    name: str
    """`provider/model`; the provider alone where no model can be named."""
    is_open: bool
    reason: str
    models: tuple[str, ...] = ()
    """What the server lists, where it was asked."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The model to use, and why that one."""

    name: str
    reason: str

    @property
    def is_extractive(self) -> bool:
        """Say whether there is no model at all."""
        return self.name == EXTRACTIVE


def choose(settings: ModelSettings, environment: Mapping[str, str], *, probe_servers: Probe = probe) -> Choice:
    """Return the first open way; local servers are asked only when nothing before them is open."""
    return chosen(settings, offers(settings, environment, probe_servers=probe_servers))


def chosen(settings: ModelSettings, found: Iterable[Offer]) -> Choice:
    """Return what the setting names, else the first of `found` that is open; no more of it is read."""
    if settings.default is not None:
        return Choice(settings.default, "`model.default` names it")
    offer = next(offer for offer in found if offer.is_open)
    return Choice(offer.name, offer.reason)


def offers(settings: ModelSettings, environment: Mapping[str, str], *, probe_servers: Probe = probe) -> Iterator[Offer]:
    """Yield every way in order of preference, lazily; the last one is always open."""
    if settings.base_url is not None and settings.default is None:
        listed = tuple(models_at(settings.base_url, seconds=LISTING_SECONDS) or ())
        name = f"openai/{listed[0]}" if listed else "openai"
        reason = f"`model.base_url` is {settings.base_url}" + ("" if listed else ", but nothing there lists models")
        yield Offer(name, bool(listed), reason, listed)
    for vendor in KEYED:
        yield _keyed(vendor, environment)
    answers = probe_servers()
    for server in SERVERS:
        found = answers.get(server.provider)
        if found:
            yield Offer(
                f"{server.provider}/{found[0]}", True, f"{server.title} answers at {server.base_url}", tuple(found)
            )
        else:
            absent = f"nothing answers at {server.base_url}" if found is None else f"{server.title} has no model"
            yield Offer(server.provider, False, absent)
    yield _gguf(settings)
    yield Offer(EXTRACTIVE, True, "works without a model")


def _keyed(vendor: Vendor, environment: Mapping[str, str]) -> Offer:
    if not environment.get(vendor.key_variable or ""):
        return Offer(vendor.name, False, f"{vendor.key_variable} is not set")
    return Offer(f"{vendor.name}/{usual_model(vendor, environment)}", True, f"{vendor.key_variable} is set")


def usual_model(vendor: Vendor, environment: Mapping[str, str], base_url: str | None = None) -> str:
    """Return the model to use at `vendor`; an endpoint that is not the vendor's own is asked what it has."""
    endpoint = endpoint_of(vendor.name, environment, base_url=base_url)
    if endpoint.base_url == vendor.base_url or vendor.api == "anthropic":
        return vendor.usual_model
    listed = models_at(endpoint.base_url, seconds=LISTING_SECONDS, key=endpoint.api_key)
    return listed[0] if listed else vendor.usual_model


def _gguf(settings: ModelSettings) -> Offer:
    if settings.local_path is None:
        return Offer(LOCAL, False, "`model.local_path` names no GGUF file")
    path = Path(settings.local_path).expanduser()
    if not path.is_file():
        return Offer(f"{LOCAL}/{path}", False, f"there is no file at {path}")
    return Offer(f"{LOCAL}/{path}", True, "`model.local_path` names it")
