"""Merging narrow skills into broader ones: a model proposes, a person decides."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import random_hex
from wellkept.core.ports import Completes
from wellkept.core.text import JSON, resource_text
from wellkept.core.values import asdict
from wellkept.skills.changes import Author, Changed, Create, Edit
from wellkept.skills.curator.backup import CURATOR_FOLDER, Backups
from wellkept.skills.document import Document, compose, normalize, refuse_name
from wellkept.skills.editor import SkillEditor
from wellkept.skills.guard import Danger, inspect
from wellkept.skills.index import Skill
from wellkept.skills.roots import Kind
from wellkept.storage.files import make_folder, read_bytes, write_atomically

_CHARS_PER_SKILL = 2_500
_MOST_OUTPUT_TOKENS = 8_000
_CHARS_PER_TOKEN = 3


class Merge(Struct, frozen=True):
    """Several skills that become one."""

    into: str
    sources: tuple[str, ...]
    content: str
    reason: str
    versions: dict[str, str]
    """The versions that the model read; the plan is refused when one of them has changed."""


class Plan(Struct, frozen=True):
    """The merges that a model proposed and that passed the checks; nothing is changed yet."""

    id: str
    merges: tuple[Merge, ...]
    dropped: tuple[str, ...]
    """Proposals that failed a check, with the reason."""

    def as_json(self) -> dict[str, JSON]:
        """Return the plan as JSON: names and reasons, without the texts."""
        merges: list[JSON] = [
            {"into": one.into, "from": list(one.sources), "reason": one.reason} for one in self.merges
        ]
        return {"plan": self.id, "merges": merges, "dropped": list(self.dropped)}

    def as_text(self) -> str:
        """Render the plan for the person who decides."""
        lines = [f"Plan {self.id}: {len(self.merges)} merges"]
        for merge in self.merges:
            lines += [
                f"  {', '.join(merge.sources)} → {merge.into}: {merge.reason}",
                *(f"    {line}" for line in merge.content.splitlines()),
            ]
        lines += [f"  left out: {text}" for text in self.dropped]
        return "\n".join(lines)


def propose(editor: SkillEditor, model: Completes, *, protected: Collection[str]) -> Plan | Refused:
    """Ask the model for merges, check each, save the plan and return it; changes no skill."""
    library = editor.library
    eligible = {
        skill.name: skill
        for skill in library.skills()
        if skill.root.kind is Kind.HOME and skill.name not in protected and not skill.facts.blocked
    }
    if len(eligible) < 2:
        return Refused(
            Reason.EMPTY, "there are fewer than two skills to merge", "pinned, hub and external skills are left alone"
        )
    system = resource_text("wellkept.skills.curator", "texts", "consolidate.md")
    prompt = _listing(editor, list(eligible.values()), model.context_length)
    answer = _parse_answer(model.complete(system, prompt, max_output_tokens=_MOST_OUTPUT_TOKENS))
    if answer is None:
        return Refused(Reason.INVALID, "the model's answer is not a plan", "try again, or choose another model")
    merges: list[Merge] = []
    dropped: list[str] = []
    for row in answer:
        merge = _check_proposal(
            editor, row, eligible, taken={name for done in merges for name in (*done.sources, done.into)}
        )
        if isinstance(merge, str):
            dropped.append(merge)
        else:
            merges.append(merge)
    plan = Plan(random_hex(4), tuple(merges), tuple(dropped))
    make_folder(_folder(editor))
    write_atomically(
        _folder(editor) / f"{plan.id}.json", json.dumps(asdict(plan), indent=1, ensure_ascii=False).encode()
    )
    return plan


def _listing(editor: SkillEditor, skills: Sequence[Skill], context_length: int) -> str:
    room = max(4_000, (context_length - _MOST_OUTPUT_TOKENS) * _CHARS_PER_TOKEN)
    pieces: list[str] = []
    for skill in skills:
        document = editor.library.document(skill)
        if isinstance(document, Document):
            piece = f"## {skill.name}\n{document.description}\n\n{document.body[:_CHARS_PER_SKILL]}\n"
            room -= len(piece)
            if room < 0:
                break
            pieces.append(piece)
    return "\n".join(pieces)


def _parse_answer(answer: str) -> list[dict[str, Any]] | None:
    start, end = answer.find("{"), answer.rfind("}")
    try:
        rows = json.loads(answer[start : end + 1])["merges"]
    except (ValueError, KeyError, TypeError):
        return None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else None


def _check_proposal(
    editor: SkillEditor, row: dict[str, Any], eligible: dict[str, Skill], *, taken: set[str]
) -> Merge | str:
    """Return the proposal as a merge, or why it is dropped."""
    into, sources = str(row.get("into", "")), row.get("from")
    if not isinstance(sources, list) or len(set(map(str, sources))) < 2:
        return f"{into!r}: fewer than two skills to merge"
    names = tuple(sorted({str(name) for name in sources}))
    unknown = [name for name in names if name not in eligible]
    if refuse_name(into) is not None or unknown:
        return f"{into!r}: {', '.join(unknown) or 'the name'} cannot be used"
    if taken & {*names, into} or (into not in eligible and editor.library.skill(into) is not None):
        return f"{into!r}: a skill would be merged twice, or a protected one has that name"
    content = normalize(compose(into, str(row.get("description", "")), str(row.get("body", ""))), into)
    if isinstance(content, Refused):
        return f"{into!r}: {content.error}"
    if inspect({"SKILL.md": content.encode()}).danger is Danger.DANGEROUS:
        return f"{into!r}: the guard finds the text dangerous"
    read = {name: editor.library.version(eligible[name]) for name in {*names, into} & set(eligible)}
    return Merge(into, names, content, str(row.get("reason", ""))[:300], read)


def read_plan(editor: SkillEditor, plan_id: str) -> Plan | Refused:
    """Read a saved plan."""
    path = _folder(editor) / f"{plan_id}.json"
    if not plan_id.isalnum() or not path.is_file():
        return Refused(
            Reason.NO_MATCH, f"there is no plan {plan_id[:40]!r}", "`kept curator run --consolidate` makes one"
        )
    try:
        return msgspec.json.decode(read_bytes(path) or b"", type=Plan)
    except ValueError:
        return Refused(Reason.UNAVAILABLE, f"the plan {str(path)!r} is damaged", "make a new plan")


def apply(editor: SkillEditor, plan: Plan, backups: Backups) -> list[Changed] | Refused:
    """Carry out a plan that a person agreed to; refused as a whole when one of its skills has changed."""
    library = editor.library
    for merge in plan.merges:
        for name, version in merge.versions.items():
            skill = library.skill(name)
            if skill is None or library.version(skill) != version:
                return Refused(Reason.MOVED_ON, f"{name!r} changed after the plan was made", "make a new plan")
    backups.take()
    done: list[Changed] = []
    for merge in plan.merges:
        done.extend(_merge(editor, merge))
    (_folder(editor) / f"{plan.id}.json").unlink(missing_ok=True)
    return done


def _merge(editor: SkillEditor, merge: Merge) -> list[Changed]:
    author = Author("curator", reason=f"merges {', '.join(merge.sources)}")
    exists = editor.library.home_folder(merge.into) is not None
    change = Edit(merge.into, merge.content) if exists else Create(merge.into, merge.content)
    results = [editor.apply(change, author)]
    if isinstance(results[0], Changed):
        gone = Author("curator", reason=f"merged into {merge.into}")
        results += [editor.archive(name, gone) for name in merge.sources if name != merge.into]
    return [result for result in results if isinstance(result, Changed)]


def _folder(editor: SkillEditor) -> Path:
    return editor.home / CURATOR_FOLDER / "plans"
