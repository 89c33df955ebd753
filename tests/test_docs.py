"""The documentation: fresh, complete, with examples that run and links that lead somewhere."""

import contextlib
import importlib.util
import io
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_ARROW = re.compile(r"# → (.*)$", re.MULTILINE)


def _examples(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        pytest.param(code, id=f"{page}-{number}")
        for number, (language, code) in enumerate(_FENCE.findall(text), start=1)
        if language == "python"
    ]


@pytest.mark.parametrize("code", [*_examples("docs/library.md"), *_examples("README.md")])
def test_examples_run(code, tmp_path, monkeypatch):
    """A Python example runs in an empty folder and prints what stands behind its arrows."""
    monkeypatch.chdir(tmp_path)
    heard = io.StringIO()

    with contextlib.redirect_stdout(heard):
        exec(compile(code, "example", "exec"), {"__name__": "example"})

    assert heard.getvalue().splitlines() == [line.rstrip() for line in _ARROW.findall(code)]


def _generator():
    """The generator of the reference, loaded from beside its pages."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()
REFERENCE = GENERATOR.pages()
"""Made when tests are collected, for the reason that `test_architecture.TREES` gives."""


@pytest.fixture(scope="module")
def generate():
    return GENERATOR


@pytest.fixture(scope="module")
def reference():
    return REFERENCE


def test_the_reference_is_fresh(reference):
    """docs/reference says what the program says; `make reference` renews it."""
    stale = [name for name, text in reference.items() if not _is_same(DOCS / "reference" / name, text)]

    assert stale == [], "run `make reference` and commit docs/reference"


def _is_same(path, text):
    return path.is_file() and path.read_text(encoding="utf-8") == text


def test_nothing_else_lies_in_the_reference(reference):
    """Every page of docs/reference is written by the generator."""
    assert sorted(path.name for path in (DOCS / "reference").iterdir()) == sorted(reference)


def test_every_setting_is_documented(reference):
    """Each key stands on the settings page, with words that say what it does."""
    from wellkept.config.settings import known_keys

    rows = dict(re.findall(r"^\| `([\w.]+)` \|.*\| ([^|]*) \|$", reference["settings.md"], re.MULTILINE))

    assert [key for key in known_keys() if not rows.get(key, "").strip()] == []


def test_every_command_is_documented(reference):
    """Each command stands on the commands page with a sentence, and each of its options with a meaning."""
    from typer.main import get_command

    from wellkept.cli.main import build_all

    silent = [
        name
        for name, command in _leaves("kept", get_command(build_all()))
        if not command.help or name not in _headings(reference["commands.md"])
    ]

    assert silent == []


def _leaves(prefix, group):
    for name, command in group.commands.items():
        full = f"{prefix} {name}"
        if hasattr(command, "commands"):
            yield from _leaves(full, command)
        else:
            yield full, command


def _headings(text):
    return {line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#")}


def test_every_command_group_has_a_guide():
    """Each command is used on at least one page that a person wrote."""
    from wellkept.cli.main import COMMANDS

    guides = "\n".join(path.read_text(encoding="utf-8") for path in PAGES if path.parent.name != "reference")

    assert [name for name in COMMANDS if f"kept {name}" not in guides] == []


def test_every_hook_is_documented(reference):
    """Each method that a plugin may write stands on the hooks page."""
    from wellkept.context.engine import ContextEngine
    from wellkept.providers.base import MemoryProvider

    hooks = [name for kind in (MemoryProvider, ContextEngine) for name in vars(kind) if _is_hook(kind, name)]

    assert len(hooks) > 30
    assert [name for name in hooks if not re.search(rf"`{name}[`(]", reference["hooks.md"])] == []


def _is_hook(kind, name):
    return not name.startswith("_") and (callable(vars(kind)[name]) or isinstance(vars(kind)[name], property))


def test_every_tool_is_documented(reference, home):
    """Each tool that the agent has stands on the tools page, with each of its parameters."""
    from wellkept.app import open_app

    app = open_app(str(home), environ={})
    tools = app.owner.tools()
    app.close()

    chapters = dict(re.findall(r"^### (\w+)\n(.*?)(?=^###|^## |\Z)", reference["tools.md"], re.MULTILINE | re.DOTALL))
    assert "memory" in tools
    assert [name for name in tools if name not in chapters] == []
    silent = [
        f"{name}.{parameter}"
        for name, tool in tools.items()
        for parameter in tool.schema.parameters["properties"]
        if f"| `{parameter}` |" not in chapters[name]
    ]
    assert silent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """Every link between pages names a file, and a heading in it, that exist."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))

    dead = [link for link in _LINK.findall(text) if not re.match(r"[a-z]+:", link) and not _leads(page, link)]

    assert dead == []


def _leads(page, link):
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return False
    return not anchor or anchor in {_anchor(heading) for heading in _headings(target.read_text(encoding="utf-8"))}


def _anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


INDEXES = {DOCS / "README.md": DOCS, DOCS / "decisions/README.md": DOCS / "contributing/decisions"}


@pytest.mark.parametrize("index", INDEXES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_index_has_every_page(index):
    """The index of a folder links to each page in it; pages of a folder below it may be linked through its own index."""
    links = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(index.read_text("utf-8"))}
    folders = {page.parent for page in links if page.name == "README.md"}

    pages = {page for page in INDEXES[index].rglob("*.md") if page != index and page.parent not in folders}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - links) == []


MOST_COLUMNS = 140


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_are_short(page):
    """No line is longer than a screen, except rows of tables and words that cannot be broken."""
    lines = page.read_text(encoding="utf-8").splitlines()

    long = [line for line in lines if len(line) > MOST_COLUMNS and not line.lstrip().startswith("|")]
    assert [line for line in long if " " in line.strip()] == []


PATH_PAGES = ("AGENTS.md", *(str(page.relative_to(ROOT)) for page in PAGES if "contributing" in page.parts))
_CODE = re.compile(r"`([^`]+)`")
_PATH = re.compile(r"[a-z_]+(?:/[\w.]+)+/?|[a-z_]+/|[a-z_]+\.(?:py|sql|toml|tsv|txt)")
NOT_IN_THE_TREE = {
    "settings.py", "tool.py",  # one in each package
}  # fmt: skip


@pytest.mark.parametrize("page", PATH_PAGES)
def test_paths_on_a_page_exist(page):
    """Every file, folder or module that a page for contributors names in code style is in the tree."""
    text = _FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    words = {word.strip(",:;()") for code in _CODE.findall(text) for word in code.split()}

    paths = {word for word in words if _PATH.fullmatch(word)} - NOT_IN_THE_TREE

    assert len(paths) > 10 or page not in {"AGENTS.md", "docs/contributing/ARCHITECTURE.md"}
    assert sorted(path for path in paths if not _is_in_the_tree(path)) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda path: path.name)
def test_paths_from_the_root_exist(page):
    """Every path that begins with a folder of the repository or with `wellkept/` is in the tree, on every page."""
    words = {
        word.strip(",:;()")
        for code in _CODE.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
        for word in code.split()
    }
    paths = {
        word for word in words if re.match(r"(?:src|kept|wellkept|tests|benchmarks)/", word) and _PATH.fullmatch(word)
    }

    paths -= {"kept/plain", "kept/incognito"}  # models of the gateway
    assert sorted(path for path in paths if not (ROOT / path).exists() and not (ROOT / "src" / path).exists()) == []


_NAME = re.compile(r"(?:well)?kept(?:\.[A-Za-z_]\w*)+")
NO_NAMES = {"kept.db", "kept.yaml", "kept.log", "wellkept.memory_providers", "wellkept.context_engines"}
"""Files in a home, and groups of entry points."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda path: path.name)
def test_names_of_the_library_exist(page):
    """Every dotted name of the library on a page can be imported."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    names = {match[0] for code in _CODE.findall(text) if (match := _NAME.match(code))} - NO_NAMES

    assert sorted(name for name in names if not _can_be_imported(name)) == []


def _can_be_imported(name):
    with contextlib.suppress(ImportError, AttributeError, ValueError):
        return pkgutil.resolve_name(name) is not None
    return False


def _is_in_the_tree(path):
    """Whether `path` is a file, a folder, a module (`agent/turn`) or a name in one (`memory/approval.write_memory`)."""
    module, _, name = path.partition(".")
    files = [(base / f"{module}.py") for base in (ROOT, ROOT / "src" / "wellkept")]
    if any((base / path).exists() for base in (ROOT, ROOT / "src" / "wellkept")):
        return True
    return name != "py" and any(file.is_file() and name in file.read_text(encoding="utf-8") for file in files)


def test_pages_name_no_machine():
    """No page holds a path of somebody's machine."""
    suspicious = re.compile(r"(?<![\w.~])/(?:home|Users|root|work|mnt)/\w")

    assert [page.name for page in PAGES if suspicious.search(page.read_text(encoding="utf-8"))] == []


def test_our_own_project_file_passes_the_scanner():
    """AGENTS.md, which kept puts into prompts, is clean by its own rules."""
    from wellkept.security.scan import Scope, scan

    assert scan((ROOT / "AGENTS.md").read_text(encoding="utf-8"), scope=Scope.CONTEXT).findings == ()
