"""Skills: list, read, write, undo, approve and check them, and bring in those from other sources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import Reason, Refused, UsageError
from wellkept.core.provenance import COMMAND_SOURCE
from wellkept.core.regular_files import load_text
from wellkept.core.values import asdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wellkept.core.ids import SessionId
    from wellkept.core.text import JSON
    from wellkept.skills.approval import PendingChange
    from wellkept.skills.changes import Author, Change, Changed
    from wellkept.skills.editor import SkillEditor
    from wellkept.skills.hub.hub import AuditResult, Hub, Offer, Prepared
    from wellkept.skills.index import Problem, Skill
    from wellkept.skills.library import View
    from wellkept.skills.usage import Stats, Use
    from wellkept.skills.versions import Version

_DRAFT_DESCRIPTION = "What it does. Use when …"
_SHOW_NAMES = "`kept skills list` shows the names"


class ListedSkill(Struct, frozen=True):
    """A skill with its usage."""

    skill: Skill
    use: Use

    def as_json(self) -> dict[str, JSON]:
        """Return what the skill is, where it is and how it was used."""
        return {
            "name": self.skill.name,
            "description": self.skill.description,
            "category": self.skill.category or "general",
            "root": str(self.skill.root.kind),
            "path": str(self.skill.folder),
            "state": str(self.use.state),
            "pinned": self.use.pinned,
            "use_count": self.use.use_count,
            "last_used_at": self.use.last_used_at,
        }


class SkillList(Struct, frozen=True):
    """Skills in the order to show them, and how many changes wait for approval."""

    skills: tuple[ListedSkill, ...]
    waiting: int

    def as_json(self) -> list[JSON]:
        """Return one object per skill."""
        return [skill.as_json() for skill in self.skills]


def list_skills(
    caller: Caller, query: str | None = None, *, category: str | None = None, usable: bool = False
) -> SkillList:
    """Return the skills that match `query`, best first, or all by name; `usable` leaves out those that cannot run."""
    from wellkept.skills.usage import Use

    tools = caller.space.skill_tools
    library = tools.library
    if query:
        found = [ranked.skill for ranked in library.search(query)]
    else:
        found = library.usable() if usable else library.skills()
    usage = library.usage.read()
    rows = [
        ListedSkill(skill, usage.get(skill.name, Use()))
        for skill in found
        if category is None or (skill.category or "general") == category
    ]
    return SkillList(tuple(rows), len(tools.pending.waiting()))


def show_skill(caller: Caller, name: str, file_path: str | None = None) -> View | Refused:
    """Return a skill or one of its files; this does not count as a use."""
    from wellkept.skills.library import view, view_file

    library = caller.space.skill_tools.library
    if file_path:
        return view_file(library, name, file_path, for_model=False)
    return view(library, name, for_model=False)


def accept_skill(caller: Caller, name: str) -> Changed | Refused:
    """Let the model use a skill that the guard finds dangerous, as long as its files stay as they are."""
    caller.require_person(f"`kept skills accept {name}`")
    return _writable(caller).accept(name, _author(caller))


def invoke_skill(caller: Caller, name: str, *, session_id: SessionId, runs: bool = True) -> str | Refused | None:
    """Return the text that adds a skill to one turn, and count a use; None if there is no such skill.

    `runs` is whether a model will follow it: only then does the turn's outcome count for the skill.
    """
    tools = caller.space.skill_tools
    if tools.library.skill(name) is None:
        return None
    return tools.invoke(name, session_id=session_id, runs=runs)


def draft_skill(name: str, description: str | None = None) -> str:
    """Return a template for a new skill."""
    from wellkept.skills.document import compose

    return compose(name, description or _DRAFT_DESCRIPTION, f"# {name}\n\n## Steps\n\n1. \n\n## Check\n\n- ")


def create_skill(
    caller: Caller, name: str, text: str, *, category: str = "", description: str | None = None
) -> Changed | Refused:
    """Write a new skill; text without frontmatter gets one when a description is given."""
    from wellkept.skills.changes import Create
    from wellkept.skills.document import compose

    if description and not text.lstrip("\ufeff").startswith("---"):
        text = compose(name, description, text)
    return _apply(caller, Create(name, text, category))


def read_skill_text(caller: Caller, name: str) -> str | Refused:
    """Return the SKILL.md of a skill as stored, including broken ones of the user."""
    from wellkept.skills.roots import MAIN

    folder = _find_folder(caller, name)
    if folder is None:
        return Refused(Reason.NO_MATCH, f"there is no skill {name!r}", _SHOW_NAMES)
    path = folder / MAIN
    try:
        return load_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}", "name a UTF-8 text file") from error


def edit_skill(caller: Caller, name: str, text: str) -> Changed | Refused:
    """Replace the SKILL.md of a skill."""
    from wellkept.skills.changes import Edit

    caller.require(Scope.WRITE)
    if _find_folder(caller, name) is None:
        return Refused(Reason.NO_MATCH, f"there is no skill {name!r}", _SHOW_NAMES)
    return _apply(caller, Edit(name, text))


def _find_folder(caller: Caller, name: str) -> Path | None:
    library = caller.space.skill_tools.library
    skill = library.skill(name)
    return skill.folder if skill is not None else library.home_folder(name)


def delete_skill(caller: Caller, name: str) -> Changed | Refused:
    """Move a skill to the archive."""
    from wellkept.skills.changes import Delete

    return _apply(caller, Delete(name))


def purge_skill(caller: Caller, name: str) -> Changed | Refused:
    """Remove a skill and all its versions permanently."""
    caller.require_person(f"`kept skills delete {name} --purge`")
    return _writable(caller).purge(name)


def trust_project(caller: Caller, folder: Path, *, trusted: bool = True) -> Path:
    """Use the skills of a project, or stop using them; return the project's resolved folder."""
    from wellkept.skills.roots import set_trust

    caller.require_person(f"`kept skills trust {folder}`")
    caller.require(Scope.WRITE)
    set_trust(caller.space.skill_tools.library.path, folder, trusted=trusted)
    return folder.resolve()


def _version_json(version: Version) -> dict[str, JSON]:
    return {
        "change": version.number,
        "time": version.time,
        "action": version.action,
        "version": version.id,
        "origin": version.origin,
        "session_id": version.session_id,
        "undoes": version.undoes,
        "files": list(version.touched),
        "reason": version.reason,
        **({"source": version.source} if version.source else {}),
    }


class SkillLog(Struct, frozen=True):
    """The changes of one skill, newest first."""

    versions: tuple[Version, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per change."""
        return [_version_json(version) for version in self.versions]


def read_log(caller: Caller, name: str) -> SkillLog | Refused:
    """Return the changes of a skill that took effect."""
    versions = _read_versions(caller, name)
    if isinstance(versions, Refused):
        return versions
    return SkillLog(tuple(version for version in reversed(versions) if not version.voided))


def _read_versions(caller: Caller, name: str) -> list[Version] | Refused:
    from wellkept.skills.document import refuse_name

    versions = [] if refuse_name(name) is not None else caller.space.skill_tools.library.versions.of(name)
    return versions or Refused(Reason.NO_MATCH, f"no change of {name!r} is recorded", _SHOW_NAMES)


class SkillDiff(Struct, frozen=True):
    """One change of a skill as a unified diff."""

    version: Version
    text: str

    def as_json(self) -> dict[str, JSON]:
        """Return the change with its diff."""
        return {**_version_json(self.version), "diff": self.text}


def diff_skill(caller: Caller, name: str, number: int | None = None) -> SkillDiff | Refused:
    """Return what a change did, by default the newest."""
    versions = _read_versions(caller, name)
    if isinstance(versions, Refused):
        return versions
    chosen = (
        versions[-1] if number is None else next((version for version in versions if version.number == number), None)
    )
    if chosen is None:
        return Refused(Reason.NO_MATCH, f"{name!r} has no change {number}", f"`kept skills log {name}` lists them")
    return SkillDiff(chosen, caller.space.skill_tools.library.versions.diff(name, chosen))


def undo_change(caller: Caller, name: str, number: int | None = None) -> Changed | Refused:
    """Undo a change, by default the newest that is not undone yet."""
    from wellkept.skills.editor import undo

    return undo(_writable(caller), name, _author(caller), number=number)


class SkillStats(Struct, frozen=True):
    """The outcomes of turns by skill version, and how often the skills were used."""

    stats: tuple[Stats, ...]
    usage: Mapping[str, Use]

    def as_json(self) -> list[JSON]:
        """Return one object per skill."""
        return [_stats_json(stat) for stat in self.stats]


def _stats_json(one: Stats) -> dict[str, JSON]:
    versions: list[JSON] = [
        {"version": item.version, "uses": item.uses, "failures": item.failures, "failure_rate": round(item.rate, 3)}
        for item in one.versions
    ]
    return {"name": one.skill, "versions": versions, "flagged": one.flagged}


def measure_skills(caller: Caller, name: str | None = None) -> SkillStats:
    """Return the outcomes of turns by version, for one skill or all."""
    library = caller.space.skill_tools.library
    stats = library.outcomes.stats(min_uses=library.settings.flag_min_uses)
    return SkillStats(tuple(one for skill, one in stats.items() if name in {None, skill}), library.usage.read())


class PendingSkillChanges(Struct, frozen=True):
    """The changes that wait for approval, oldest first."""

    changes: tuple[PendingChange, ...]

    def as_json(self) -> list[JSON]:
        """Return one object per change."""
        return [
            {
                "id": change.id,
                "created_at": change.created_at,
                "action": change.action,
                "name": change.change.name,
                "origin": change.origin,
                "rules": list(change.rules),
                "findings": list(change.findings),
                **({"source": change.source} if change.source else {}),
            }
            for change in self.changes
        ]


def list_pending(caller: Caller) -> PendingSkillChanges:
    """Return the changes that wait for approval."""
    return PendingSkillChanges(tuple(caller.space.skill_tools.pending.waiting()))


def approve(caller: Caller, pending_id: str) -> Changed | Refused:
    """Apply a pending change."""
    caller.require_person(f"`kept skills approve {pending_id}`")
    return caller.space.skill_tools.pending.approve(pending_id, _writable(caller))


class RejectedChange(Struct, frozen=True):
    """A rejected change."""

    change: PendingChange

    def as_json(self) -> dict[str, JSON]:
        """Return its id."""
        return {"success": True, "id": self.change.id}


def reject(caller: Caller, pending_id: str) -> RejectedChange | Refused:
    """Reject a pending change."""
    caller.require_person(f"`kept skills reject {pending_id}`")
    caller.require(Scope.WRITE)
    rejected = caller.space.skill_tools.pending.reject(pending_id)
    return rejected if isinstance(rejected, Refused) else RejectedChange(rejected)


class SkillProblems(Struct, frozen=True):
    """What is wrong with the skills of all roots."""

    problems: tuple[Problem, ...]

    @property
    def has_unloaded(self) -> bool:
        """Whether a skill cannot be loaded."""
        return any(not problem.loaded for problem in self.problems)

    def as_json(self) -> list[JSON]:
        """Return one object per problem."""
        return [problem.as_json() for problem in self.problems]


def check_skills(caller: Caller) -> SkillProblems:
    """Return every problem with its fix; changes nothing."""
    return SkillProblems(tuple(caller.space.skill_tools.library.doctor()))


def _apply(caller: Caller, change: Change) -> Changed | Refused:
    """Make a change; what an agent writes by a command has the limits of its tool, and a source."""
    editor, author = _writable(caller), _author(caller)
    if not caller.why_no_person:
        return editor.apply(change, author)
    return caller.space.skill_tools.submit(change, replace(author, source=COMMAND_SOURCE))


def _author(caller: Caller) -> Author:
    from wellkept.skills.changes import Author
    from wellkept.skills.guard import Trust

    if caller.why_no_person:  # what an agent writes by a command has the same limits as with its tool
        return Author("agent", caller.session_id, trust=Trust.AGENT)
    return Author("person", caller.session_id)


def _writable(caller: Caller) -> SkillEditor:
    caller.require(Scope.WRITE)
    return caller.space.skill_tools.editor


class Offers(Struct, frozen=True):
    """The skills at some sources, and the sources that did not answer."""

    sources: tuple[str, ...]
    offers: tuple[Offer, ...]
    failures: tuple[tuple[str, Refused], ...]

    def as_json(self) -> list[JSON]:
        """Return one object per skill."""
        return [asdict(offer) for offer in self.offers]


def browse(caller: Caller, source: str | None = None) -> Offers | Refused:
    """Return the skills at `source`, or at all configured sources; refused when the named source fails."""
    sources = (source,) if source else tuple(caller.app.settings.skills.hub_sources)
    offers: list[Offer] = []
    failures: list[tuple[str, Refused]] = []
    for one in sources:
        found = _hub(caller).browse(one)
        if not isinstance(found, Refused):
            offers += found
        elif source:
            return found
        else:
            failures.append((one, found))
    return Offers(sources, tuple(offers), tuple(failures))


def search(caller: Caller, query: str, source: str | None = None) -> Offers | Refused:
    """Return the skills at the sources that match `query`, best first."""
    from wellkept.skills.hub.hub import filter_offers

    found = browse(caller, source)
    if isinstance(found, Refused):
        return found
    return Offers(found.sources, tuple(filter_offers(query, found.offers)), found.failures)


def prepare(caller: Caller, source: str, *, skill: str | None = None) -> Prepared | Refused:
    """Fetch a skill, check and scan it; nothing is installed yet."""
    return _writable_hub(caller).prepare(source, skill=skill)


def install(caller: Caller, prepared: Prepared, *, category: str = "", force: bool = False) -> Changed | Refused:
    """Install a prepared skill that a person agreed to; `force` accepts a dangerous one from a local source."""
    caller.require_person("`kept skills install SOURCE`")
    return _writable_hub(caller).install(prepared, category=category, force=force)


def list_installed(caller: Caller) -> list[str]:
    """Return the names of the skills that were installed from a source."""
    return sorted(_hub(caller).lock.read())


def prepare_update(caller: Caller, name: str, *, force: bool = False) -> Prepared | Refused | None:
    """Fetch an installed skill again; None when it is up to date, refused when it was changed here."""
    return _writable_hub(caller).prepare_update(name, force=force)


def remove(caller: Caller, name: str) -> Changed | Refused:
    """Move an installed skill to the archive and forget where it came from."""
    return _writable_hub(caller).remove(name)


class HubAudit(Struct, frozen=True):
    """Every installed skill, compared with its entry in the lock file."""

    results: tuple[AuditResult, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every skill is as it was installed."""
        return all(result.clean for result in self.results)

    def as_json(self) -> list[JSON]:
        """Return one object per skill."""
        return [
            {
                "name": result.name,
                "clean": result.clean,
                "changed": list(result.changed),
                "missing": list(result.missing),
                "added": list(result.added),
                "verdict": result.verdict,
                "locked_verdict": result.locked_verdict,
                "rules": list(result.rules),
            }
            for result in self.results
        ]


def audit(caller: Caller) -> HubAudit:
    """Hash and scan every installed skill again."""
    return HubAudit(tuple(_hub(caller).audit()))


def _hub(caller: Caller) -> Hub:
    from wellkept.skills.hub.hub import Hub

    return Hub(caller.space.skill_tools.editor)


def _writable_hub(caller: Caller) -> Hub:
    caller.require(Scope.WRITE)
    return _hub(caller)
