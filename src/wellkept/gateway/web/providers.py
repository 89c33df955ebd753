"""Providers: the external memories in use, their health and queue, and a set-up form from the fields they declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Form, Path, Request
from starlette.responses import Response

from wellkept.agent.offload import offload
from wellkept.core.errors import KeptError, NotFound
from wellkept.gateway.requests import Admin
from wellkept.gateway.web.frame import Checked, Toast, go, show, show_part
from wellkept.operations import providers

if TYPE_CHECKING:
    from wellkept.core.text import JSON
    from wellkept.providers.config import Field

router = APIRouter(prefix="/providers", include_in_schema=False, dependencies=[Checked])

_DAYS = 30
Name = Annotated[str, Path(max_length=100)]


@router.get("")
def show_providers(request: Request, caller: Admin) -> Response:
    """Show installed providers and queued writes; their health is loaded separately, because it is slow."""
    found = providers.find_providers(caller)
    chosen = caller.app.settings.memory.provider or []
    return show(
        request,
        "providers.html",
        installed=sorted(found.values(), key=lambda one: one.name),
        chosen=[chosen] if isinstance(chosen, str) else list(chosen),
        stats=providers.measure_providers(caller, days=_DAYS) if caller.app.has_database else [],
        outbox=providers.list_outbox(caller) if caller.app.has_database else None,
    )


@router.get("/status")
def show_status(caller: Admin) -> Response:
    """Show the health of the providers in use; loading them may take seconds."""
    return show_part("providers_status.html", found=providers.report_providers(caller))


@router.post("/off")
def switch_off(caller: Admin) -> Response:
    """Use the built-in pages only."""
    providers.switch_off(caller)
    return go("/providers", Toast("Only the built-in pages are used from the next start on. Queued writes stay."))


@router.post("/outbox/retry")
def retry_outbox(caller: Admin, item: Annotated[int | None, Form()] = None) -> Response:
    """Deliver queued writes now."""
    count = providers.retry_outbox(caller, item_id=item)
    return go("/providers", Toast(f"{count} queued write{'' if count == 1 else 's'} will be tried now."))


@router.get("/{name}")
def show_setup(request: Request, caller: Admin, name: Name) -> Response:
    """Show the set-up form of a provider."""
    return _show_form(request, caller, name)


def _show_form(
    request: Request, caller: Admin, name: str, *, given: dict[str, str] | None = None, problem: str = ""
) -> Response:
    if name not in providers.find_providers(caller):
        raise NotFound(f"there is no provider {name!r}", "see the list of providers")
    try:
        check = providers.check_provider(caller, name)
    except KeptError as error:
        check, problem = None, problem or f"{error.message} {error.remedy}"
    fields: list[Field] = []
    if check is not None and check.provider is not None:
        fields = providers.find_questions(caller, check.provider)
    return show(
        request,
        "provider_setup.html",
        status=422 if problem and given is not None else 200,
        title=name,
        name=name,
        check=check,
        fields=fields,
        given=given or {},
        problem=problem,
    )


@router.post("/{name}")
async def save_setup(request: Request, caller: Admin, name: Name) -> Response:
    """Store the answers, try the provider, and use it from the next start on."""
    form = await request.form()
    given = {key: str(value) for key, value in form.items() if key != "form_token" and str(value).strip()}
    return await offload(_save, request, caller, name, given)


def _save(request: Request, caller: Admin, name: str, given: dict[str, str]) -> Response:
    try:
        provider = providers.open_provider(caller, name)
        fields = providers.find_questions(caller, provider)
        answers: dict[str, JSON] = {}
        for field in fields:
            if field.key in given:
                answers[field.key] = _convert(field, given[field.key])
        refused = providers.save_answers(caller, provider, answers) or providers.try_provider(caller, provider)
    except KeptError as error:
        return _show_form(request, caller, name, given=given, problem=f"{error.message} {error.remedy}")
    if refused is not None:
        return _show_form(request, caller, name, given=given, problem=f"{refused.error} {refused.remedy}")
    providers.switch_on(caller, name)
    return go("/providers", Toast(f"{name} is set up and used from the next start of kept on.", "/providers/off"))


def _convert(one: Field, text: str) -> Any:
    if isinstance(one.default, bool):
        return text == "true"
    for kind in (int, float):
        if isinstance(one.default, kind):
            try:
                return kind(text)
            except ValueError:
                return text
    chosen = next((choice for choice in one.choices if str(choice) == text), None)
    return text if chosen is None else chosen


@router.post("/{name}/test")
def test_provider(caller: Admin, name: Name) -> Response:
    """Store a sentence with the provider, recall it, and remove it again."""
    try:
        trial = providers.make_round_trip(caller, name)
    except KeptError as error:
        return go(f"/providers/{name}", Toast(f"{error.message} {error.remedy}", is_problem=True))
    failed = next((step for step in trial.steps if not step.ok), None)
    if failed is not None:
        return go(f"/providers/{name}", Toast(f"{failed.step} failed: {failed.detail}", is_problem=True))
    spent = sum(step.ms for step in trial.steps)
    return go(f"/providers/{name}", Toast(f"A sentence was stored, recalled and removed again in {spent:,.0f} ms."))
