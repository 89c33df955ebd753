"""Skills: list, usage, every version with its diff, and pending changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Form, Path, Query, Request
from starlette.responses import Response

from wellkept.core.errors import NotFound, Refused
from wellkept.gateway.requests import Reader, Writer
from wellkept.gateway.web.frame import Checked, Toast, go, refuse, show
from wellkept.operations import curator, skills

if TYPE_CHECKING:
    from wellkept.skills.changes import Changed

router = APIRouter(prefix="/skills", include_in_schema=False, dependencies=[Checked])

Name = Annotated[str, Path(max_length=200)]
Body = Annotated[str, Form(max_length=1_000_000)]


@router.get("")
def list_skills(request: Request, caller: Reader, q: Annotated[str, Query(max_length=500)] = "") -> Response:
    """Show all skills, or those that match."""
    found = skills.list_skills(caller, q or None)
    stats = {one.skill: one for one in skills.measure_skills(caller).stats}
    return show(
        request,
        "skills.html",
        skills=found.skills,
        most=max((skill.use.use_count for skill in found.skills), default=0),
        stats=stats,
        pending=skills.list_pending(caller).changes,
        asked=q,
    )


@router.get("/new")
def draft_skill(request: Request, caller: Reader) -> Response:
    """Show the form of a new skill."""
    assert caller
    return _show_editor(request, "", skills.draft_skill("new-skill"))


def _show_editor(request: Request, name: str, text: str, *, refused: Refused | None = None) -> Response:
    return show(
        request, "skill_edit.html", status=422 if refused else 200, title=name or "New skill",
        name=name, text=text, refused=refused,
    )  # fmt: skip


@router.post("/new")
def create_skill(
    request: Request, caller: Writer, name: Annotated[str, Form(max_length=200)], text: Body = ""
) -> Response:
    """Write a new skill."""
    done = skills.create_skill(caller, name.strip(), text.replace("\r\n", "\n"))
    if isinstance(done, Refused):
        return _show_editor(request, "", text, refused=done)
    return go(f"/skills/{done.name}", _tell(done))


@router.post("/pending/{pending_id}")
def decide_pending(caller: Writer, pending_id: Name, verdict: Annotated[str, Form()]) -> Response:
    """Apply or reject a pending change."""
    if verdict != "approve":
        rejected = skills.reject(caller, pending_id)
        return refuse("/skills", rejected) if isinstance(rejected, Refused) else go("/skills", Toast("Rejected."))
    done = skills.approve(caller, pending_id)
    return refuse("/skills", done) if isinstance(done, Refused) else go(f"/skills/{done.name}", _tell(done))


@router.get("/{name}")
def show_skill(
    request: Request, caller: Reader, name: Name, change: Annotated[int | None, Query(ge=1, le=2**31)] = None
) -> Response:
    """Show a skill with its versions, and what one of them changed."""
    skill = skills.show_skill(caller, name)
    text = skills.read_skill_text(caller, name)
    if isinstance(skill, Refused):
        raise NotFound(skill.error, skill.remedy)
    log = skills.read_log(caller, name)
    diff = skills.diff_skill(caller, name, change) if change is not None else None
    listed = {one.skill.name: one for one in skills.list_skills(caller).skills}
    return show(
        request,
        "skill.html",
        title=name,
        name=name,
        view=skill.as_json(),
        text="" if isinstance(text, Refused) else text,
        use=listed[name].use if name in listed else None,
        versions=() if isinstance(log, Refused) else log.versions,
        diff=None if diff is None or isinstance(diff, Refused) else diff,
        stats=next(iter(skills.measure_skills(caller, name).stats), None),
    )


@router.get("/{name}/edit")
def edit_skill(request: Request, caller: Reader, name: Name) -> Response:
    """Show the text of a skill in a form."""
    text = skills.read_skill_text(caller, name)
    if isinstance(text, Refused):
        raise NotFound(text.error, text.remedy)
    return _show_editor(request, name, text)


@router.post("/{name}/edit")
def save_skill(request: Request, caller: Writer, name: Name, text: Body = "") -> Response:
    """Replace the text of a skill."""
    done = skills.edit_skill(caller, name, text.replace("\r\n", "\n"))
    if isinstance(done, Refused):
        return _show_editor(request, name, text, refused=done)
    return go(f"/skills/{name}", _tell(done))


@router.post("/{name}/undo")
def undo_change(caller: Writer, name: Name, change: Annotated[int | None, Form()] = None) -> Response:
    """Undo a change of a skill, including its deletion."""
    done = skills.undo_change(caller, name, change)
    return refuse("/skills", done) if isinstance(done, Refused) else go(f"/skills/{name}", _tell(done))


@router.post("/{name}/pin")
def pin_skill(caller: Writer, name: Name, pinned: Annotated[str, Form()] = "") -> Response:
    """Keep the curator from archiving a skill, or allow it."""
    refused = curator.pin_skill(caller, name, pinned=bool(pinned))
    if refused is not None:
        return refuse(f"/skills/{name}", refused)
    said = "Pinned: the curator never archives it." if pinned else "Not pinned: the curator may archive it when unused."
    return go(f"/skills/{name}", Toast(said, f"/skills/{name}/pin", {} if pinned else {"pinned": "1"}))


@router.post("/{name}/delete")
def delete_skill(caller: Writer, name: Name) -> Response:
    """Move a skill to the archive; its versions stay."""
    done = skills.delete_skill(caller, name)
    return refuse(f"/skills/{name}", done) if isinstance(done, Refused) else go("/skills", _tell(done))


def _tell(done: Changed) -> Toast:
    return Toast(done.message, f"/skills/{done.name}/undo", {"change": str(done.number)})
