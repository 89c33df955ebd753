"""`/api/skills` and `/api/curator`: procedures that were learned or installed."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from wellkept.core.errors import Refused
from wellkept.gateway.requests import Reader, Writer, answer, json_response, make_etag, offer, refusal
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


offer(
    router.get,
    "/skills",
    skills.list_skills,
    query=Annotated[str | None, Query(max_length=1_000)],
    category=Annotated[str | None, Query(max_length=200)],
)
offer(router.post, "/skills", skills.create_skill, Writer, status=201, body=NewSkill)
offer(router.get, "/skills/pending", skills.list_pending)
offer(router.post, "/skills/pending/{pending_id}/approve", skills.approve, Writer, pending_id=PendingId)
offer(router.post, "/skills/pending/{pending_id}/reject", skills.reject, Writer, pending_id=PendingId)
offer(router.get, "/skills/stats", skills.measure_skills)


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


offer(router.put, "/skills/{name}", skills.edit_skill, Writer, name=Name, body=SkillBody)
offer(router.delete, "/skills/{name}", skills.delete_skill, Writer, name=Name)
offer(router.get, "/skills/{name}/log", skills.read_log, name=Name)
offer(router.get, "/skills/{name}/diff", skills.diff_skill, name=Name, number=Version)
offer(router.post, "/skills/{name}/undo", skills.undo_change, Writer, name=Name, number=Version)
offer(router.post, "/skills/{name}/accept", skills.accept_skill, Writer, name=Name)
offer(router.put, "/skills/{name}/pin", curator.pin_skill, Writer, name=Name, body=PinRequest)
offer(router.get, "/curator", curator.report_status)
offer(router.post, "/curator/run", curator.run, Writer, dry_run=bool)
