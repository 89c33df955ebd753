"""`/api/skills` and `/api/curator`: procedures that were learned or installed."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from wellkept.core.errors import Refused
from wellkept.gateway.answers import answer, json_response, make_etag, refusal
from wellkept.gateway.requests import Reader, Writer
from wellkept.operations import curator, skills

router = APIRouter(prefix="/api", tags=["skills"])

Name = Annotated[str, Path(max_length=200)]
Version = Annotated[int | None, Query(ge=1, le=2**31)]
PendingId = Annotated[str, Path(max_length=100)]
SkillText = Annotated[str, Field(min_length=1, max_length=1_000_000)]


class NewSkill(BaseModel):
    """A skill: the text of its SKILL.md, or its body with a description."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    text: SkillText
    category: Annotated[str, Field(max_length=200)] = ""
    description: Annotated[str, Field(max_length=2_000)] | None = None


class SkillBody(BaseModel):
    """The whole text of a SKILL.md."""

    text: SkillText


class PinRequest(BaseModel):
    """Whether the curator must not archive a skill."""

    pinned: bool = True


@router.get("/skills")
def list_skills(
    caller: Reader,
    query: Annotated[str | None, Query(max_length=1_000)] = None,
    category: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Return the skills, those that match a query first."""
    return answer(skills.list_skills(caller, query, category=category))


@router.post("/skills", status_code=201)
def create_skill(caller: Writer, body: NewSkill) -> Response:
    """Write a new skill."""
    made = skills.create_skill(caller, body.name, body.text, category=body.category, description=body.description)
    return answer(made, status=201)


@router.get("/skills/pending")
def list_pending(caller: Reader) -> Response:
    """Return the changes of skills that wait for approval."""
    return answer(skills.list_pending(caller))


@router.post("/skills/pending/{pending_id}/approve")
def approve(caller: Writer, pending_id: PendingId) -> Response:
    """Apply a pending change."""
    return answer(skills.approve(caller, pending_id))


@router.post("/skills/pending/{pending_id}/reject")
def reject(caller: Writer, pending_id: PendingId) -> Response:
    """Reject a pending change."""
    return answer(skills.reject(caller, pending_id))


@router.get("/skills/stats")
def measure_skills(caller: Reader) -> Response:
    """Return how often each skill was used, and how well it worked."""
    return answer(skills.measure_skills(caller))


@router.get("/skills/{name}")
def show_skill(caller: Reader, name: Name, file: Annotated[str | None, Query(max_length=500)] = None) -> Response:
    """Return a skill, or one of its files."""
    return answer(skills.show_skill(caller, name, file))


@router.get("/skills/{name}/text")
def read_skill_text(caller: Reader, name: Name) -> Response:
    """Return the SKILL.md as it is stored."""
    text = skills.read_skill_text(caller, name)
    if isinstance(text, Refused):
        return refusal(text)
    return json_response({"name": name, "text": text}, headers={"ETag": make_etag(text)})


@router.put("/skills/{name}")
def edit_skill(caller: Writer, name: Name, body: SkillBody) -> Response:
    """Replace the SKILL.md of a skill."""
    return answer(skills.edit_skill(caller, name, body.text))


@router.delete("/skills/{name}")
def delete_skill(caller: Writer, name: Name) -> Response:
    """Delete a skill; its versions stay, so that this can be undone."""
    return answer(skills.delete_skill(caller, name))


@router.get("/skills/{name}/log")
def read_log(caller: Reader, name: Name) -> Response:
    """Return the versions of a skill."""
    return answer(skills.read_log(caller, name))


@router.get("/skills/{name}/diff")
def diff_skill(caller: Reader, name: Name, number: Version = None) -> Response:
    """Return what a version changed."""
    return answer(skills.diff_skill(caller, name, number))


@router.post("/skills/{name}/undo")
def undo_change(caller: Writer, name: Name, number: Version = None) -> Response:
    """Undo the newest change of a skill, or one of its versions."""
    return answer(skills.undo_change(caller, name, number))


@router.post("/skills/{name}/accept")
def accept_skill(caller: Writer, name: Name) -> Response:
    """Let the model use a skill that the guard finds dangerous."""
    return answer(skills.accept_skill(caller, name))


@router.put("/skills/{name}/pin")
def pin_skill(caller: Writer, name: Name, body: PinRequest) -> Response:
    """Keep a skill from being archived, or allow it again."""
    return answer(curator.pin_skill(caller, name, pinned=body.pinned))


@router.get("/curator")
def report_status(caller: Reader) -> Response:
    """Return when the curator ran, and what it would do next."""
    return answer(curator.report_status(caller))


@router.post("/curator/run")
def run(caller: Writer, dry_run: bool = False) -> Response:
    """Archive unused skills."""
    return answer(curator.run(caller, dry_run=dry_run))
