"""One skill as it is shown to a model or a person, and what it needs to run."""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from wellkept.core.errors import Reason, Refused
from wellkept.core.ids import SourceName
from wellkept.core.provenance import label_skill
from wellkept.core.text import JSON
from wellkept.skills.document import BadFrontmatter, Document, Field, list_items
from wellkept.skills.guard import Danger, Level, Report
from wellkept.skills.index import Skill
from wellkept.skills.library import SkillLibrary
from wellkept.skills.roots import MAIN, SUPPORT_FOLDERS, Kind, files_of, is_text, read_regular, support_file

_MOST_LISTED = 100
_VARIABLE = re.compile(r"\$\{(?:KEPT_|HERMES_|CLAUDE_)?(SKILL_DIR|SESSION_ID)\}")


class View(Struct, frozen=True):
    """The answer of `skill_view`."""

    skill: Skill
    version: str
    answer: Mapping[str, JSON]

    def as_json(self) -> dict[str, JSON]:
        """Return the answer."""
        return dict(self.answer)


def view(library: SkillLibrary, name: str, *, session_id: str | None = None, for_model: bool = True) -> View | Refused:
    """Return the body of a skill with everything needed to use it; a person sees dangerous ones too."""
    skill = _find(library, name)
    if isinstance(skill, Refused):
        return skill
    document = library.document(skill)
    if isinstance(document, BadFrontmatter):
        return Refused(Reason.UNAVAILABLE, f"{name!r} cannot be loaded: {document.problem}", document.fix)
    from wellkept.skills.guard import inspect_folder

    report = inspect_folder(skill.folder)
    blocked = _refuse_dangerous(library, skill, report, what=name) if for_model else None
    if blocked is not None:
        return blocked
    needs = readiness(document, library.environ)
    linked = linked_files(skill.folder)
    version = library.version(skill)
    warnings = [
        *document.warnings,
        *(str(finding) for finding in report.findings if finding.level is not Level.MEDIUM),
    ]
    answer: dict[str, JSON] = {
        "success": True,
        "name": skill.name,
        "description": skill.description,
        "category": skill.category,
        "version": version,
        "content": fill_variables(document.body, skill.folder, session_id),
        "linked_files": linked,
        "readiness": {
            "ready": needs.ready,
            "missing_environment_variables": needs.environment_variables,
            "missing_commands": needs.commands,
        },
        "path": str(skill.folder),
        "usage_hint": _hint(name, linked, ready=needs.ready),
    }
    if warnings:
        answer["warnings"] = warnings
    return View(skill, version, answer)


def view_file(
    library: SkillLibrary, name: str, file_path: str, *, session_id: str | None = None, for_model: bool = True
) -> View | Refused:
    """Return one support file of a skill; a binary one is only described."""
    skill = _find(library, name)
    if isinstance(skill, Refused):
        return skill
    path = support_file(skill.folder, file_path, write=False)
    if isinstance(path, Refused):
        return path
    data = read_regular(path)
    if data is None:
        files = [item for group in linked_files(skill.folder).values() for item in group]
        detail: dict[str, JSON] = {"files": files}
        return Refused(Reason.NO_MATCH, f"{name!r} has no readable file {file_path!r}", "name one of its files", detail)
    answer: dict[str, JSON] = {"success": True, "name": skill.name, "file_path": file_path, "bytes": len(data)}
    if not is_text(data):
        answer |= {"binary": True, "content": None, "path": str(path), "note": "not text; use it by its path"}
        return View(skill, library.version(skill), answer)
    from wellkept.skills.guard import inspect

    blocked = _refuse_dangerous(library, skill, inspect({file_path: data}), what=file_path) if for_model else None
    if blocked is not None:
        return blocked
    answer["content"] = fill_variables(data.decode(), skill.folder, session_id)
    return View(skill, library.version(skill), answer)


def _refuse_dangerous(library: SkillLibrary, skill: Skill, report: Report, *, what: str) -> Refused | None:
    """Return why `what` is not shown to a model: it is dangerous, and no person accepted it as it is."""
    if report.danger is not Danger.DANGEROUS or library.is_accepted(skill):
        return None
    if skill.root.kind is Kind.HOME:
        remedy = f"work without it; a person can read it with `kept skills show {skill.name}` and accept it with "
        remedy += f"`kept skills accept {skill.name}`"
    else:
        remedy = f"work without it; a person can inspect it in {str(skill.folder)!r}"
    error = f"{what!r} is not shown: the guard found {', '.join(report.rules)}"
    return Refused(Reason.BLOCKED, error, remedy, {"rules": list(report.rules)})


def _find(library: SkillLibrary, name: str) -> Skill | Refused:
    skill = library.skill(name)
    if skill is not None:
        return skill
    broken = next(
        (item for item in library.contents().problems if not item.loaded and item.path.parent.name == name), None
    )
    if broken is not None:
        return Refused(Reason.UNAVAILABLE, f"{name[:80]!r} cannot be loaded: {broken.problem}", broken.fix)
    near = [ranked.skill.name for ranked in library.search(name[:200])[:3]]
    return Refused(
        Reason.NO_MATCH, f"there is no skill {name[:80]!r}", "find it with skills_list(query=…)", {"similar": near}
    )


def fill_variables(text: str, folder: Path, session_id: str | None) -> str:
    """Fill in the template variables of `text`; without a session, its variable is left unchanged."""

    def value(found: re.Match[str]) -> str:
        return str(folder) if found[1] == "SKILL_DIR" else (session_id or found[0])

    return _VARIABLE.sub(value, text)


def linked_files(folder: Path) -> dict[str, list[str]]:
    """Return the support files by folder, the first hundred; files outside the support folders are under `other`."""
    groups: dict[str, list[str]] = {}
    for path, _status in list(files_of(folder))[:_MOST_LISTED]:
        if path == MAIN or path.startswith(".") or "/." in path:
            continue
        first = path.partition("/")[0]
        groups.setdefault(first if first in SUPPORT_FOLDERS else "other", []).append(path)
    return groups


def _hint(name: str, linked: Mapping[str, list[str]], *, ready: bool) -> str:
    hints = []
    if linked:
        hints.append(f"Read a linked file with skill_view(name={name!r}, file_path=…) when a step needs it.")
    if not ready:
        hints.append("Something it needs is missing: tell the person before you begin.")
    hints.append("If a step proves wrong or missing, fix it at once with skill_manage(action='patch').")
    return " ".join(hints)


def invocation(shown: View, source: SourceName | None) -> str:
    """Return what the model gets with the message `/skill-name REQUEST`; `source` is whose skill it is."""
    return label_skill(shown.skill.name, source, str(shown.answer["content"]).strip())


_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Readiness(Struct, frozen=True):
    """What is missing before the skill can run."""

    environment_variables: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Tell whether nothing is missing."""
        return not self.environment_variables and not self.commands


def readiness(document: Document, environ: Mapping[str, str]) -> Readiness:
    """Return the environment variables and commands that the document requires and that are missing."""
    prerequisites = document.lookup("prerequisites")
    needs = prerequisites if isinstance(prerequisites, dict) else {}
    variables = [
        *_variables(document.lookup("required_environment_variables")),
        *_variables(needs.get("env_vars", "")),
    ]
    commands = [*list_items(needs.get("commands", "")), *list_items(needs.get("bins", ""))]
    return Readiness(
        tuple(name for name in dict.fromkeys(variables) if not environ.get(name)),
        tuple(name for name in dict.fromkeys(commands) if shutil.which(name, path=environ.get("PATH")) is None),
    )


def _variables(value: Field) -> list[str]:
    """Return the names of variables; agents write them as text or as mappings with a `name`."""
    if isinstance(value, list):
        named = [item.get("name", "") if isinstance(item, dict) else item for item in value]
        return [name for name in named if isinstance(name, str) and _VARIABLE_NAME.fullmatch(name)]
    return [name for name in list_items(value) if _VARIABLE_NAME.fullmatch(name)]
