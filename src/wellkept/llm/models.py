"""Chooses and builds the models: chat, auxiliary tasks, fallbacks, prompt caching."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from wellkept.core.errors import ModelBusy
from wellkept.core.ports import ChatModel, Completes, EventSink
from wellkept.llm import tokens
from wellkept.llm.endpoints import (
    EXTRACTIVE,
    KEYED,
    LOCAL,
    SCRIPTED,
    SERVERS,
    VENDORS,
    Endpoint,
    ModelName,
    Sending,
    Vendor,
    endpoint_of,
    models_at,
    parse_name,
    probe,
    window_at,
    window_behind,
)
from wellkept.llm.prompt_caching import Caching, apply_cache_markers, caching_for
from wellkept.llm.retry import AuxiliaryModel, RetryingModel, RetryPolicy
from wellkept.llm.sdk import Marks, SdkModel, preload
from wellkept.llm.settings import AuxiliarySettings, AuxiliaryTask, ModelSettings, PromptCachingSettings

UNKNOWN_LOCAL_WINDOW = 32_768
"""Assumed for a local server that does not report its context window."""


Probe = Callable[[], Mapping[str, list[str] | None]]
LISTING_SECONDS = 1.0
"""How long an endpoint may take to list its models."""


class Offer(Struct, frozen=True):
    """One model source, whether it is available, and why."""

    name: str
    """`provider/model`, or only the provider if no model is known."""
    is_available: bool
    reason: str
    models: tuple[str, ...] = ()
    """The models that the server lists, if it was queried."""


class Choice(Struct, frozen=True):
    """The model to use, and the reason."""

    name: str
    reason: str
    is_unreachable: bool = False
    """Whether the settings name a server but no model, and the server lists none."""

    @property
    def is_extractive(self) -> bool:
        """Whether there is no model at all."""
        return self.name == EXTRACTIVE


def choose(settings: ModelSettings, environment: Mapping[str, str], *, probe_servers: Probe = probe) -> Choice:
    """Return the first available model; local servers are probed only if nothing before them is available."""
    return choose_from(settings, offers(settings, environment, probe_servers=probe_servers))


def choose_from(settings: ModelSettings, found: Iterable[Offer]) -> Choice:
    """Return the configured model, else the first available one in `found`, which is read only that far.

    A server that the settings name is never replaced by another one: the person did not agree to send text there.
    """
    if settings.default is not None:
        return Choice(settings.default, "`model.default` names it")
    for offer in found:
        if offer.is_available:
            return Choice(offer.name, offer.reason)
        if settings.base_url is not None:
            return Choice(offer.name, offer.reason, is_unreachable=True)
    raise AssertionError("the last offer is always available")


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
    """Return the model to use at `vendor`; at an endpoint other than the vendor's, the first that it lists."""
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


class Configured(Struct, frozen=True):
    """The three sections of the configuration about models."""

    model: ModelSettings = field(default_factory=ModelSettings)
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    caching: PromptCachingSettings = field(default_factory=PromptCachingSettings)


class Models:
    """Builds models by name. A `given` model is used where none is named."""

    def __init__(
        self,
        configured: Configured,
        environment: Mapping[str, str],
        *,
        sink: EventSink,
        probe_servers: Probe = probe,
        given: ChatModel | None = None,
    ) -> None:
        self._settings = configured.model
        self._given = given
        self._auxiliary = configured.auxiliary
        self._caching = configured.caching
        self._environment = environment
        self._sink = sink
        self._probe = probe_servers
        self._connected: dict[tuple[str, str, int, float | None], ChatModel] = {}

    def choice(self, name: str | None = None) -> Choice:
        """Return the model to use; `name` overrides the settings. Raises ModelBusy if its server is silent."""
        if name is not None:
            return Choice(str(parse_name(name)).removesuffix("/"), "requested by name")
        chosen = choose(self._settings, self._environment, probe_servers=self._probe)
        if chosen.is_unreachable:
            raise ModelBusy(
                f"there is no model: {chosen.reason}",
                "start the server, name its model (`kept model set openai/NAME`), or answer without one (`kept model "
                "set extractive`)",
            )
        return chosen

    def offers(self) -> Iterator[Offer]:
        """Yield every model source, available or not."""
        return offers(self._settings, self._environment, probe_servers=self._probe)

    def chat(self, name: str | None = None, *, sink: EventSink | None = None) -> ChatModel | None:
        """Return the chat model with retries and fallbacks; None means the extractive assistant.

        Retries and fallbacks are reported to `sink`, because the error may quote the conversation.
        """
        if name is None and self._given is not None:
            return self._given
        chosen = self.choice(name)
        if chosen.is_extractive:
            return None
        first = self.bare(chosen.name, context_length=self._settings.context_length)
        others = (self.bare(other) for other in self._settings.fallbacks if other != chosen.name)
        return self._add_retries(first, *others, sink=sink)

    def auxiliary(self, task: str, main: ChatModel | None, *, sink: EventSink | None = None) -> Completes | None:
        """Return the model for `task` (compression, review, title, search_summary), or None if there is none.

        Reports its calls to `sink`, so that usage is counted for the conversation that caused them.
        """
        model = self.task_model(task, main, sink=sink) or main
        return None if model is None else AuxiliaryModel(model, task=task, sink=sink or self._sink)

    def task_model(self, task: str, main: ChatModel | None, *, sink: EventSink | None = None) -> ChatModel | None:
        """Return the model that the settings name for `task`, or None if the main model is used."""
        wanted: AuxiliaryTask = getattr(self._auxiliary, task)
        if wanted.provider in {"auto", "main"} and wanted.model is None and wanted.base_url is None:
            return None
        name = self._auxiliary_name(wanted, main)
        if name is None:
            return None
        return self._add_retries(self.bare(str(name), base_url=wanted.base_url, timeout=wanted.timeout), sink=sink)

    def bare(
        self, name: str, *, base_url: str | None = None, timeout: float | None = None, context_length: int | None = None
    ) -> ChatModel:
        """Return one model without retries or fallbacks."""
        wanted = parse_name(name)
        settings = self._settings
        sending = Sending(
            settings.max_output_tokens, settings.temperature, timeout or settings.timeout, settings.request_options
        )
        match wanted.provider:
            case "local":
                from wellkept.llm import local

                path = Path(wanted.model).expanduser()
                window = context_length or local.DEFAULT_CONTEXT_LENGTH
                return local.LocalModel(path, context_length=window, sending=sending)
            case "scripted":
                from wellkept.llm.scripted import ScriptedModel, script_of_file

                return ScriptedModel(script_of_file(Path(wanted.model)), name=str(wanted))
            case _:
                endpoint = self._endpoint(wanted, base_url)
                window = context_length or self._window(wanted, endpoint)
                # one per endpoint, so that concurrent conversations share its connections
                key = (str(wanted), endpoint.base_url, window, timeout)
                if key not in self._connected:
                    adapter = _adapter(wanted.provider)
                    mark = self._marks(self.caching(str(wanted), base_url=endpoint.base_url), wanted.provider)
                    self._connected[key] = adapter(
                        endpoint, wanted.model, context_length=window, sending=sending, mark=mark, sink=self._sink
                    )
                return self._connected[key]

    def caching(self, name: str, *, base_url: str | None = None) -> Caching:
        """Whether cache markers are sent to this model."""
        wanted = parse_name(name)
        if wanted.provider not in VENDORS:
            return Caching(on=False, is_claude=False, via=wanted.provider, ttl=self._caching.cache_ttl)
        endpoint = self._endpoint(wanted, base_url)
        configured = endpoint.base_url != VENDORS[wanted.provider].base_url
        return caching_for(endpoint, wanted.model, settings=self._caching, configured=configured)

    def preload(self, name: str) -> threading.Thread:
        """Import the SDK of this model in a thread, while the user types."""
        provider = parse_name(name).provider
        if provider == LOCAL:
            return preload("xllamacpp")
        return preload("httpx2", VENDORS[provider].api) if provider in VENDORS else preload()

    def _marks(self, caching: Caching, provider: str) -> Marks | None:
        if not caching.on:
            return None
        native = VENDORS[provider].api == "anthropic"
        return lambda messages: apply_cache_markers(messages, ttl=caching.ttl, native=native)

    def _add_retries(self, *models: ChatModel, sink: EventSink | None) -> ChatModel:
        policy = RetryPolicy(retries=self._settings.retries, retry_after_limit_seconds=self._settings.retry_after_limit)
        return RetryingModel(models, policy, sink=sink or self._sink)

    def _endpoint(self, wanted: ModelName, base_url: str | None) -> Endpoint:
        own = parse_name(self._settings.default).provider if self._settings.default else "openai"
        configured = self._settings.base_url if wanted.provider == own else None
        return endpoint_of(wanted.provider, self._environment, base_url=base_url or configured)

    def _window(self, wanted: ModelName, endpoint: Endpoint) -> int:
        known = tokens.known_window(str(wanted))
        if known is not None:
            return known
        if wanted.provider not in tokens.LOCAL_PROVIDERS:
            found = window_behind(endpoint.base_url, wanted.model) if endpoint.is_loopback else None
            return found or tokens.DEFAULT_CONTEXT_LENGTH
        return window_at(wanted.provider, endpoint.base_url, wanted.model) or UNKNOWN_LOCAL_WINDOW

    def _auxiliary_name(self, wanted: AuxiliaryTask, main: ChatModel | None) -> ModelName | None:
        if wanted.provider in {"auto", "main"}:
            provider = "openai" if main is None else parse_name(main.name).provider
            if wanted.model is None:
                return None if main is None else parse_name(main.name)
            full = wanted.model.partition("/")[0] in {*VENDORS, LOCAL, SCRIPTED, EXTRACTIVE}
            return parse_name(wanted.model) if full else ModelName(provider, wanted.model)
        if wanted.provider == "local":
            path = wanted.model or self._settings.local_path
            return None if path is None else ModelName(LOCAL, path)
        vendor = VENDORS[wanted.provider]
        model = wanted.model or default_model(vendor, self._environment, wanted.base_url)
        return ModelName(vendor.name, model)


def _adapter(provider: str) -> type[SdkModel]:
    match VENDORS[provider].api:
        case "anthropic":
            from wellkept.llm.anthropic import AnthropicModel

            return AnthropicModel
        case "openai":
            from wellkept.llm.openai import OpenAIModel

            return OpenAIModel
