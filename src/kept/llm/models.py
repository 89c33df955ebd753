"""The models that the settings name, built when they are asked for."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kept.core.ports import ChatModel, Completes, EventSink
from kept.llm import pricing
from kept.llm.auxiliary import Errand
from kept.llm.caching import Caching, MarksMessages, caching_for
from kept.llm.choice import Choice, Offer, Probe, choose, offers, usual_model
from kept.llm.endpoint import Endpoint, Sending
from kept.llm.local_servers import probe, window_at
from kept.llm.retry import RetryingModel, RetryPolicy
from kept.llm.sdk import warm
from kept.llm.served import Marks, ServedModel
from kept.llm.settings import AuxiliarySettings, AuxiliaryTask, ModelSettings, PromptCachingSettings
from kept.llm.vendors import EXTRACTIVE, LOCAL, SCRIPTED, VENDORS, ModelName, endpoint_of, parsed

UNKNOWN_LOCAL_WINDOW = 32_768
"""The window that is assumed of a local server that does not say."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The three sections of the configuration that are about models."""

    model: ModelSettings = field(default_factory=ModelSettings)
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    caching: PromptCachingSettings = field(default_factory=PromptCachingSettings)


class Models:
    """Builds models by name; `mark` puts the cache markers on a request."""

    def __init__(
        self,
        configured: Configured,
        environment: Mapping[str, str],
        *,
        mark: MarksMessages,
        sink: EventSink,
        probe_servers: Probe = probe,
    ) -> None:
        self._settings = configured.model
        self._auxiliary = configured.auxiliary
        self._caching = configured.caching
        self._environment = environment
        self._mark = mark
        self._sink = sink
        self._probe = probe_servers
        self._connected: dict[tuple[str, str, int, float | None], ChatModel] = {}

    def choice(self, name: str | None = None) -> Choice:
        """Return the model that is used, or would be; `name` is a person's wish for this once."""
        if name is not None:
            return Choice(str(parsed(name)).removesuffix("/"), "it was asked for")
        return choose(self._settings, self._environment, probe_servers=self._probe)

    def offers(self) -> Iterator[Offer]:
        """Yield every way to a model, open or not."""
        return offers(self._settings, self._environment, probe_servers=self._probe)

    def chat(self, name: str | None = None) -> ChatModel | None:
        """Return the model to talk with, retried and with its fallbacks; None is the extractive assistant."""
        chosen = self.choice(name)
        if chosen.is_extractive:
            return None
        first = self.bare(chosen.name, context_length=self._settings.context_length)
        return self._retrying(first, *(self.bare(other) for other in self._settings.fallbacks if other != chosen.name))

    def errand(self, task: str, main: ChatModel | None, *, sink: EventSink | None = None) -> Completes | None:
        """Return who does `task` (compression, review, title, search_summary); None when nobody can.

        Its calls are told to `sink`, so that each is counted for the conversation that made it.
        """
        model = self.own(task, main) or main
        return None if model is None else Errand(model, task=task, sink=sink or self._sink)

    def own(self, task: str, main: ChatModel | None) -> ChatModel | None:
        """Return the model that the settings name for `task` alone; None when the main model does it."""
        wanted: AuxiliaryTask = getattr(self._auxiliary, task)
        if wanted.provider in {"auto", "main"} and wanted.model is None and wanted.base_url is None:
            return None
        name = self._errand_name(wanted, main)
        if name is None:
            return None
        return self._retrying(self.bare(str(name), base_url=wanted.base_url, timeout=wanted.timeout))

    def bare(
        self,
        name: str,
        *,
        base_url: str | None = None,
        timeout: float | None = None,
        context_length: int | None = None,
    ) -> ChatModel:
        """Return one model without retries or fallbacks."""
        wanted = parsed(name)
        sending = self._sending(timeout)
        match wanted.provider:
            case "local":
                from kept.llm import local

                path = Path(wanted.model).expanduser()
                window = context_length or local.DEFAULT_CONTEXT_LENGTH
                return local.LocalModel(path, context_length=window, sending=sending)
            case "scripted":
                from kept.llm.scripted import ScriptedModel, script_of_file

                return ScriptedModel(script_of_file(Path(wanted.model)), name=str(wanted))
            case _:
                endpoint = self._endpoint(wanted, base_url)
                window = context_length or self._window(wanted, endpoint)
                # one per endpoint: conversations side by side share its open connections
                key = (str(wanted), endpoint.base_url, window, timeout)
                if key not in self._connected:
                    self._connected[key] = self._served(wanted, endpoint, window=window, sending=sending)
                return self._connected[key]

    def caching(self, name: str, *, base_url: str | None = None) -> Caching:
        """Return whether cache markers go to this model."""
        wanted = parsed(name)
        if wanted.provider not in VENDORS:
            return Caching(on=False, is_claude=False, via=wanted.provider, ttl=self._caching.cache_ttl)
        endpoint = self._endpoint(wanted, base_url)
        configured = endpoint.base_url != VENDORS[wanted.provider].base_url
        return caching_for(endpoint, wanted.model, settings=self._caching, configured=configured)

    def warm(self, name: str) -> threading.Thread:
        """Import what this model's adapter needs, in a thread, while the person types."""
        provider = parsed(name).provider
        if provider == LOCAL:
            return warm("xllamacpp")
        return warm("httpx2", VENDORS[provider].api) if provider in VENDORS else warm()

    def _served(self, wanted: ModelName, endpoint: Endpoint, *, window: int, sending: Sending) -> ChatModel:
        adapter = _adapter(wanted.provider)
        mark = self._marks(self.caching(str(wanted), base_url=endpoint.base_url), wanted.provider)
        return adapter(endpoint, wanted.model, context_length=window, sending=sending, mark=mark, sink=self._sink)

    def _marks(self, caching: Caching, provider: str) -> Marks | None:
        if not caching.on:
            return None
        native = VENDORS[provider].api == "anthropic"
        return lambda messages: self._mark(messages, ttl=caching.ttl, native=native)

    def _retrying(self, *models: ChatModel) -> ChatModel:
        policy = RetryPolicy(retries=self._settings.retries, retry_after_limit_seconds=self._settings.retry_after_limit)
        return RetryingModel(models, policy, sink=self._sink)

    def _sending(self, timeout: float | None) -> Sending:
        settings = self._settings
        return Sending(
            settings.max_output_tokens, settings.temperature, timeout or settings.timeout, settings.request_options
        )

    def _endpoint(self, wanted: ModelName, base_url: str | None) -> Endpoint:
        own = parsed(self._settings.default).provider if self._settings.default else "openai"
        configured = self._settings.base_url if wanted.provider == own else None
        return endpoint_of(wanted.provider, self._environment, base_url=base_url or configured)

    def _window(self, wanted: ModelName, endpoint: Endpoint) -> int:
        known = pricing.known_window(str(wanted))
        if known is not None:
            return known
        if wanted.provider not in pricing.AT_HOME:
            return pricing.DEFAULT_CONTEXT_LENGTH
        return window_at(wanted.provider, endpoint.base_url, wanted.model) or UNKNOWN_LOCAL_WINDOW

    def _errand_name(self, wanted: AuxiliaryTask, main: ChatModel | None) -> ModelName | None:
        if wanted.provider in {"auto", "main"}:
            provider = "openai" if main is None else parsed(main.name).provider
            if wanted.model is None:
                return None if main is None else parsed(main.name)
            full = wanted.model.partition("/")[0] in {*VENDORS, LOCAL, SCRIPTED, EXTRACTIVE}
            return parsed(wanted.model) if full else ModelName(provider, wanted.model)
        if wanted.provider == "local":
            path = wanted.model or self._settings.local_path
            return None if path is None else ModelName(LOCAL, path)
        vendor = VENDORS[wanted.provider]
        model = wanted.model or usual_model(vendor, self._environment, wanted.base_url)
        return ModelName(vendor.name, model)


def _adapter(provider: str) -> type[ServedModel]:
    match VENDORS[provider].api:
        case "anthropic":
            from kept.llm.anthropic import AnthropicModel

            return AnthropicModel
        case "openai":
            from kept.llm.openai import OpenAIModel

            return OpenAIModel
