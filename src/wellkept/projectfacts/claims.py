"""Claims: what an entry says about a project that its files or its repository can confirm or refute."""

import re
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from wellkept.core.text import expression

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

_EXTENSIONS: Final = expression(
    r"(?i:bash|bat|cc?|cfg|clj|cmake|conf|cpp|css?|csv|cu|dart|env|exs?|fish|go|gradle|graphql|h|hpp|hs|html?|ini|ipynb"
    r"|java|jinja|jl|jsx?|json[5cl]?|kts?|less|lock|lua|mdx?|mjs|ml?|mod|nix|php|pl|plist|png|proto|ps1|py[ix]?|rb?|rs"
    r"|rst|sass|scala|scss|sh|sql|sum|svelte|svg|swift|tf|toml|tsx?|txt|vue|xml|ya?ml|zig|zsh)"
)
_BARE: Final = expression(
    r"Brewfile|CODEOWNERS|Containerfile|Dockerfile|Gemfile|GNUmakefile|Jenkinsfile|[Jj]ustfile|[Mm]akefile|Pipfile|Procfile"
    r"|Rakefile|Vagrantfile"
)
_DOTTED: Final = expression(r"\.[a-z][\w-]*(?:\.[\w-]+)*")
_SPANS: Final = expression(r"`([^`\n]{1,300})`")
_TOKEN: Final = expression(
    r"(?<![A-Za-z0-9_/.:~@$%*\\{}<>=+#?&-])(?:\./)?[A-Za-z0-9_.@+-]+(?:/[A-Za-z0-9_.@+\[\]()-]+)*/?(?![*\\{}<>$%=@~])"
)
_CODE_TOKEN: Final = expression(r"(?<!\S)[\"']?(?:\./)?([^\s\"'`*?\\{}<>$%|;&=:~@#][^\s\"'`*?\\{}<>$%|;&=:~]*)")
_WORD_PATH: Final = expression(
    r"(?:[Ff]older|[Dd]irectory|[Dd]ossier|[Cc]arpeta|[Oo]rdner|目录|文件夹)\s*[\"'`]?([A-Za-z0-9_.-]+)[\"'`]?"
)
_PATH_WORD: Final = expression(r"(?<![\w/.-])[\"'`]?([A-Za-z0-9_.-]+)[\"'`]?\s+(?:folder|directory)\b")
_TARGETS: Final = expression(
    r"(?<![\w/.-])(?:(make|just)\s+(?!(?:sure|it|the|an?|them|use|this|that|one|no|every|your)\b)([A-Za-z][\w.-]*)"
    r"|(?:npm|pnpm|yarn|bun)\s+(?:run|run-script)\s+([A-Za-z][\w:.-]*)"
    r"|npm\s+(test|start)\b|(?:yarn|pnpm)\s+(test|start|build|lint|dev)\b)(?!\S*[=/])"
)
_VERSION: Final = expression(
    r"(?<![\w./@-])(@?[A-Za-z][\w./-]*?)"
    r"(?:[\"'`]?\s*(==|>=|~=|\^|@|~>)\s*"
    r"|[\"'`]?(?:\s+is)?(?:\s+(?:pinned|locked|fixed)\s+(?:to|at))?(?:\s+(?:[Vv]ersion|版本))?\s+\(?(?:v|>=\s*|≥\s*|\^|~)?)"
    r"[\"'`]?(\d{1,4}(?:\.\d{1,4}){0,3})(\+| or (?:later|newer|higher))?(?![\w-]|\.\d|[/:%])"
)
_NO_PACKAGE: Final = expression(r"(?i:not|no|ports?|lines?|versions?|issues?|pr|steps?|pages?|at|to|of|is|and|or|the)")
_PORT: Final = expression(
    r"(?:\b[Pp]ort(?:s|nummer|\s+number)?|\b[Pp]uerto|端口(?:号)?)(?:\s+(?:is|ist|es|est|no\.)|\s*[:=是])?\s*`?(\d{2,5})\b"
    r"|(?:localhost|127\.0\.0\.1|0\.0\.0\.0):(\d{2,5})\b"
)
_ASSIGNED: Final = expression(
    r"(?<![\w.\[/-])[\"']?([A-Za-z_][\w.-]{1,60})[\"']?\s*(?:=|:(?=\s))\s*(?:\"([^\"\n]*)\"|'([^'\n]*)'|([^\s\"'`,;()=]+))"
)
_BRANCH: Final = expression(
    r"(?:\b[Bb]ranch(?:\s+(?:is|called|named))?|\b[Rr]ama|\b[Bb]ranche|\b[Zz]weig|分支)\s*[\"'`]?([A-Za-z0-9][\w./-]*)[\"'`]?"
)
_OF_BRANCH: Final = expression(
    r"[\"'`]([A-Za-z0-9][\w./-]*)[\"'`]\s+branch\b|(?<!\S)([\w.-]+/[\w./-]+|develop|main|master|trunk)\s+branch\b"
)
_DEFAULT: Final = expression(r"\b(?:[Dd]efault|[Mm]ain) branch(?: is| =|:)?\s*[\"'`]?([A-Za-z0-9][\w./-]*)")
_NO_BRANCH: Final = expression(
    r"(?i:an?|and|are|as|at|be|but|by|called|for|from|in|into|is|it|must|names?|named|of|off|on|or|out|per|policy|protection"
    r"|that|the|then|this|to|until|was|when|where|which|with)"
)
_CLAUSES: Final = expression(r"(?<=[.;!?。；！？])\s+|(?<=[。；！？])|\n+|;\s")
_PAST: Final = expression(
    r"(?i)\b(?:removed|deleted|dropped|retired|renamed|moved|gone|obsolete|no longer|used to|formerly|previously"
    r"|(?:was|were|been) replaced|(?:does|do) not (?:exist|have)|doesn't exist"
    r"|gelöscht|entfernt|nicht mehr|früher|ehemals|umbenannt|verschoben"
    r"|eliminad[oa]s?|borrad[oa]s?|ya no|renombrad[oa]s?|movid[oa]s?"
    r"|supprimée?s?|n'existe plus|anciennement|renommée?s?|déplacée?s?)\b"
    r"|已删除|删除了|已移除|移除了|不再|改名|已经删|以前"
)
_NOT: Final = expression(
    r"(?i)(?:\b(?:instead of|rather than|not|without(?: an?| any)?|no|never had|statt|kein|keine|ohne|en lugar de|sin"
    r"|sans|au lieu de)|没有|而不是)\s+[\"'`]?$"
)
_PLANNED: Final = expression(
    r"(?i)\b(?:will|plan(?:ned|s)?|upgrad(?:e|ing) to|migrat(?:e|ing) to|switch(?:ing)? to|wait(?:ing)? for|until"
    r"|before|after|since|from|by|in)\s+[\"'`]?$"
)


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
    if default is not None and not _NO_BRANCH.fullmatch(default[1]):
        yield default.start(), BranchClaim(default[1].rstrip("./-"), is_default=True)
        return
    for match in list(_OF_BRANCH.finditer(clause)) or _BRANCH.finditer(clause):
        name = next(part for part in match.groups() if part is not None).rstrip("./-")
        if not _NO_BRANCH.fullmatch(name):
            yield match.start(), BranchClaim(name)


def _find_versions(clause: str) -> Iterator[tuple[int, Claim]]:
    for match in _VERSION.finditer(clause):
        package, sign, version, later = match.groups()
        if not _PLANNED.search(clause[: match.start()]) and not _NO_PACKAGE.fullmatch(package):
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
    path = token.split("::", 1)[0].removeprefix("./").rstrip(".,;:!?)")
    is_folder = path.endswith("/")
    path = path.rstrip("/")
    parts = path.split("/")
    if not path or path.startswith("/") or {"", ".", "..", ".git"} & set(parts) or len(path) > 300:
        return
    _, dot, ending = parts[-1].rpartition(".")
    has_extension = bool(dot) and _EXTENSIONS.fullmatch(ending) is not None
    is_name = bool(_BARE.fullmatch(path) or _DOTTED.fullmatch(parts[-1]))
    if len(parts) > 1 or has_extension or is_name or is_folder:
        yield place, PathClaim(path, has_extension or is_folder or is_name or (is_code and len(parts) > 1))


def _find_commands(clause: str) -> Iterator[tuple[int, Claim]]:
    for match in _SPANS.finditer(clause):
        word = match[1].split()[0] if match[1].split() else ""
        if re.fullmatch(r"[a-z][\w.-]+", word):
            yield match.start(), CommandClaim(word)
