"""The library of skills: every root read together, the first name winning."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kept.core.clock import SystemClock
from kept.core.ports import Clock
from kept.skills.document import Document, read_skill
from kept.skills.frontmatter import BadHead
from kept.skills.index import CACHE_FILE, Index, Problem, Skill, fits
from kept.skills.paths import MAIN, MOST_FILE_BYTES, MOST_FILES, files_of
from kept.skills.roots import Kind, Root, bundled_folder
from kept.skills.search import Ranked, rank
from kept.skills.settings import SkillSettings
from kept.skills.usage import OutcomeLog, UsageFile
from kept.skills.versions import Versions, fingerprint, state_of


@dataclass(frozen=True, slots=True)
class Collision:
    """Two skills of one name: the first is used, the other hidden."""

    name: str
    used: Path
    hidden: Path


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that the roots hold now."""

    skills: Mapping[str, Skill]
    problems: tuple[Problem, ...]
    collisions: tuple[Collision, ...]


class SkillLibrary:
    """The skills of one person: opens with the folder of their home and nothing else."""

    def __init__(
        self,
        path: Path | str,
        *,
        roots: Sequence[Root] | None = None,
        settings: SkillSettings | None = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.path = Path(path)
        self.settings = settings or SkillSettings()
        self.clock = clock or SystemClock()
        self.environ = environ or {}
        self.roots = tuple(roots) if roots is not None else self._own_roots()
        timeout = self.settings.lock_timeout_seconds
        self.usage = UsageFile(self.path, self.clock, timeout_seconds=timeout)
        self.outcomes = OutcomeLog(self.path, self.clock, timeout_seconds=timeout)
        self.versions = Versions(self.path, kept=self.settings.versions_kept)
        self._index = Index(self.path / CACHE_FILE)

    def _own_roots(self) -> tuple[Root, ...]:
        own = Root(self.path, Kind.HOME)
        return (own, Root(bundled_folder(), Kind.BUNDLED)) if self.settings.bundled else (own,)

    def contents(self) -> Contents:
        """Return what the roots hold now; files that did not change are not read again."""
        skills: dict[str, Skill] = {}
        problems: list[Problem] = []
        collisions: list[Collision] = []
        for root in self.roots:
            for found in self._index.scan(root):
                if isinstance(found, Problem):
                    problems.append(found)
                elif found.name in skills:
                    collisions.append(Collision(found.name, skills[found.name].folder, found.folder))
                else:
                    skills[found.name] = found
        if self.path.is_dir():
            self._index.save()
        return Contents(skills, tuple(problems), tuple(collisions))

    def skills(self) -> list[Skill]:
        """Return every skill that is offered, sorted by name."""
        disabled = set(self.settings.disabled)
        return [skill for name, skill in sorted(self.contents().skills.items()) if name not in disabled]

    def usable(self, tools: Collection[str] | None = None) -> list[Skill]:
        """Return the skills whose requirements on platform and tools are met."""
        return [skill for skill in self.skills() if fits(skill, tools=tools)]

    def skill(self, name: str) -> Skill | None:
        """Return the skill of that name, None when there is none or it is disabled."""
        return next((skill for skill in self.skills() if skill.name == name), None)

    def search(self, query: str, *, tools: Collection[str] | None = None) -> list[Ranked]:
        """Return the usable skills that fit `query`, the best first."""
        return rank(query, self.usable(tools))

    def document(self, skill: Skill) -> Document | BadHead:
        """Return the skill's document as it is on disk now."""
        return read_skill(skill.folder)

    def version(self, skill: Skill) -> str:
        """Return the short name of the state of the skill's files."""
        return fingerprint(state_of(skill.folder).files)

    def home_folder(self, name: str) -> Path | None:
        """Return the folder of a skill of the home, whatever wins its name; None when the home has none."""
        home = Root(self.path, Kind.HOME)
        for found in self._index.scan(home):
            if isinstance(found, Skill) and found.name == name:
                return found.folder
            if isinstance(found, Problem) and not found.loaded and found.path.parent.name == name:
                return found.path.parent
        return None

    def home_folders(self) -> list[Path]:
        """Return the folders of the skills that live in the home, those hidden by a name before them included."""
        home, contents = Root(self.path, Kind.HOME), self.contents()
        own = [skill.folder for skill in contents.skills.values() if skill.root == home]
        hidden = [item.hidden for item in contents.collisions if item.hidden.is_relative_to(self.path)]
        return sorted({*own, *hidden})

    def rebuild(self) -> Contents:
        """Forget what is remembered of the files and read every one again."""
        self._index.rebuild()
        return self.contents()

    def doctor(self) -> list[Problem]:
        """Return everything that is not as it should be, with the fix; reads, and writes nothing of yours."""
        contents = self.contents()
        found = list(contents.problems)
        for collision in contents.collisions:
            fix = f"rename one; {str(collision.used)!r} is used"
            found.append(Problem(collision.hidden, f"the name {collision.name!r} is taken by another skill", fix))
        for skill in contents.skills.values():
            if skill.facts.blocked:
                problem = f"the description matches the scanner's rules {', '.join(skill.facts.blocked)}"
                found.append(Problem(skill.folder / MAIN, problem, "say plainly what the skill does", loaded=True))
            found.extend(_oversized(skill.folder))
        return found


def _oversized(folder: Path) -> list[Problem]:
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
            Problem(folder, f"the skill has {len(files)} support files", f"keep at most {MOST_FILES}", loaded=True)
        )
    return found
