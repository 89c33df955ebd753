"""The library of skills from all roots (the first root with a name wins): its catalogue, and one skill as shown."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from wellkept.core.clock import SystemClock
from wellkept.core.errors import Reason, Refused, StorageError
from wellkept.core.ids import SourceName
from wellkept.core.ports import Clock, Documents
from wellkept.core.provenance import Kind as SourceKind
from wellkept.core.provenance import Source, label_skill
from wellkept.core.text import JSON, resource_text
from wellkept.skills.document import BadFrontmatter, Document, Field, list_items, read_skill
from wellkept.skills.guard import Danger, Level, Report
from wellkept.skills.index import CACHE_FILE, Index, Problem, Skill, SkillMatch, fits, rank
from wellkept.skills.roots import (
    MAIN,
    MOST_FILE_BYTES,
    MOST_FILES,
    MOST_SKILL_BYTES,
    SUPPORT_FOLDERS,
    Kind,
    Root,
    bundled_folder,
    files_of,
    is_text,
    read_regular,
    support_file,
)
from wellkept.skills.settings import SkillSettings
from wellkept.skills.usage import OutcomeLog, UsageFile, Use
from wellkept.skills.versions import Versions, fingerprint, state_of

_LINE_CHARS = 140
_OWN = frozenset({Kind.HOME, Kind.OWNER, Kind.BUNDLED})
"""The folders whose skills nobody else wrote, unless they were installed from a source."""
_GENERAL = "general"
_LEAST_LINE_TOKENS = 3


def estimate_tokens(text: str) -> int:
    """Return an upper bound of the tokens in `text` for the usual tokenisers."""
    ascii_chars = len(text.encode("ascii", "ignore"))
    return -(-ascii_chars * 10 // 34) + (len(text) - ascii_chars)


def catalogue(
    skills: Sequence[Skill], usage: Mapping[str, Use], *, budget: int, count: Callable[[str], int] = estimate_tokens
) -> str:
    """Return the block that lists the skills in at most `budget` tokens; empty when there are none.

    When not all fit, skills of the project, pinned ones and recently used ones come first; the
    rest is only counted by category.
    """
    if not skills:
        return ""
    header = resource_text("wellkept.skills", "texts", "catalogue.md").strip()
    order = _sort_by_priority(skills, usage)
    every = Counter(skill.category or _GENERAL for skill in skills)
    low, high = 0, min(len(order), budget // _LEAST_LINE_TOKENS)
    while low < high:  # binary search: the text grows with every skill listed
        middle = (low + high + 1) // 2
        if count(_render(header, order[:middle], every)) <= budget:
            low = middle
        else:
            high = middle - 1
    text = _render(header, order[:low], every)
    return text if count(text) <= budget else _count_only(header, len(skills), budget, count)


def _sort_by_priority(skills: Sequence[Skill], usage: Mapping[str, Use]) -> list[Skill]:
    """Sort skills of the project and pinned ones first, then by last use, then the rest by name."""
    never = Use()
    first: list[Skill] = []
    used: list[Skill] = []
    rest: list[Skill] = []
    for skill in sorted(skills, key=lambda skill: skill.name):
        use = usage.get(skill.name, never)
        if skill.root.kind is Kind.PROJECT or use.pinned:
            first.append(skill)
        else:
            (used if use.last_used_at else rest).append(skill)
    used.sort(key=lambda skill: usage[skill.name].last_used_at or "", reverse=True)
    return [*first, *used, *rest]


def _render(header: str, named: Sequence[Skill], every: Counter[str]) -> str:
    lines: list[str] = []
    groups: dict[str, list[Skill]] = {}
    for skill in sorted(named, key=lambda skill: skill.name):
        groups.setdefault(skill.category or _GENERAL, []).append(skill)
    for category, skills in sorted(groups.items()):
        lines.append(f"{category}:")
        lines.extend(f"- {skill.name}: {_shorten(skill.description)}" for skill in skills)
    rest = every - Counter(skill.category or _GENERAL for skill in named)
    if rest:
        listed = ", ".join(f"{category} ({number})" for category, number in sorted(rest.items()))
        lines.append(f"Not listed, found with skills_list(query=…): {listed}")
    return "\n".join([header, *lines])


def _count_only(header: str, total: int, budget: int, count: Callable[[str], int]) -> str:
    """Return only the number of skills, when the budget is too small even for the categories."""
    text = f"{header}\n{total} skills: find them with skills_list(query=…)"
    return text if count(text) <= budget else f"{total} skills: skills_list(query=…), then skill_view(name)"


def _list_installed(home: Path) -> frozenset[str] | None:
    """Return the folders of skills that were installed from a source; None if that cannot be read."""
    from wellkept.skills.hub.sources import LockFile  # most uses of a library ask for no sources

    try:
        return frozenset(str(home / row.place) for row in LockFile(home).read().values())
    except StorageError:
        return None


def _shorten(description: str) -> str:
    text = " ".join(description.split())
    return text if len(text) <= _LINE_CHARS else text[: _LINE_CHARS - 1].rstrip() + "…"


class Collision(Struct, frozen=True):
    """Two skills with the same name: the first is used, the other is hidden."""

    name: str
    used: Path
    hidden: Path


class Contents(Struct, frozen=True):
    """Everything that the roots currently hold."""

    skills: Mapping[str, Skill]
    problems: tuple[Problem, ...]
    collisions: tuple[Collision, ...]


class SkillLibrary:
    """The skills of one user.

    `path` is that user's own folder. Everything the library and its editor write goes there:
    changed skills, versions, usage, outcomes, locks and the index cache. All other roots are
    read only.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        roots: Sequence[Root] | None = None,
        settings: SkillSettings | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
        records: Documents | None = None,
    ) -> None:
        self.path = Path(path)
        self.settings = settings or SkillSettings()
        self.clock = clock or SystemClock()
        self.environ = environ or {}
        self.home = Root(self.path, Kind.HOME)
        self.roots = tuple(roots) if roots is not None else self._default_roots()
        # a second writable root would let one user change the files of another
        assert all(root == self.home for root in self.roots if root.kind is Kind.HOME), self.roots
        timeout = self.settings.lock_timeout_seconds
        # where hosts share a server, they count together
        self.usage = UsageFile(records or self.path, self.clock, timeout_seconds=timeout)
        self.outcomes = OutcomeLog(records or self.path, self.clock, timeout_seconds=timeout)
        self.versions = Versions(self.path, kept=self.settings.versions_kept)
        self._index = Index(self.path / CACHE_FILE)

    def _default_roots(self) -> tuple[Root, ...]:
        return (self.home, Root(bundled_folder(), Kind.BUNDLED)) if self.settings.bundled else (self.home,)

    def contents(self) -> Contents:
        """Return what the roots currently hold; unchanged files come from the index cache."""
        skills: dict[str, Skill] = {}
        problems: list[Problem] = []
        collisions: list[Collision] = []
        for root in self.roots:
            for found in self._index.scan(root):
                if isinstance(found, Problem):
                    problems.append(found)
                elif found.name in skills:
                    if root.kind is Kind.OWNER:
                        continue  # a user's own copy of the owner's skill is meant to hide it
                    collisions.append(Collision(found.name, skills[found.name].folder, found.folder))
                else:
                    skills[found.name] = found
        if self.path.is_dir():
            self._index.save()
        return Contents(skills, tuple(problems), tuple(collisions))

    def find_sources(self, skills: Sequence[Skill]) -> dict[str, SourceName]:
        """Return the sources of the skills that others wrote: not the user, the owner or kept itself."""
        homes = {skill.root.path for skill in skills if skill.root.kind in {Kind.HOME, Kind.OWNER}}
        installed = {home: _list_installed(home) for home in homes}
        found: dict[str, SourceName] = {}
        for skill in skills:
            places = installed.get(skill.root.path, frozenset())
            if skill.root.kind not in _OWN or places is None or skill.where in places:
                kind = SourceKind.PROJECT if skill.root.kind is Kind.PROJECT else SourceKind.FILE
                found[skill.name] = Source(kind, f"skills/{skill.name}").stored
        return found

    def skills(self) -> list[Skill]:
        """Return every skill that is not disabled, sorted by name."""
        disabled = set(self.settings.disabled)
        return [skill for name, skill in sorted(self.contents().skills.items()) if name not in disabled]

    def usable(self, tools: Collection[str] | None = None) -> list[Skill]:
        """Return the skills whose platform and tool requirements are met."""
        return [skill for skill in self.skills() if fits(skill, tools=tools)]

    def skill(self, name: str) -> Skill | None:
        """Return the skill with this name, None when it does not exist or is disabled."""
        return next((skill for skill in self.skills() if skill.name == name), None)

    def search(self, query: str, *, tools: Collection[str] | None = None) -> list[SkillMatch]:
        """Return the usable skills that match `query`, best first."""
        return rank(query, self.usable(tools))

    def document(self, skill: Skill) -> Document | BadFrontmatter:
        """Read the skill's document from disk."""
        return read_skill(skill.folder)

    def version(self, skill: Skill) -> str:
        """Return the fingerprint of the skill's files as they are on disk."""
        return fingerprint(state_of(skill.folder).files)

    def is_accepted(self, skill: Skill) -> bool:
        """Whether a person wrote or accepted exactly the files that the skill has now."""
        if skill.root.kind not in {Kind.HOME, Kind.OWNER}:
            return skill.root.kind is Kind.BUNDLED
        known = [version for version in Versions(skill.root.path).of(skill.name) if not version.voided]
        return bool(known) and known[-1].is_by_person and known[-1].id == self.version(skill)

    def home_folder(self, name: str) -> Path | None:
        """Return the folder of the user's own skill `name`, even when another root hides it; None without one."""
        for found in self._index.scan(self.home):
            if isinstance(found, Skill) and found.name == name:
                return found.folder
            if isinstance(found, Problem) and not found.loaded and found.path.parent.name == name:
                return found.path.parent
        return None

    def home_folders(self) -> list[Path]:
        """Return the folders of all the user's own skills, including those that another root hides."""
        contents = self.contents()
        own = [skill.folder for skill in contents.skills.values() if skill.root == self.home]
        hidden = [item.hidden for item in contents.collisions if item.hidden.is_relative_to(self.path)]
        return sorted({*own, *hidden})

    def rebuild(self) -> Contents:
        """Discard the index cache and read every file again."""
        self._index.rebuild()
        return self.contents()

    def doctor(self) -> list[Problem]:
        """Return every problem with its fix; changes no skill."""
        contents = self.contents()
        found = list(contents.problems)
        for collision in contents.collisions:
            fix = f"rename one of them; {str(collision.used)!r} is used"
            found.append(Problem(collision.hidden, f"the name {collision.name!r} is taken by another skill", fix))
        for skill in contents.skills.values():
            if skill.facts.blocked:
                problem = f"the description matches the scanner's rules {', '.join(skill.facts.blocked)}"
                found.append(Problem(skill.folder / MAIN, problem, "say plainly what the skill does", loaded=True))
            found.extend(_find_oversized(skill.folder))
        return found


def _find_oversized(folder: Path) -> list[Problem]:
    files = [(path, status) for path, status in files_of(folder) if path != MAIN]
    found = [
        Problem(
            folder / path,
            f"the file has {status.st_size:,} bytes",
            f"keep support files below {MOST_FILE_BYTES:,}",
            loaded=True,
        )
        for path, status in files
        if status.st_size > MOST_FILE_BYTES
    ]
    if len(files) > MOST_FILES:
        found.append(
            Problem(folder, f"the skill has {len(files):,} support files", f"keep at most {MOST_FILES:,}", loaded=True)
        )
    total = sum(status.st_size for _, status in files)
    if total > MOST_SKILL_BYTES:
        fix = f"keep all files together below {MOST_SKILL_BYTES:,}"
        found.append(Problem(folder, f"the skill has {total:,} bytes", fix, loaded=True))
    return found


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
    warnings = [*document.warnings, *(str(finding) for finding in report.findings if finding.level is not Level.MEDIUM)]
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
        """Whether nothing is missing."""
        return not self.environment_variables and not self.commands


def readiness(document: Document, environ: Mapping[str, str]) -> Readiness:
    """Return the environment variables and commands that the document requires and that are missing."""
    prerequisites = document.lookup("prerequisites")
    needs = prerequisites if isinstance(prerequisites, dict) else {}
    variables = [*_variables(document.lookup("required_environment_variables")), *_variables(needs.get("env_vars", ""))]
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
