"""The search by meaning that the settings ask for, with the model that makes its vectors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from kept.core.errors import UsageError

if TYPE_CHECKING:
    from kept.app.root import App
    from kept.core.ports import Embeds
    from kept.llm.endpoints import Endpoint
    from kept.sessions.settings import EmbeddingSettings
    from kept.sessions.sqlite.semantic import SemanticSearch
    from kept.storage.sqlite import Database

USUAL_MODEL = "text-embedding-3-small"
_OPENAI = "https://api.openai.com/v1"


def meaning_of(app: App, database: Database) -> SemanticSearch | None:
    """Return what searches `database` by meaning, None while vectors are off; no model is loaded yet."""
    settings = app.settings.sessions.embeddings
    if settings.provider == "off":
        return None
    from kept.sessions.sqlite.semantic import SemanticSearch

    def served(timeout: float) -> Embeds:
        from kept.llm.openai import OpenAIEmbeddings

        if find_spec("numpy") is None:
            raise UsageError("vectors are compared with numpy", "run: pip install 'kept[vectors]'")
        endpoint = _endpoint(app, settings)
        model = settings.model or _usual(endpoint)
        return OpenAIEmbeddings(
            endpoint, model, timeout_seconds=timeout, dimensions=settings.dimensions, batch=settings.batch
        )

    def local() -> Embeds:
        from kept.sessions.embedding.local import local_model

        return local_model(settings.model, app.environ)

    if settings.provider == "local":
        return SemanticSearch(database, settings, model=local, sink=app.tell)
    return SemanticSearch(
        database,
        settings,
        model=lambda: served(settings.timeout),
        question=lambda: served(settings.query_timeout),
        sink=app.tell,
    )


def _endpoint(app: App, settings: EmbeddingSettings) -> Endpoint:
    from kept.llm.endpoints import NO_KEY, Endpoint, missing_key

    url = settings.base_url or app.environ.get("OPENAI_BASE_URL") or _OPENAI
    key = app.environ.get(settings.api_key_env) or ""
    endpoint = Endpoint("openai", url, key or NO_KEY, settings.api_key_env)
    if not endpoint.is_address:
        raise UsageError(
            f"{url!r} is no address of a server", "set sessions.embeddings.base_url to one like https://host/v1"
        )
    if not key and endpoint.host == "api.openai.com":
        raise missing_key("the embeddings endpoint", settings.api_key_env)
    return endpoint


def _usual(endpoint: Endpoint) -> str:
    if endpoint.host != "api.openai.com":
        raise UsageError(
            f"which model of {endpoint.shown_url} makes the vectors is not set",
            "run: kept config set sessions.embeddings.model NAME",
        )
    return USUAL_MODEL
