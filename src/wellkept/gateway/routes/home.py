"""The rest of `/api`: providers, usage, forgetting, tools, users, tokens, settings and checks of the home."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from wellkept.connect import status as connect_status
from wellkept.core.errors import Refused
from wellkept.core.values import asdict
from wellkept.forgetting import requests as forget_requests
from wellkept.gateway.requests import Admin, Reader, Writer, answer, json_response, offer, refusal
from wellkept.gateway.state import pairing, tokens
from wellkept.imports import sources as import_sources
from wellkept.operations import conversations, doctor, models, profiles, providers, tools, upkeep, users

router = APIRouter(prefix="/api", tags=["home"])

Days = Annotated[int, Query(ge=1, le=36_500)]
ProviderName = Annotated[str | None, Query(max_length=100)]
ItemId = Annotated[int | None, Query(ge=1, le=2**53)]
Short = Annotated[str, Field(min_length=1, max_length=500)]


class ForgetRequest(BaseModel):
    """What to forget: a session, or words; `confirm` is the token of the plan, without which nothing is removed."""

    session: Short | None = None
    query: Short | None = None
    confirm: Annotated[str, Field(max_length=500)] | None = None


class ToolRequest(BaseModel):
    """The arguments of a tool."""

    arguments: dict[str, Any] = Field(default_factory=dict)


class NewUser(BaseModel):
    """A user to create."""

    user_id: Annotated[str, Field(min_length=1, max_length=200)]


class TokenRequest(BaseModel):
    """A token to create."""

    user_id: Annotated[str, Field(min_length=1, max_length=200)] = "owner"
    name: Annotated[str, Field(max_length=100)] = ""
    scopes: Annotated[list[Literal["read", "write", "admin", "act-as"]], Field(max_length=4)] = Field(
        default_factory=list
    )
    days: Annotated[float, Field(gt=0, le=36_500)] | None = None


class PairingRequest(BaseModel):
    """The code of a person to pair; without a user, a new one is created."""

    code: Annotated[str, Field(min_length=1, max_length=100)]
    user_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None


@router.get("/providers")
def report_providers(caller: Reader) -> Response:
    """Return the external memories in use, with their health and queued writes."""
    return answer(providers.report_status(caller))


@router.get("/providers/stats")
def measure_providers(caller: Reader, days: Days = 30) -> Response:
    """Return hit rate, latency and cost of each provider."""
    return json_response([asdict(provider) for provider in providers.measure_providers(caller, days=days)])


offer(router.get, "/providers/outbox", providers.list_outbox, provider=ProviderName)


@router.post("/providers/outbox/retry")
def retry_outbox(caller: Writer, provider: ProviderName = None, item_id: ItemId = None) -> Response:
    """Deliver queued writes now."""
    return json_response({"retried": providers.retry_outbox(caller, provider=provider, item_id=item_id)})


@router.delete("/providers/outbox")
def drop_outbox(caller: Writer, provider: ProviderName = None, item_id: ItemId = None) -> Response:
    """Drop queued writes."""
    return json_response({"dropped": providers.drop_outbox(caller, provider=provider, item_id=item_id)})


offer(router.get, "/usage", models.report_usage, by=models.By, days=Annotated[int | None, Query(ge=1, le=36_500)])


@router.post("/forget")
def forget(caller: Writer, body: ForgetRequest) -> Response:
    """Plan to remove a session or words permanently; with the token of that plan, do it.

    Without the rights of a person, which no token has: leave a request that a person decides.
    """
    if caller.why_no_person and body.confirm is None:
        return answer(
            forget_requests.request_forget(caller, session=body.session, query=body.query, origin="api"), status=202
        )
    if body.confirm is None:
        return answer(forget_requests.plan_forget(caller, session=body.session, query=body.query))
    done = forget_requests.forget_confirmed(caller, body.confirm, session=body.session, query=body.query)
    return answer(done)


@router.get("/tools")
def list_tools(caller: Reader) -> Response:
    """Return the tools over the memory that other agents are given."""
    schemas = tools.list_shared_tools(has_project=tools.has_project(caller))
    return json_response(
        [
            {"name": schema.name, "description": schema.description, "parameters": dict(schema.parameters)}
            for schema in schemas
        ]
    )


@router.post("/tools/{name}")
def run_tool(caller: Reader, name: Annotated[str, Path(max_length=100)], body: ToolRequest) -> Response:
    """Run one of these tools, exactly as an agent would."""
    result = tools.run_shared_tool(caller, name, body.arguments, client="api")
    return refusal(result) if isinstance(result, Refused) else json_response(dict(result))


offer(router.get, "/stats", upkeep.measure_store)
offer(router.get, "/models", models.list_models, Admin)
offer(router.get, "/engines", conversations.list_engines)


@router.get("/connections")
def read_connections(caller: Admin) -> Response:
    """Return the state of every connected agent on this machine."""
    return answer(connect_status.read_status(caller))


offer(router.get, "/imports", import_sources.find_sources, Admin)
offer(router.get, "/users", users.list_users, Admin)
offer(router.post, "/users", users.create_user, Admin, status=201, body=NewUser)
offer(router.get, "/tokens", tokens.list_tokens, Admin)
offer(router.post, "/tokens", tokens.create_token, Admin, status=201, body=TokenRequest)
offer(router.delete, "/tokens/{token_id}", tokens.revoke_token, Admin, token_id=Annotated[str, Path(max_length=200)])
offer(router.get, "/pairings", pairing.list_pairings, Admin)
offer(router.post, "/pairings", pairing.accept_code, Admin, status=201, body=PairingRequest)
offer(
    router.delete,
    "/pairings/{platform}",
    pairing.remove_person,
    Admin,
    platform=Annotated[str, Path(max_length=200)],
    person=Annotated[str, Query(min_length=1, max_length=200)],
)
offer(router.get, "/settings", profiles.show_settings, Admin, key=Annotated[str | None, Query(max_length=200)])


@router.get("/doctor")
def check_everything(caller: Admin) -> Response:
    """Check the whole installation, without calling models or providers."""
    return answer(list(doctor.check_everything(caller, offline=True)))
