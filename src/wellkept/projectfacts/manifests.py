"""Manifests of a project: targets of make, just and npm, installed scripts, locked versions, settings and ports.

Each function takes the bytes of one file, which may be hostile, and never fails.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from wellkept.core.text import expression

_MAKE_RULE: Final = expression(r"^([A-Za-z0-9_][\w.%/ -]*?)[ \t]*::?(?!=)([^=\n]*)$")
_JUST_RULE: Final = expression(r"^@?([A-Za-z_][\w-]*)((?:[ \t]+[^:\n]*)?):(?!=)(.*)$")
_OPEN_MAKE: Final = expression(r"^(?:-?include|sinclude)\s|^%[ \t]*:", re.MULTILINE)
_OPEN_JUST: Final = expression(r"^(?:import|mod)\b", re.MULTILINE)
MAKEFILES: Final = ("GNUmakefile", "makefile", "Makefile")
JUSTFILES: Final = ("justfile", "Justfile", ".justfile")
LOCKS: Final = (
    "uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "requirements.txt", "package-lock.json",
    "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.lock", "go.mod", "Gemfile.lock", "composer.lock",
)  # fmt: skip
TOOLS: Final[Mapping[str, tuple[str, ...]]] = {
    "node": (".nvmrc", ".node-version", ".tool-versions"),
    "python": (".python-version", ".tool-versions"),
    "ruby": (".ruby-version", ".tool-versions"),
    "go": ("go.mod", ".tool-versions"),
    "rust": ("rust-toolchain.toml", "rust-toolchain", ".tool-versions"),
}
"""The files that pin the version of a language."""
_TOOL_NAMES: Final = {"node": ("nodejs", "node"), "go": ("golang", "go")}
ALIASES: Final = {
    "node.js": "node", "nodejs": "node", "golang": "go", "next.js": "next", "nextjs": "next", "vue.js": "vue",
    "react.js": "react", "tailwind": "tailwindcss", "nuxt.js": "nuxt", "express.js": "express",
}  # fmt: skip
_NUMBER: Final = expression(r"v?(\d{1,4}(?:\.\d{1,6}){0,3})")
_MOST_LINES: Final = 20_000


def decode(data: bytes) -> str:
    """Return the text of a file."""
    return data.decode("utf-8", "replace")


def read_recipes(runner: str, data: bytes) -> dict[str, str] | None:
    """Return the recipes of a Makefile, justfile or package.json by name, None if others may be elsewhere."""
    if runner == "npm run":
        return _read_scripts(data)
    text = decode(data)
    if (_OPEN_MAKE if runner == "make" else _OPEN_JUST).search(text):
        return None
    return _read_rules(_MAKE_RULE if runner == "make" else _JUST_RULE, text.replace("\\\n", " "))


def _read_rules(rule: re.Pattern[str], text: str) -> dict[str, str]:
    recipes: dict[str, str] = {}
    names: list[str] = []
    for line in text.split("\n")[:_MOST_LINES]:
        head = rule.match(line)
        if head is not None:
            names = head[1].split()
            first = "".join(head.groups()[1:]).partition("#")[0]
            recipes |= {name: f"{recipes.get(name, '')}{first.strip()}\n" for name in names}
        elif line[:1] in {"\t", " "}:
            recipes |= {name: f"{recipes[name]}{line.strip()}\n" for name in names}
        elif line.strip() and not line.startswith("#"):
            names = []
    return recipes


def _read_json(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_scripts(data: bytes) -> dict[str, str]:
    scripts = _read_json(data).get("scripts")
    return {str(name): str(line) for name, line in scripts.items()} if isinstance(scripts, dict) else {}


def read_commands(name: str, data: bytes) -> set[str]:
    """Return the scripts that a pyproject.toml or package.json installs."""
    if name == "package.json":
        value = _read_json(data)
        programs = value.get("bin")
        return set(programs) if isinstance(programs, dict) else {str(value.get("name"))} if programs else set()
    table = re.search(
        r"^\[(?:project\.scripts|tool\.poetry\.scripts)\][^\n]*\n((?:(?!\[)[^\n]*\n?)*)", decode(data), re.MULTILINE
    )
    return set(re.findall(r"^[ \t]*[\"']?([\w.-]+)[\"']?[ \t]*=", table[1], re.MULTILINE)) if table else set()


def read_versions(file: str, data: bytes, package: str) -> set[str]:
    """Return the versions in which a lock file has a package; none if it has it not."""
    name = file.rpartition("/")[2]
    pattern = re.escape(package).replace(r"\-", "[-_.]")
    if package.encode() not in data.lower().replace(b"_", b"-"):
        return set()
    text = decode(data)
    for names, read in _READERS.items():
        if name in names:
            return {version for raw in read(text, pattern) if (version := _numeric(raw))}
    return set()


def _numeric(raw: str) -> str | None:
    match = _NUMBER.match(raw)
    return None if match is None else match[1]


def _toml_lock(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf'^name = "{pattern}"\nversion = "([^"\n]+)"', text, re.MULTILINE | re.IGNORECASE)


def _npm_lock(text: str, pattern: str) -> Iterator[str]:
    found = re.findall(
        rf'^ {{1,8}}"node_modules/{pattern}": {{\s+(?:"name": "[^"]*",\s+)?"version": "([^"\n]+)"', text, re.MULTILINE
    )
    yield from found or re.findall(rf'^ {{4}}"{pattern}": {{\s+"version": "([^"\n]+)"', text, re.MULTILINE)


def _yarn_lock(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf'^"?{pattern}@[^\n]*:\n {{2}}version:? "?([\d][^"\s]*)', text, re.MULTILINE)


def _pnpm_lock(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf"^ {{2}}['\"]?/?{pattern}[@/](\d[^:('\"\s]*)", text, re.MULTILINE)


def _pipfile_lock(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf'"{pattern}": {{[^{{}}]{{0,20000}}?"version": "==([^"]+)"', text, re.IGNORECASE)


def _requirements(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf"^{pattern}(?:\[[^\]\n]*\])?\s*==\s*([\d][\w.]*)", text, re.MULTILINE | re.IGNORECASE)


def _go_mod(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf"^\s*(?:require\s+)?\S*{pattern}\s+v(\d\S*)", text, re.MULTILINE)


def _gem_lock(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf"^ {{4}}{pattern} \((\d[^)\n]*)\)", text, re.MULTILINE)


def _composer_lock(text: str, pattern: str) -> Iterator[str]:
    yield from re.findall(rf'"name": "(?:[^"/]*/)?{pattern}",\s+"version": "([^"]+)"', text)


_READERS: Final = {
    ("uv.lock", "poetry.lock", "pdm.lock", "Cargo.lock"): _toml_lock,
    ("package-lock.json", "npm-shrinkwrap.json"): _npm_lock,
    ("yarn.lock",): _yarn_lock,
    ("pnpm-lock.yaml",): _pnpm_lock,
    ("Pipfile.lock",): _pipfile_lock,
    ("requirements.txt",): _requirements,
    ("go.mod",): _go_mod,
    ("Gemfile.lock",): _gem_lock,
    ("composer.lock",): _composer_lock,
}


def read_tool_version(tool: str, file: str, data: bytes) -> set[str]:
    """Return the version of a language that a file pins."""
    text = decode(data[:20_000])
    if file == ".tool-versions":
        names = "|".join(_TOOL_NAMES.get(tool, (tool,)))
        found = re.search(rf"^(?:{names})\s+(\S+)", text, re.MULTILINE)
    elif file == "go.mod":
        found = re.search(r"^go\s+(\S+)", text, re.MULTILINE)
    elif file == "rust-toolchain.toml":
        found = re.search(r"channel\s*=\s*\"([^\"]+)", text)
    else:
        found = re.match(r"\s*(\S+)", text)
    version = None if found is None else _numeric(found[1])
    return set() if version is None else {version}


def agree(stated: str, locked: str, *, is_least: bool) -> bool:
    """Whether a stated version is the locked one, or its beginning."""
    ours, theirs = ([int(part) for part in version.split(".")] for version in (stated, locked))
    return theirs[: len(ours)] == ours or (is_least and theirs >= ours)


def read_values(data: bytes, key: str) -> set[str]:
    """Return the values that a file gives a key; the last part of a dotted key counts."""
    name = re.escape(key.rpartition(".")[2])
    lines = re.findall(
        rf"^[ \t]*(?:export\s+|-\s+|ENV\s+|ARG\s+)?[\"']?{name}[\"']?[ \t]*[:=][ \t]*([^\n]*)",
        decode(data),
        re.MULTILINE,
    )
    return {normalize(line) for line in lines}


def normalize(value: str) -> str:
    """Return a value without quotes, comments and a comma at its end."""
    value = value.strip()
    quoted = re.match(r"([\"'])(.*?)\1", value)
    if quoted is not None:
        return quoted[2]
    return re.split(r"\s+[#;]|\s//", value)[0].rstrip(", \t").strip()


def has_port(data: bytes, port: str) -> bool:
    """Whether a file has a line in which a number stands as a port."""
    number = rf"(?<![\w.]){port}(?![\w.])"
    is_port = rf"(?i:port\w*[\"']?\s*[:=(, ]\s*[\"']?{number}|EXPOSE\b[^\n]*{number}|:{number}|{number}:\d)"
    return re.search(is_port, decode(data)) is not None
