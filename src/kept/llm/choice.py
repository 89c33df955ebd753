"""The default model: the first one that a setting, an API key or a local server makes available."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.llm.endpoints import EXTRACTIVE, KEYED, LOCAL, SERVERS, Vendor, endpoint_of, models_at, probe
from kept.llm.settings import ModelSettings

Probe = Callable[[], Mapping[str, list[str] | None]]
LISTING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Offer:
    """One model source, whether it is available, and why."""

    name: str
    """`provider/model`, or only the provider if no model is known."""
    is_available: bool
    reason: str
    models: tuple[str, ...] = ()
    """The models that the server lists, if it was queried."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The model to use, and the reason."""

    name: str
    reason: str

    @property
    def is_extractive(self) -> bool:
        """Whether there is no model at all."""
        return self.name == EXTRACTIVE


def choose(settings: ModelSettings, environment: Mapping[str, str], *, probe_servers: Probe = probe) -> Choice:
    """Return the first available model; local servers are probed only if nothing before them is available."""
    return choose_from(settings, offers(settings, environment, probe_servers=probe_servers))


def choose_from(settings: ModelSettings, found: Iterable[Offer]) -> Choice:
    """Return the configured model, else the first available one in `found`, which is read only that far."""
    if settings.default is not None:
        return Choice(settings.default, "`model.default` names it")
    offer = next(offer for offer in found if offer.is_available)
    return Choice(offer.name, offer.reason)


def offers(settings: ModelSettings, environment: Mapping[str, str], *, probe_servers: Probe = probe) -> Iterator[Offer]:
    """Yield every model source in order of preference, lazily; the last one is always available."""
    if settings.base_url is not None and settings.default is None:
        listed = tuple(models_at(settings.base_url, seconds=LISTING_SECONDS) or ())
        name = f"openai/{listed[0]}" if listed else "openai"
        reason = f"`model.base_url` is {settings.base_url}" + ("" if listed else ", but nothing there lists models")
        yield Offer(name, bool(listed), reason, listed)
    for vendor in KEYED:
        yield _offer_by_key(vendor, environment)
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
    yield _offer_gguf(settings)
    yield Offer(EXTRACTIVE, True, "works without a model")


def _offer_by_key(vendor: Vendor, environment: Mapping[str, str]) -> Offer:
    if not environment.get(vendor.key_variable or ""):
        return Offer(vendor.name, False, f"{vendor.key_variable} is not set")
    return Offer(f"{vendor.name}/{default_model(vendor, environment)}", True, f"{vendor.key_variable} is set")


def default_model(vendor: Vendor, environment: Mapping[str, str], base_url: str | None = None) -> str:
    """Return the model to use at `vendor`; an endpoint that is not the vendor's own is asked for its list."""
    endpoint = endpoint_of(vendor.name, environment, base_url=base_url)
    if endpoint.base_url == vendor.base_url or vendor.api == "anthropic":
        return vendor.default_model
    listed = models_at(endpoint.base_url, seconds=LISTING_SECONDS, key=endpoint.api_key)
    return listed[0] if listed else vendor.default_model


def _offer_gguf(settings: ModelSettings) -> Offer:
    if settings.local_path is None:
        return Offer(LOCAL, False, "`model.local_path` names no GGUF file")
    path = Path(settings.local_path).expanduser()
    if not path.is_file():
        return Offer(f"{LOCAL}/{path}", False, f"there is no file at {path}")
    return Offer(f"{LOCAL}/{path}", True, "`model.local_path` names it")
