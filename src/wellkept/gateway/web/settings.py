"""Settings: tokens and signed-in browsers, the size of the data, backups, and the values in use."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Path, Query, Request
from starlette.responses import Response

from wellkept.app import Scope
from wellkept.backup import backup, restore
from wellkept.core.errors import KeptError, Refused
from wellkept.gateway.requests import Admin, Reader
from wellkept.gateway.state import tokens
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, show, show_part
from wellkept.operations import profiles, sessions, upkeep, users

router = APIRouter(prefix="/settings", include_in_schema=False, dependencies=[Checked])

_THEMES = {"auto", "light", "dark"}
_YEAR = 365 * 86_400
_MOST_BACKUPS = 12


@router.get("")
def show_settings(request: Request, caller: Reader) -> Response:
    """Show what can be managed here; the owner sees tokens, sizes and backups too."""
    is_admin = Scope.ADMIN in caller.scopes
    has_store = is_admin and caller.app.has_database
    return show(
        request,
        "settings.html",
        stored=sessions.count_stored(caller),
        tokens=tokens.list_tokens(caller) if has_store else [],
        browser=tokens.BROWSER,
        people=users.list_users(caller) if has_store else [],
        has_store=has_store,
        backups=backup.list_backups(caller)[:_MOST_BACKUPS] if is_admin else [],
        history=backup.read_history(caller) if is_admin else {},
        values=profiles.show_settings(caller).as_json() if is_admin else {},
        secret=None,
    )


@router.get("/data")
def show_data(request: Request, caller: Admin) -> Response:
    """Show the size of the data; measuring a large file takes seconds, so the page does not wait for it."""
    store = upkeep.measure_store(caller).store
    if "hx-request" in request.headers:
        return show_part("settings_data.html", store=store)
    return show(request, "settings_data_page.html", title="Data", store=store)


@router.post("/theme")
def choose_theme(theme: Annotated[str, Form()]) -> Response:
    """Choose light, dark, or the system's theme; stored only in this browser."""
    chosen = theme if theme in _THEMES else "auto"
    response = go("/settings", Toast(f"Theme: {chosen}."))
    response.set_cookie("kept_theme", chosen, max_age=_YEAR, path="/", httponly=True, samesite="strict")
    return response


@router.post("/tokens")
def create_token(
    request: Request,
    caller: Admin,
    name: Annotated[str, Form(max_length=100)] = "",
    user: Annotated[str, Form(max_length=200)] = "owner",
    scope: Annotated[list[str] | None, Form()] = None,
    days: Annotated[str, Form(max_length=10)] = "",
) -> Response:
    """Create a token; its secret is shown only once, on this page."""
    try:
        valid = float(days) if days.strip() else None
        made = tokens.create_token(caller, user, name=name, scopes=scope or (), days=valid)
    except (KeptError, ValueError) as error:
        return go("/settings", Toast(str(error), is_problem=True))
    return show(request, "settings_token.html", title="New token", made=made)


@router.post("/tokens/{token_id}/revoke")
def revoke_token(caller: Admin, token_id: Annotated[str, Path(max_length=200)]) -> Response:
    """Revoke a token; requests with it fail from now on."""
    gone = tokens.revoke_token(caller, token_id)
    return go("/settings", Toast(f"The token {gone.name or gone.id} is revoked."))


@router.post("/backup")
def back_up(caller: Admin) -> Response:
    """Take a backup of the whole home now."""
    made = backup.take_backup(caller)
    if isinstance(made, Refused):
        return refuse("/settings", made)
    if made.problems:
        return go("/settings#backup", Toast(f"{made.file.name} is not whole: {made.problems[0]}", is_problem=True))
    return go("/settings", Toast(f"Backup taken: {made.file.name}, {made.archive_bytes / 1e6:,.1f} MB."))


@router.get("/restore")
def plan_restore(request: Request, caller: Admin, file: Annotated[str, Query(max_length=300)]) -> Response:
    """Show what restoring a backup would do; nothing is changed."""
    path = backup.find_backup(caller, file)
    if backup.needs_passphrase(path):
        return go("/settings#backup", Toast(f"It has a passphrase: kept restore {path}", is_problem=True))
    with restore.open_restore(caller, path) as opened:
        if isinstance(opened, Refused):
            return refuse("/settings#backup", opened)
        return show(request, "settings_restore.html", title="Restore", plan=opened.preview)


@router.post("/restore")
def apply_restore(caller: Admin, file: Annotated[str, Form(max_length=300)]) -> Response:
    """Merge a backup into this home; the current state is backed up first."""
    with restore.open_restore(caller, backup.find_backup(caller, file)) as opened:
        done = opened if isinstance(opened, Refused) else restore.apply_restore(caller, opened)
    if isinstance(done, Refused):
        return refuse("/settings#backup", done)
    if done.changes_nothing:
        return go("/settings#backup", Toast("This home already contains everything in the backup."))
    return go(
        "/settings#backup", Toast(f"Restored. The previous state is in {done.backup.name if done.backup else '–'}.")
    )
