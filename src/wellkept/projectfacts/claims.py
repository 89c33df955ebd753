"""Claims: what an entry says about a project that its files or its repository can confirm or refute."""

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

MOST_CLAIMS: Final = 12
"""Of one entry."""
MOST_CHARS: Final = 2_000
"""Of an entry; what comes after is not read."""


class PathClaim(Struct, frozen=True):
    """A file or folder."""

    path: str
    is_sure: bool
    """Whether it can hardly be anything but a path; `and/or` can."""

    @property
    def text(self) -> str:
        """The claim in words."""
        return self.path


class TargetClaim(Struct, frozen=True):
    """A target of make or just, or a script of npm."""

    runner: Literal["make", "npm run", "just"]
    name: str

    @property
    def text(self) -> str:
        """The claim in words."""
        return f"{self.runner} {self.name}"


class CommandClaim(Struct, frozen=True):
    """The first word of a command line: perhaps a script that the project installs."""

    name: str

    @property
    def text(self) -> str:
        """The claim in words."""
        return self.name


class VersionClaim(Struct, frozen=True):
    """The version of a package."""

    package: str
    version: str
    is_least: bool = False
    """Whether a later version fits as well."""

    @property
    def text(self) -> str:
        """The claim in words."""
        return f"{self.package} {self.version}"


class ValueClaim(Struct, frozen=True):
    """The value of a setting; a port has no key."""

    key: str | None
    value: str
    files: tuple[str, ...] = ()
    """The files that the entry names."""

    @property
    def text(self) -> str:
        """The claim in words."""
        return f"port {self.value}" if self.key is None else self.key


class BranchClaim(Struct, frozen=True):
    """A branch."""

    name: str
    is_default: bool = False

    @property
    def text(self) -> str:
        """The claim in words."""
        return f"branch {self.name}"


Claim: TypeAlias = PathClaim | TargetClaim | CommandClaim | VersionClaim | ValueClaim | BranchClaim

_EXTENSIONS: Final = frozenset(
    "bash bat c cc cfg clj cmake conf cpp cs css csv cu dart env ex exs fish go gradle graphql h hpp hs htm html ini ipynb"
    " java jinja jl js json json5 jsonc jsonl jsx kt kts less lock lua m md mdx mjs ml mm mod nix php pl plist png proto"
    " ps1 py pyi pyx r rb rs rst sass scala scss sh sql sum svelte svg swift tf toml ts tsx txt vue xml yaml yml zig zsh".split()
)
_BARE: Final = frozenset(
    "Brewfile CODEOWNERS Cargo.lock Containerfile Dockerfile Gemfile Gemfile.lock GNUmakefile Jenkinsfile Justfile Makefile"
    " Pipfile Procfile Rakefile Vagrantfile justfile".split()
)
_DOTTED: Final = re.compile(r"\.[a-z][\w-]*(?:\.[\w-]+)*")
_SPANS: Final = re.compile(r"`([^`\n]{1,300})`")
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9_/.:~@$%*\\{}<>=+#?&-])(?:\./)?[A-Za-z0-9_.@+-]+(?:/[A-Za-z0-9_.@+\[\]()-]+)*/?(?![*\\{}<>$%=@~])"
)
_CODE_TOKEN: Final = re.compile(r"(?<!\S)[\"']?(?:\./)?([^\s\"'`*?\\{}<>$%|;&=:~@#][^\s\"'`*?\\{}<>$%|;&=:~]*)")
_WORD_PATH: Final = re.compile(
    r"(?:[Ff]older|[Dd]irectory|[Dd]ossier|[Cc]arpeta|[Oo]rdner|目录|文件夹)\s*[\"'`]?([A-Za-z0-9_.-]+)[\"'`]?"
)
_PATH_WORD: Final = re.compile(r"(?<![\w/.-])[\"'`]?([A-Za-z0-9_.-]+)[\"'`]?\s+(?:folder|directory)\b")
_TARGETS: Final = re.compile(
    r"(?<![\w/.-])(?:(make|just)\s+(?!sure\b|it\b|the\b|a\b|an\b|them\b|use\b|this\b|that\b|one\b|no\b|every\b|your\b)([A-Za-z][\w.-]*)"
    r"|(?:npm|pnpm|yarn|bun)\s+(?:run|run-script)\s+([A-Za-z][\w:.-]*)"
    r"|npm\s+(test|start)\b|(?:yarn|pnpm)\s+(test|start|build|lint|dev)\b)(?!\S*[=/])"
)
_MODULE: Final = re.compile(r"\bpython3?\s+-m\s+([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_VERSION: Final = re.compile(
    r"(?<![\w./@-])(@?[A-Za-z][\w./-]*?)(?:[\"'`]?\s*(==|>=|~=|\^|@|~>)\s*|[\"'`]?(?:\s+is)?(?:\s+(?:pinned|locked|fixed)\s+(?:to|at))?"
    r"(?:\s+(?:version|Version|版本))?\s+\(?(?:v|>=\s*|≥\s*|\^|~)?)[\"'`]?(\d{1,4}(?:\.\d{1,4}){0,3})(\+| or (?:later|newer|higher))?(?![\w-]|\.\d|[/:%])"
)
_PORT: Final = re.compile(
    r"(?:\b[Pp]ort(?:s|nummer|\s+number)?|\b[Pp]uerto|端口(?:号)?)(?:\s+(?:is|ist|es|est|no\.)|\s*[:=是])?\s*`?(\d{2,5})\b"
    r"|(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(\d{2,5})\b"
)
_ASSIGNED: Final = re.compile(
    r"(?<![\w.\[/-])[\"']?([A-Za-z_][\w.-]{1,60})[\"']?\s*(?:=|:(?=\s))\s*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s\"'`,;()=]+))"
)
_BRANCH: Final = re.compile(
    r"(?:\b[Bb]ranch(?:\s+(?:is|called|named))?|\b[Rr]ama|\b[Bb]ranche|\b[Zz]weig|分支)\s*[\"'`]?([A-Za-z0-9][\w./-]*)[\"'`]?"
)
_OF_BRANCH: Final = re.compile(
    r"[\"'`]([A-Za-z0-9][\w./-]*)[\"'`]\s+branch\b|(?<!\S)([\w.-]+/[\w./-]+|develop|main|master|trunk)\s+branch\b"
)
_DEFAULT: Final = re.compile(r"\b(?:[Dd]efault|[Mm]ain) branch(?: is| =|:)?\s*[\"'`]?([A-Za-z0-9][\w./-]*)")
_NO_BRANCH: Final = frozenset(
    "a and are as at but by called for from in into is it must name names named of off on or out per policy protection"
    " that the then this to until was when where which with".split()
)
_CLAUSES: Final = re.compile(r"(?<=[.;!?。；！？])\s+|(?<=[。；！？])|\n+|;\s")
_PAST: Final = re.compile(
    r"\b(?:removed|deleted|dropped|retired|renamed|moved|gone|obsolete|no longer|used to|formerly|previously|was replaced"
    r"|were replaced|has been replaced|does not exist|doesn't exist|do not exist|does not have|not exist"
    r"|gelöscht|entfernt|nicht mehr|früher|ehemals|umbenannt|verschoben"
    r"|eliminad[oa]s?|borrad[oa]s?|ya no|renombrad[oa]s?|movid[oa]s?|supprimée?s?|n'existe plus|anciennement|renommée?s?|déplacée?s?)\b"
    r"|已删除|删除了|已移除|移除了|不再|改名|已经删|以前",
    re.IGNORECASE,
)
_NOT: Final = re.compile(
    r"(?:\b(?:instead of|rather than|not|without(?: an?| any)?|no|never had|statt|kein|keine|ohne|en lugar de|sin|sans|au lieu de)|没有|而不是)\s+[\"'`]?$",
    re.IGNORECASE,
)
_PLANNED: Final = re.compile(
    r"\b(?:will|plan(?:ned|s)?|upgrad(?:e|ing) to|migrat(?:e|ing) to|switch(?:ing)? to|wait(?:ing)? for|until|before|after|since|from|by|in)\s+[\"'`]?$", re.IGNORECASE
)  # fmt: skip


def read_claims(text: str) -> tuple[Claim, ...]:
    """Return what an entry claims, in no particular order; nothing of clauses that say that something is past."""
    claims: dict[Claim, None] = {}
    for clause in _CLAUSES.split(text[:MOST_CHARS]):
        if clause and not _PAST.search(clause):
            claims.update(dict.fromkeys(_read_clause(clause)))
    found = list(claims)
    named = tuple(claim.path for claim in found if isinstance(claim, PathClaim) and claim.is_sure)
    found = [ValueClaim(claim.key, claim.value, named) if isinstance(claim, ValueClaim) else claim for claim in found]
    return tuple(found[:MOST_CLAIMS])


def _read_clause(clause: str) -> Iterator[Claim]:
    for find in (_find_targets, _find_values, _find_branches, _find_versions, _find_paths, _find_commands):
        for place, claim in find(clause):
            if not _NOT.search(clause[:place]):
                yield claim


def _find_targets(clause: str) -> Iterator[tuple[int, Claim]]:
    for match in _TARGETS.finditer(clause):
        runner, name, script, short, other = match.groups()
        if runner is None:
            yield match.start(), TargetClaim("npm run", (script or short or other).rstrip(".:"))
        else:
            yield match.start(), TargetClaim("make" if runner == "make" else "just", name.rstrip("."))
    for match in _MODULE.finditer(clause):
        yield match.start(), PathClaim(match[1].replace(".", "/"), is_sure=False)


def _find_values(clause: str) -> Iterator[tuple[int, Claim]]:
    for match in _PORT.finditer(clause):
        yield match.start(), ValueClaim(None, match[1] or match[2])
    for match in _ASSIGNED.finditer(clause):
        value = next((part for part in match.groups()[1:] if part is not None), "").rstrip(".")
        is_url = match[0].rstrip().endswith(":") or "//" in value
        is_code = _is_quoted(clause, match.start()) or "=" in match[0]
        if value and is_code and not is_url and match[1].lower() not in {"http", "https"}:
            yield match.start(), ValueClaim(match[1], value)


def _is_quoted(clause: str, place: int) -> bool:
    return clause[:place].count("`") % 2 == 1


def _find_branches(clause: str) -> Iterator[tuple[int, Claim]]:
    default = _DEFAULT.search(clause)
    if default is not None and default[1].lower() not in _NO_BRANCH:
        yield default.start(), BranchClaim(default[1].rstrip("./-"), is_default=True)
        return
    for match in (*_BRANCH.finditer(clause), *_OF_BRANCH.finditer(clause)):
        name = next(part for part in match.groups() if part is not None).rstrip("./-")
        if name.lower() not in _NO_BRANCH:
            yield match.start(), BranchClaim(name)


def _find_versions(clause: str) -> Iterator[tuple[int, Claim]]:
    for match in _VERSION.finditer(clause):
        package, sign, version, later = match.groups()
        if not _PLANNED.search(clause[: match.start()]):
            is_least = bool(later) or sign == ">=" or ">=" in match[0] or "≥" in match[0]
            yield match.start(), VersionClaim(package.lower().replace("_", "-").rstrip(".-/"), version, is_least)


def _find_paths(clause: str) -> Iterator[tuple[int, Claim]]:
    spans = [(match.start(1), match[1]) for match in _SPANS.finditer(clause)]
    for start, code in spans:
        for match in _CODE_TOKEN.finditer(code):
            yield from _read_path(match[1], start + match.start(1), is_code=True)
    plain = _SPANS.sub(lambda match: " " * len(match[0]), clause)
    for match in _TOKEN.finditer(plain):
        yield from _read_path(match[0], match.start(), is_code=False)
    for match in (*_WORD_PATH.finditer(clause), *_PATH_WORD.finditer(clause)):
        yield match.start(), PathClaim(match[1].rstrip("."), is_sure=False)


def _read_path(token: str, place: int, *, is_code: bool) -> Iterator[tuple[int, Claim]]:
    path = token.split("::")[0].removeprefix("./").rstrip(".,;:!?)")
    is_folder = path.endswith("/")
    path = path.rstrip("/")
    parts = path.split("/")
    if not path or path.startswith("/") or {"", ".", "..", ".git"} & set(parts) or len(path) > 300:
        return
    has_extension = parts[-1].rpartition(".")[2].lower() in _EXTENSIONS and "." in parts[-1]
    is_name = path in _BARE or bool(_DOTTED.fullmatch(parts[-1]))
    if len(parts) > 1 or has_extension or is_name or is_folder:
        yield place, PathClaim(path, has_extension or is_folder or is_name or (is_code and len(parts) > 1))


def _find_commands(clause: str) -> Iterator[tuple[int, Claim]]:
    for match in _SPANS.finditer(clause):
        word = match[1].split()[0] if match[1].split() else ""
        if re.fullmatch(r"[a-z][\w.-]+", word):
            yield match.start(), CommandClaim(word)
