"""The three skill tools of the agent, and the parsing of their arguments."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from wellkept.core.errors import Reason, Refused, StorageError
from wellkept.core.ids import SourceName
from wellkept.core.ports import Documents
from wellkept.core.provenance import COMMAND_SOURCE, FROM, Basis, read_source
from wellkept.core.text import JSON, is_encodable
from wellkept.core.tools import Tool, ToolContext
from wellkept.skills.approval import PendingSkills
from wellkept.skills.changes import Author, Change, Changed, Create, Delete, Edit, Patch, RemoveFile, WriteFile
from wellkept.skills.document import BadFrontmatter, compose, read_frontmatter
from wellkept.skills.editor import SkillEditor
from wellkept.skills.guard import Trust
from wellkept.skills.index import Skill, near_duplicates, rank
from wellkept.skills.library import SkillLibrary, catalogue, invocation, view, view_file
from wellkept.skills.roots import MAIN
from wellkept.skills.schema import skill_schemas
from wellkept.skills.usage import Outcome, usage_error

log = logging.getLogger(__name__)

MOST_LISTED = 50
Arguments: TypeAlias = Mapping[str, JSON]
_NEEDS = {
    "create": ("name", "content"),
    "patch": ("name", "old_string", "new_string"),
    "edit": ("name", "content"),
    "delete": ("name",),
    "write_file": ("name", "file_path", "file_content"),
    "remove_file": ("name", "file_path"),
}
_MOST_CHARS = 2_000_000
_FLAGS = frozenset({"replace_all", "confirm_new"})
_MAY_BE_EMPTY = frozenset({"new_string", "file_content"})


def read_change(arguments: Arguments) -> Change | Refused:
    """Parse the arguments of `skill_manage` into a change, or return why they are invalid."""
    action = arguments.get("action")
    if not isinstance(action, str) or action not in _NEEDS:
        error = f"{str(action)[:40]!r} is not an action" if action else "the action is missing"
        return Refused(Reason.INVALID, error, f"use one of {', '.join(_NEEDS)}", {"actions": [*_NEEDS]})
    allowed = (
        "action", "name", "content", "description", "category", "file_path", "file_content", "old_string", "new_string",
        "replace_all", "confirm_new",
    )  # fmt: skip
    refused = check_arguments(arguments, allowed, required=_NEEDS[action])
    if refused is not None:
        return refused
    return _build_change(
        action, {key: text_of(arguments, key) for key in allowed}, replace_all=arguments.get("replace_all") is True
    )


def _build_change(action: str, given: Mapping[str, str], *, replace_all: bool) -> Change:
    name = given["name"].strip()
    match action:
        case "create":
            return Create(name, _with_frontmatter(given), given["category"].strip("/ "))
        case "edit":
            return Edit(name, _with_frontmatter(given))
        case "patch":
            return Patch(
                name, given["old_string"], given["new_string"], given["file_path"] or MAIN, replace_all=replace_all
            )
        case "write_file":
            return WriteFile(name, given["file_path"], given["file_content"])
        case "remove_file":
            return RemoveFile(name, given["file_path"])
        case _:
            return Delete(name)


def _with_frontmatter(given: Mapping[str, str]) -> str:
    """Return the content; without frontmatter, prepend one made of name and description."""
    content = given["content"]
    if given["description"].strip() and not content.lstrip("\ufeff").startswith("---"):
        return compose(given["name"].strip(), given["description"], content)
    return content


def check_arguments(arguments: Arguments, allowed: tuple[str, ...], *, required: tuple[str, ...]) -> Refused | None:
    """Return why the arguments are invalid, or None."""
    unknown = sorted(set(arguments) - set(allowed))
    if unknown:
        error = f"unknown argument {unknown[0][:40]!r}"
        return Refused(Reason.INVALID, error, f"the arguments are {', '.join(allowed)}")
    for key, value in arguments.items():
        if value is None:
            continue
        wanted = bool if key in _FLAGS else str
        if not isinstance(value, wanted):
            kind = "true or false" if wanted is bool else "text"
            return Refused(Reason.INVALID, f"{key} is {type(value).__name__}", f"give {key} as {kind}")
        if isinstance(value, str) and (len(value) > _MOST_CHARS or not is_encodable(value)):
            return Refused(Reason.INVALID, f"{key} is too long or not valid Unicode", "give shorter, valid text")
    for key in required:
        if arguments.get(key) is None or (key not in _MAY_BE_EMPTY and arguments[key] == ""):
            return Refused(Reason.INVALID, f"{key} is missing", f"give {', '.join(required)}")
    return None


def text_of(arguments: Arguments, key: str) -> str:
    """Return a text argument; empty when absent."""
    value = arguments.get(key)
    return value if isinstance(value, str) else ""


class SkillTools:
    """The tools over one library, and the skills that each session's current turn has used."""

    def __init__(self, library: SkillLibrary, *, pending: Path | Documents | None = None) -> None:
        self.library = library
        self.editor = SkillEditor(library)
        folder = pending or library.path.parent / "pending" / "skills"
        self.pending = PendingSkills(folder, library.clock, days=library.settings.pending_days)
        self._used: dict[str, dict[str, str]] = {}

    def tools(self) -> list[Tool]:
        """Return the tools in a fixed order."""
        listing, viewing, managing = skill_schemas()
        return [Tool(listing, self._list), Tool(viewing, self._view), Tool(managing, self._manage, parallel=False)]

    def catalogue(self, tools: frozenset[str] | None = None) -> str:
        """Return the catalogue for the prompt; the caller freezes it for the session."""
        if not self.library.settings.enabled:
            return ""
        return catalogue(
            self.library.usable(tools), self.library.usage.read(), budget=self.library.settings.catalogue_tokens
        )

    def used(self, session_id: str | None) -> Mapping[str, str]:
        """Return the skills that the session's turn has used so far, name → version."""
        return dict(self._used.get(session_id or "", {}))

    def note_used(self, session_id: str | None, name: str, version: str) -> None:
        """Count a skill as used in the session's turn."""
        self._used.setdefault(session_id or "", {})[name] = version

    def invoke(self, name: str, *, session_id: str, runs: bool = True) -> str | Refused:
        """Return what the model gets with the message `/skill-name REQUEST`, and count a use."""
        shown = view(self.library, name, session_id=session_id)
        if isinstance(shown, Refused):
            return shown
        if runs:
            self.note_used(session_id, shown.skill.name, shown.version)
        try:
            self.library.usage.record_view(name, used=True)
        except StorageError as error:
            log.warning("use of %s not counted: %s", name, error.message)
        return invocation(shown, self.library.find_sources([shown.skill]).get(shown.skill.name))

    def settle(self, session_id: str, *, turn: int, tool_errors: int, finished: bool) -> list[str]:
        """Write an outcome row for every skill that the turn used, and return their names."""
        used = self._used.pop(session_id, {})
        self.library.outcomes.add(
            [
                Outcome(name, version, session_id, turn, tool_errors=tool_errors, finished=finished)
                for name, version in sorted(used.items())
            ]
        )
        return sorted(used)

    def record_correction(self, session_id: str, turn: int) -> None:
        """Record that the person corrected this turn, against the skills that it used."""
        self.library.outcomes.correct(session_id, turn)

    def list_foreign(self) -> Sequence[tuple[SourceName, str]]:
        """Return the descriptions of the skills that others wrote, with their sources."""
        skills = self.library.usable()
        sources = self.library.find_sources(skills)
        return [(sources[skill.name], skill.description) for skill in skills if skill.name in sources]

    def _list(self, arguments: Arguments, context: ToolContext) -> Mapping[str, JSON]:
        refused = check_arguments(arguments, ("category", "query"), required=())
        if refused is not None:
            return refused.as_json()
        category, query = text_of(arguments, "category").strip("/"), text_of(arguments, "query")
        names = context.extras.get("tools")
        usable = self.library.usable(frozenset(_texts(names)) if isinstance(names, list | tuple) else None)
        counts: dict[str, JSON] = dict(sorted(Counter(skill.category or "general" for skill in usable).items()))
        if category and category not in counts:
            error = f"there is no category {category[:80]!r}"
            return Refused(Reason.NO_MATCH, error, "choose one of the categories", {"categories": counts}).as_json()
        chosen = [skill for skill in usable if not category or (skill.category or "general") == category]
        if query.strip():
            chosen = [ranked.skill for ranked in rank(query[:2_000], chosen)]
        skills = chosen[:MOST_LISTED]
        sources = self.library.find_sources(skills)
        answer: dict[str, JSON] = {
            "success": True,
            "skills": [
                _row(skill) | ({FROM: sources[skill.name]} if skill.name in sources else {}) for skill in skills
            ],
            "count": min(len(chosen), MOST_LISTED),
            "total": len(chosen),
            "categories": counts,
            "hint": "Load one with skill_view(name).",
        }
        if len(chosen) > MOST_LISTED:
            more = len(chosen) - MOST_LISTED
            answer["hint"] = f"{more} more: narrow it with query or category. Load one with skill_view(name)."
        elif query.strip() and not chosen:
            answer["hint"] = "No skill shares a word with the query. Try other words, or work without one."
        return answer

    def _view(self, arguments: Arguments, context: ToolContext) -> Mapping[str, JSON]:
        refused = check_arguments(arguments, ("name", "file_path"), required=("name",))
        if refused is not None:
            return refused.as_json()
        name, file_path = text_of(arguments, "name").strip(), text_of(arguments, "file_path")
        self._restore_archived(name)
        if file_path and file_path != MAIN:
            shown = view_file(self.library, name, file_path, session_id=context.session_id)
        else:
            shown = view(self.library, name, session_id=context.session_id)
        if isinstance(shown, Refused):
            return shown.as_json()
        source = self.library.find_sources([shown.skill]).get(shown.skill.name)
        if source is not None:
            shown = replace(shown, answer={**shown.answer, FROM: source})
        if context.incognito:
            return shown.answer
        self.note_used(context.session_id, shown.skill.name, shown.version)
        try:
            self.library.usage.record_view(shown.skill.name, used=not file_path)
        except StorageError as error:
            warnings = shown.answer.get("warnings", [])
            assert isinstance(warnings, list)
            return {**shown.answer, "warnings": [*warnings, usage_error(error)]}
        return shown.answer

    def _restore_archived(self, name: str) -> None:
        """Restore a skill that the curator archived: it is needed after all."""
        if self.editor.archived_folder(name) is None or self.library.skill(name) is not None:
            return
        versions = [version for version in self.library.versions.of(name) if not version.voided]
        if versions and versions[-1].origin == "curator":
            self.editor.restore(name, Author("agent", reason="used again"))

    def _manage(self, arguments: Arguments, context: ToolContext) -> Mapping[str, JSON]:
        change = read_change(arguments)
        if isinstance(change, Refused):
            return change.as_json()
        if context.incognito:
            error = "skills are not changed in an incognito session"
            return Refused(Reason.NOT_ALLOWED, error, "do it in an ordinary session").as_json()
        similar = self._refuse_near_duplicate(change) if arguments.get("confirm_new") is not True else None
        if similar is not None:
            return similar.as_json()
        try:
            taint = context.find_taint(_written(change))
            # what was read in earlier turns and is not repeated did not teach the skill
            source = "" if taint is None or taint.basis is Basis.CONTEXT else taint.source
            result = self.submit(change, Author(context.origin, context.session_id, trust=Trust.AGENT, source=source))
        except StorageError as error:
            result = Refused(Reason.UNAVAILABLE, error.message, error.remedy)
        return self._answer(result) if isinstance(result, Changed) else result.as_json()

    def submit(self, change: Change, author: Author) -> Changed | Refused:
        """Make a change of an agent, or leave it to the person; the refusal then has the id of what waits."""
        waits = self._find_wait(change, author)
        if waits is None:
            result = self.editor.apply(change, author)
            if isinstance(result, Changed) or result.reason is not Reason.HELD:
                return result
            waits = result
        rules, findings = (_texts(waits.detail.get(key)) for key in ("rules", "findings"))
        waiting_id = self.pending.stage(change, author, rules=rules, findings=findings)
        remedy = "tell the person that it waits for them, who alone can decide it; continue without it"
        flag = "held" if waits.reason is Reason.HELD else "staged"
        return Refused(waits.reason, waits.error, remedy, {**waits.detail, flag: True, "pending_id": waiting_id})

    def _answer(self, result: Changed) -> Mapping[str, JSON]:
        answer: dict[str, JSON] = {
            "success": True,
            "action": result.action,
            "name": result.name,
            "change": result.number,
            "version": result.version,
            "message": result.message,
            "undo": f"kept skills undo {result.name}",
        }
        if result.warnings:
            answer["warnings"] = list(result.warnings)
        return answer

    def _find_wait(self, change: Change, author: Author) -> Refused | None:
        """Return why a change waits for a person before the guard has looked at it; None if it does not."""
        from wellkept.security.taint import find_risks

        source = read_source(author.source) if author.source else None
        if source is not None and self.library.settings.untrusted == "hold" and not source.is_own:
            why = f"it was learnt in a turn that read {source}, so it waits for the person"
            # of a command, nobody knows what its agent had read: only what could do harm waits
            if author.source != COMMAND_SOURCE or find_risks(_written(change)):
                return Refused(Reason.HELD, why, "", {"source": author.source})
        setting = self.library.settings.write_approval
        if setting == "all" or (setting == "background" and author.origin == "background_review"):
            return Refused(Reason.STAGED, "changes of skills wait for the person's approval")
        return None

    def _refuse_near_duplicate(self, change: Change) -> Refused | None:
        if not isinstance(change, Create):
            return None
        head = read_frontmatter(change.content)
        description = "" if isinstance(head, BadFrontmatter) else str(head.fields.get("description", ""))
        found = near_duplicates(
            change.name, description, self.library.skills(), threshold=self.library.settings.similar_threshold
        )
        found = [ranked for ranked in found if ranked.skill.name != change.name]
        if not found:
            return None
        rows: list[JSON] = [{**_row(ranked.skill), "likeness": ranked.score} for ranked in found[:3]]
        best = found[0].skill.name
        remedy = (
            f"patch {best!r} so that it covers this too; if it really is another task, repeat with confirm_new: true"
        )
        return Refused(Reason.INVALID, f"a skill for nearly the same task exists: {best!r}", remedy, {"similar": rows})


def _written(change: Change) -> str:
    """Return the text that a change writes, or the name of the skill that it takes something from."""
    match change:
        case Create(content=text) | Edit(content=text) | Patch(new=text) | WriteFile(content=text):
            return text
        case _:
            return change.name


def _texts(value: JSON) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


def _row(skill: Skill) -> dict[str, JSON]:
    return {"name": skill.name, "description": skill.description, "category": skill.category or "general"}
