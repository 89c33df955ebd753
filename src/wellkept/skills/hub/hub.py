"""Installing, updating, removing and auditing skills from other sources."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from wellkept.core.clock import iso
from wellkept.core.errors import Reason, Refused
from wellkept.core.text import JSON
from wellkept.skills.changes import Author, Changed
from wellkept.skills.document import refuse_name
from wellkept.skills.editor import SkillEditor
from wellkept.skills.guard import Danger, Level, Policy, Report, Trust, abilities, inspect, inspect_folder, policy
from wellkept.skills.hub.fetch import FetchLimits, Package, check_package, choose_skill, fetch, read_index, skills_below
from wellkept.skills.hub.sources import (
    HUB_FOLDER,
    Installed,
    LockFile,
    Source,
    WellKnown,
    is_from,
    parse_source,
    uses_network,
)
from wellkept.skills.index import terms
from wellkept.skills.roots import files_of, read_regular
from wellkept.skills.versions import digest
from wellkept.storage.files import open_scratch, remove_unfinished


class Offer(Struct, frozen=True):
    """A skill that could be installed."""

    name: str
    description: str
    source: str


class Prepared(Struct, frozen=True):
    """A skill that was fetched, checked and scanned, and waits for a person's consent."""

    source: str
    revision: str
    network: bool
    trust: Trust
    package: Package
    report: Report

    @property
    def policy(self) -> Policy:
        """Return the policy for it, which a person may override."""
        return policy(self.trust, self.report.danger)

    def is_blocked(self, *, force: bool) -> bool:
        """Whether it cannot be installed; `force` accepts a dangerous skill from a local source only."""
        return self.policy is Policy.BLOCK and not (force and not self.network)

    def needs_an_answer(self, *, force: bool) -> bool:
        """Whether a person must decide about this very skill: for a caution, a general yes is not enough."""
        return self.policy is not Policy.ALLOW and not force

    @property
    def abilities(self) -> tuple[str, ...]:
        """Describe in plain words what its scripts may do."""
        return abilities(self.package.files)


class AuditResult(Struct, frozen=True):
    """An installed skill compared with its entry in the lock file."""

    name: str
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]
    verdict: str
    locked_verdict: str
    rules: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether every byte is as installed and the verdict is no worse."""
        order = [str(danger) for danger in Danger]
        worse = order.index(self.verdict) > order.index(self.locked_verdict)
        return not (self.changed or self.missing or self.added or worse)


class Hub:
    """Installs skills of other people for one user; uses the network only to browse, prepare and update."""

    def __init__(self, editor: SkillEditor) -> None:
        self._editor = editor
        self._library = editor.library
        self._settings = editor.library.settings
        self.lock = LockFile(editor.home)

    @property
    def _reach(self) -> FetchLimits:
        return FetchLimits(self._library.environ, self._settings.hub_timeout_seconds)

    def browse(self, text: str) -> list[Offer] | Refused:
        """Return every skill at a source."""
        source = parse_source(text, github=self._settings.github_url)
        if isinstance(source, Refused):
            return source
        if isinstance(source, WellKnown):
            index = read_index(source.url, seconds=self._reach.seconds)
            if isinstance(index, Refused):
                return index
            return [Offer(str(entry["name"]), str(entry.get("description", "")), text) for entry in index[1]]
        with self._open_quarantine() as quarantine:
            fetched = fetch(source, quarantine, wanted=None, reach=self._reach)
            if isinstance(fetched, Refused):
                return fetched
            packages = [check_package(folder) for folder in skills_below(fetched.folder)]
            return [Offer(item.name, item.description, text) for item in packages if isinstance(item, Package)]

    def prepare(self, text: str, *, skill: str | None = None) -> Prepared | Refused:
        """Fetch a skill to quarantine, check and scan it; the quarantine is removed on return."""
        source = parse_source(text, github=self._settings.github_url)
        if isinstance(source, Refused):
            return source
        with self._open_quarantine() as quarantine:
            return self._prepare(text, source, quarantine, skill=skill)

    def _prepare(self, text: str, source: Source, quarantine: Path, *, skill: str | None) -> Prepared | Refused:
        fetched = fetch(source, quarantine, wanted=skill, reach=self._reach)
        if isinstance(fetched, Refused):
            return fetched
        folder = choose_skill(fetched.folder, skill)
        package = folder if isinstance(folder, Refused) else check_package(folder)
        if isinstance(package, Refused):
            return package
        trusted = any(is_from(text, known) for known in self._settings.trusted_sources)
        return Prepared(
            source=text,
            revision=fetched.revision or _revision(package.files),
            network=uses_network(source),
            trust=Trust.TRUSTED if trusted else Trust.COMMUNITY,
            package=package,
            report=inspect(package.files),
        )

    def install(self, prepared: Prepared, *, category: str = "", force: bool = False) -> Changed | Refused:
        """Install a prepared skill that a person agreed to, and record it in the lock file."""
        name = prepared.package.name
        refused = self._refuse_dangerous(prepared, force=force) or (refuse_name(category) if category else None)
        if refused is not None:
            return refused
        with self._editor.lock(name):
            installed = self.lock.read().get(name)
            folder = self._library.home_folder(name)
            if folder is not None and installed is None:
                return Refused(
                    Reason.INVALID, f"there is a skill {name!r} of your own", "rename or delete that one first"
                )
            place = folder or self._editor.home.joinpath(*filter(None, (category, name)))
            author = Author("hub", reason=f"from {prepared.source} at {prepared.revision[:80]}")
            row = Installed(
                source=prepared.source,
                revision=prepared.revision,
                files=_hashes(prepared.package.files),
                verdict=str(prepared.report.danger),
                installed_at=iso(self._library.clock.now()),
                place=place.relative_to(self._editor.home).as_posix(),
                network=prepared.network,
                skill=prepared.package.name,
                rules=prepared.report.rules,
            )
            self.lock.announce(name, row)
            changed = self._editor.place_files(
                name, place, files=prepared.package.files, author=author, action="update" if installed else "install"
            )
            self.lock.put(name, row)
        return changed

    def _refuse_dangerous(self, prepared: Prepared, *, force: bool) -> Refused | None:
        if not prepared.is_blocked(force=force):
            return None
        reasons: list[JSON] = [str(finding) for finding in prepared.report.findings if finding.level is Level.CRITICAL]
        remedy = "do not use it" if prepared.network else "look at the files; --force takes it from a local source"
        error = f"stopped in quarantine: {prepared.package.name!r} is dangerous ({', '.join(prepared.report.rules)})"
        return Refused(Reason.BLOCKED, error, remedy, {"findings": reasons, "rules": list(prepared.report.rules)})

    def prepare_update(self, name: str, *, force: bool = False) -> Prepared | Refused | None:
        """Fetch an installed skill again; None when it is unchanged, refused when it was edited here."""
        installed = self.lock.read().get(name)
        if installed is None:
            return Refused(
                Reason.NO_MATCH, f"{name!r} was not installed from a source", "`kept skills list` shows what was"
            )
        audited = self._audit(name, installed)
        if not force and (audited.changed or audited.added):
            touched = ", ".join((*audited.changed, *audited.added)[:5])
            return Refused(
                Reason.MOVED_ON,
                f"{name!r} was changed here: {touched}",
                "--force drops those changes (undo brings them back)",
            )
        prepared = self.prepare(installed.source, skill=installed.skill)
        untouched = not (audited.changed or audited.added or audited.missing)
        if isinstance(prepared, Prepared) and untouched and _hashes(prepared.package.files) == dict(installed.files):
            return None
        return prepared

    def remove(self, name: str) -> Changed | Refused:
        """Move an installed skill to the archive and drop it from the lock file."""
        if name not in self.lock.read():
            return Refused(
                Reason.NO_MATCH, f"{name!r} was not installed from a source", "`kept skills delete` is for your own"
            )
        if self._library.home_folder(name) is None:  # removed by hand, or by a process that was killed before the end
            self.lock.drop(name)
            return Changed(name, "archive", 0, "", f"Skill {name!r} was gone already; its source is forgotten.")
        changed = self._editor.archive(name, Author("hub"))
        if isinstance(changed, Changed):
            self.lock.drop(name)
        return changed

    def audit(self) -> list[AuditResult]:
        """Hash and scan every installed skill."""
        return [self._audit(name, installed) for name, installed in sorted(self.lock.read().items())]

    def _audit(self, name: str, installed: Installed) -> AuditResult:
        folder = self._editor.home / installed.place
        present = {path: read_regular(folder / path) for path, _ in files_of(folder)} if folder.is_dir() else {}
        known = {path: digest(data) for path, data in present.items() if data is not None}
        report = inspect_folder(folder) if folder.is_dir() else Report(())
        return AuditResult(
            name,
            changed=tuple(sorted(path for path in known if installed.files.get(path, known[path]) != known[path])),
            missing=tuple(sorted(set(installed.files) - set(present))),
            added=tuple(sorted(set(present) - set(installed.files))),
            verdict=str(report.danger),
            locked_verdict=installed.verdict,
            rules=report.rules,
        )

    def _open_quarantine(self) -> AbstractContextManager[Path]:
        """Give a folder for fetched files; what a killed process left there is removed first."""
        base = self._editor.home / HUB_FOLDER / "quarantine"
        remove_unfinished(base)
        return open_scratch(base)


def _hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    return {path: digest(data) for path, data in sorted(files.items())}


def _revision(files: Mapping[str, bytes]) -> str:
    text = "\n".join(f"{path}\0{mark}" for path, mark in _hashes(files).items())
    return f"sha256:{digest(text.encode())}"


def filter_offers(query: str, offers: Iterable[Offer]) -> list[Offer]:
    """Return the offers that share a term with `query`, most shared terms first, otherwise in order."""
    wanted = set(terms(query))
    scored = [(len(wanted.intersection(terms(f"{offer.name} {offer.description}"))), offer) for offer in offers]
    return [offer for score, offer in sorted(scored, key=lambda each: -each[0]) if score]
