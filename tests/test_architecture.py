"""The shape of the tree: rules that hold for every module."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parent.parent / "src" / "wellkept"
MODULES = sorted(SRC.rglob("*.py"))
MAX_FUNCTION_LINES = 60
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "util", "helper"}

BROAD_CATCHES = {
    # plugin call
    "providers/loading.py",
    "context/plugins.py",
    "agent/mcp_tools.py",
    # tool call
    "agent/toolbox.py",
    "mcp_server/tools.py",
    # background task
    "mcp_server/server.py",
    "gateway/streams.py",
    "agent/review.py",
    "providers/active.py",
    "sessions/embedding/backfill.py",
    "sessions/embedding/local.py",
    # process entry
    "cli/main.py",
    "cli/hook.py",
}
"""The four boundaries at which foreign or unforeseen failures may be caught whole."""

DRIVERS = {
    "apsw": {"storage", "salvage"},
    "psycopg": {"storage"},
    "openai": {"llm"},
    "anthropic": {"llm"},
    "xllamacpp": {"llm"},
    "mcp": {"mcp_server", "agent"},
    "fastapi": {"gateway"},
    "starlette": {"gateway"},
    "typer": {"cli"},
    "rich": {"cli"},
    "prompt_toolkit": {"cli"},
    "Stemmer": {"languages"},
}


SURFACES = {"cli", "gateway", "mcp_server"}
"""The folders that parse, call an operation and render."""

TIERS = {"memory", "sessions", "skills", "providers", "skills/curator", "context", "storage"}
"""The folders whose classes are either values or hold data."""

SURFACE_MAY_IMPORT = {
    # `kept providers setup` asks the questions that a loaded provider declares
    "wellkept.providers.base.MemoryProvider",
    # highlights the words of a query in a text, and holds no data
    "wellkept.sessions.search.occurrences",
    "wellkept.sessions.search.occurrences.Marker",
}


def _ids(path: Path) -> str:
    return str(path.relative_to(SRC))


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
"""Parsed when tests are collected: CPython 3.11 can lose count of its recursion in a process full of event loops."""


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return TREES


def test_functions_are_short(trees: dict[Path, ast.Module]) -> None:
    """No function is longer than 60 lines."""
    long = [
        f"{_ids(path)}:{node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]

    assert long == []


def test_every_module_says_what_it_is(trees: dict[Path, ast.Module]) -> None:
    """Every module has a docstring whose first line ends as a sentence."""
    silent = [
        _ids(path)
        for path, tree in trees.items()
        if not (text := ast.get_docstring(tree)) or text.splitlines()[0].rstrip()[-1] not in ".:"
    ]

    assert silent == []


def test_every_public_method_is_described(trees: dict[Path, ast.Module]) -> None:
    """At the method itself, or at the port or the base class that it implements: there once for all of them."""
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods = [
        (owner.name, method)
        for owner in classes
        for method in owner.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_")
    ]
    described = {method.name for _, method in methods if ast.get_docstring(method)}
    setters = ("setter", "overload")
    missing = [
        f"{owner}.{method.name}"
        for owner, method in methods
        if not owner.startswith("_") and not ast.get_docstring(method) and method.name not in described
        if not any(word in ast.unparse(decorator) for decorator in method.decorator_list for word in setters)
    ]
    assert missing == []


def test_no_module_is_a_drawer() -> None:
    """No folder or module is called utils, helpers, common or misc."""
    drawers = [_ids(path) for path in MODULES if FORBIDDEN_NAMES & {path.stem, *path.relative_to(SRC).parts}]

    assert drawers == []


def test_broad_catches_stand_at_the_boundaries(trees: dict[Path, ast.Module]) -> None:
    """`except Exception` stands only at plugin calls, tool calls, background tasks and the process entry."""
    broad = {
        _ids(path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node)
    }

    assert broad <= BROAD_CATCHES


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    broad = any(isinstance(name, ast.Name) and name.id == "Exception" for name in names)
    return broad and not _reraises(handler)


def _reraises(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None


PRINTS = {"print", "typer.echo", "typer.secho", "typer.prompt", "typer.confirm", "traceback.print_exc"}
"""Functions that write to the terminal without removing control characters."""


def test_the_command_line_prints_through_one_module(trees: dict[Path, ast.Module]) -> None:
    """In `cli`, only `terminal.py` writes to the terminal; the Markdown of an answer is cleaned in `chat/screen.py`."""
    strays = [
        f"{_ids(path)}:{node.lineno} {ast.unparse(node.func)}"
        for path, tree in trees.items()
        if path.is_relative_to(SRC / "cli") and path != SRC / "cli" / "terminal.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _prints(ast.unparse(node.func), _ids(path))
    ]

    assert strays == []


def _prints(called: str, module: str) -> bool:
    if called.endswith("console.print"):
        return module != "cli/chat/screen.py"
    return called in PRINTS or re.search(r"\b(stdout|stderr)(\.buffer)?\.write", called) is not None


def test_drivers_stay_at_the_edge(trees: dict[Path, ast.Module]) -> None:
    """A driver or SDK is imported only in the one folder that is its adapter."""
    strays = [
        f"{_ids(path)} imports {name}"
        for path, tree in trees.items()
        for name in {module.partition(".")[0] for module in _imported(tree)}
        if name in DRIVERS and path.relative_to(SRC).parts[0] not in DRIVERS[name]
    ]

    assert strays == []


def test_locks_of_the_system_are_taken_in_one_module(trees: dict[Path, ast.Module]) -> None:
    """Its callers work where `fcntl` or `msvcrt` is missing, and learn what a file system refuses."""
    users = {_ids(path) for path, tree in trees.items() if _imported(tree) & {"fcntl", "msvcrt"}}

    assert users == {"storage/locks.py"}


def _imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_a_session_store_is_reached_through_its_port(trees: dict[Path, ast.Module]) -> None:
    """Only the app, which builds it, and the public names import a session store; the command line knows no database.

    Both stores are built on the rules in `sessions/rows`.
    """
    may_import = {
        "wellkept.sessions.rows": ("app/", "sessions/rows/", "sessions/sqlite/", "sessions/postgres/"),
        "wellkept.sessions.sqlite": ("app/", "sessions/sqlite/", "__init__.py"),
        "wellkept.sessions.postgres": ("app/", "sessions/postgres/"),
    }
    strays = [
        f"{name} imports {module}"
        for path, tree in trees.items()
        for module in _imported(tree)
        for folder, importers in may_import.items()
        if not (name := _ids(path)).startswith(importers)
        and (
            module.startswith(folder)
            or (name.startswith("cli/") and not {"sqlite", "psycopg"}.isdisjoint(module.split(".")))
        )
    ]

    assert strays == []


def _surface_trees(trees: dict[Path, ast.Module]) -> dict[str, ast.Module]:
    """Return the modules of the surfaces; what the gateway stores is not one."""
    parts = {path: path.relative_to(SRC).parts for path in trees}
    surfaces = [path for path in trees if parts[path][0] in SURFACES and parts[path][:2] != ("gateway", "state")]
    return {_ids(path): trees[path] for path in surfaces}


def test_a_surface_reaches_data_only_through_operations(trees: dict[Path, ast.Module]) -> None:
    """No surface touches the space of a user: it hands its caller to an operation."""
    strays = [
        f"{name}:{node.lineno} uses .{node.attr}"
        for name, tree in _surface_trees(trees).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"space", "owner"}
    ]

    assert strays == []


def test_a_surface_imports_values_and_no_stores(trees: dict[Path, ast.Module]) -> None:
    """Of the app a surface imports how to open it, the caller and its scopes; of the tiers values and functions."""
    strays = [
        f"{name} imports {imported}"
        for name, tree in _surface_trees(trees).items()
        for imported in _imported(tree) - SURFACE_MAY_IMPORT
        if _is_of_the_app(imported) or _is_store(imported, trees)
    ]

    assert strays == []


def test_every_text_that_enters_a_context_states_its_source(trees: dict[Path, ast.Module]) -> None:
    """A surface says who wrote a message, the agent stores it, and a tool is called with what taints its writes."""
    strays = [
        f"{_ids(path)}:{node.lineno} names no {wanted}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (wanted := _find_stated(path.relative_to(SRC).parts[0], node)) is not None
        and wanted not in {keyword.arg for keyword in node.keywords}
    ]

    assert strays == []


def _find_stated(package: str, call: ast.Call) -> str | None:
    """Return the keyword with which a call states a source; None for calls that bring no text into a context."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "ToolContext" and package != "testing":
        return "find_taint"
    if name == "turn" and package in SURFACES:
        return "source"
    is_person = any(isinstance(one, ast.Attribute) and one.attr == "PERSON" for one in call.args)
    return "source" if name == "NewMessage" and package == "agent" and is_person else None


def _is_of_the_app(imported: str) -> bool:
    names = {"wellkept.app.App", "wellkept.app.Caller", "wellkept.app.Scope", "wellkept.app.open_app"}
    names |= {"wellkept.app.caller", "wellkept.app.caller.TOKEN_SCOPES"}
    return imported.startswith("wellkept.app") and imported not in names


def _is_store(imported: str, trees: dict[Path, ast.Module]) -> bool:
    """Whether a class, or a module with such a class, holds data: values are structs, enums and errors."""
    package, _, name = imported.removeprefix("wellkept.").rpartition(".")
    if package.partition(".")[0] not in TIERS:
        return False
    whole, part = (SRC.joinpath(*place.split(".")).with_suffix(".py") for place in (f"{package}.{name}", package))
    if whole in trees:
        return any(not _is_value(each) for each in ast.walk(trees[whole]) if isinstance(each, ast.ClassDef))
    body = trees[part].body if part in trees else []
    return any(isinstance(each, ast.ClassDef) and each.name == name and not _is_value(each) for each in body)


def _is_value(definition: ast.ClassDef) -> bool:
    values = ("Struct", "Enum", "Error", "Exception", "NamedTuple")
    is_derived = any(keyword.arg in {"frozen", "kw_only"} for keyword in definition.keywords)  # from another struct
    return is_derived or any(ast.unparse(base).endswith(values) for base in definition.bases)


def test_the_check_for_stores_knows_the_stores(trees: dict[Path, ast.Module]) -> None:
    """The stores of every tier count as stores, however they are imported."""
    stores = {
        "wellkept.memory.store.MemoryStore",
        "wellkept.memory.store",
        "wellkept.memory.approval.Approvals",
        "wellkept.sessions.ports.Sessions",
        "wellkept.sessions.sqlite.store.SqliteSessionStore",
        "wellkept.skills.library.SkillLibrary",
        "wellkept.skills.editor.SkillEditor",
        "wellkept.skills.tool.SkillTools",
        "wellkept.skills.hub.hub.Hub",
        "wellkept.skills.curator.curator.Curator",
        "wellkept.providers.outbox.Outbox",
        "wellkept.providers.audit.Audit",
        "wellkept.storage.sqlite.Database",
    }

    assert {name for name in stores if not _is_store(name, trees)} == set()


def test_nothing_is_promised_in_a_comment() -> None:
    """No to-do mark stands in the source."""
    marks = [_ids(path) for path in MODULES if any(mark in path.read_text() for mark in ("TO" + "DO", "FIX" + "ME"))]

    assert marks == []


@pytest.mark.parametrize("folder", sorted(SRC.rglob("migrations")), ids=lambda folder: folder.parent.name)
def test_migrations_are_numbered_one_after_the_other(folder: Path) -> None:
    """Of two migrations with one number only the first would be applied."""
    numbers = sorted(int(path.name.partition("_")[0]) for path in folder.glob("*.sql"))

    assert numbers == list(range(1, len(numbers) + 1))


OPENS_FILES = {
    "core/regular_files.py": "the one way to read a file",
    "core/text.py": "resources of the package",
    "storage/files.py": "new files and folders",
    "storage/tree.py": "files relative to a folder, closed as every file is",
    "storage/archive.py": "new files of an archive",
    "storage/documents.py": "appends, and locks its own file",
    "storage/sqlite.py": "marks in a folder who waits for a lock",
    "storage/locks.py": "locks, and new files to try what a file system supports",
    "sessions/sqlite/semantic.py": "a new cache beside the database",
    "connect/events.py": "a new file for a prompt",
    "formats/openclaw.py": "resources of the package",
    "backup/files.py": "new files of an archive",
    "observe.py": "appends to the log",
    "cli/hook.py": "appends to the log",
    "cli/main.py": "the null device",
    "cli/entry.py": "the null device",
    "mcp_server/server.py": "the null device",
    "agent/mcp_tools.py": "a new log of a process",
    "agent/file_search.py": "a program of its own, which has no database open",
    "providers/hindsight/provider.py": "appends to the log of a process",
    "gateway/metrics.py": "the kernel's files",
    "core/agency.py": "the kernel's files",
    "core/installation.py": "a script of the environment",
    "storage/connections.py": "resources of the package",
    "storage/postgres/schema.py": "resources of the package",
    "sessions/search/analysis.py": "resources of the package",
    "languages/language.py": "resources of the package",
    "gateway/web/frame.py": "resources of the package",
}
"""Who opens files by other means than `core/regular_files.py`: none of them reads a file that somebody else names."""
_MODES = re.compile(r"[rwax+bt]{1,4}")
_COPIES = {"copy", "copy2", "copyfile", "copytree"}


def test_files_are_read_in_one_way(trees: dict[Path, ast.Module]) -> None:
    """Closing a file that is open as a database releases SQLite's locks on it, so every reader has to know of it."""
    others = {
        _ids(path)
        for path, tree in trees.items()
        if "testing" not in path.parts
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _opens_a_file(node)
    }

    assert others == set(OPENS_FILES)


def _opens_a_file(call: ast.Call) -> bool:
    match call.func:
        case ast.Name("open") | ast.Attribute(ast.Name("os" | "io" | "builtins"), "open"):
            return True
        case ast.Attribute(ast.Name("shutil"), name) if name in _COPIES:
            return not any(keyword.arg == "copy_function" for keyword in call.keywords)
        case ast.Attribute(_, "read_text" | "read_bytes" as name):
            # PostgreSQL's units of work read rows as bytes
            return not (name == "read_bytes" and call.args)
        case ast.Attribute(_, "open"):
            modes = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
            is_mode = [isinstance(mode, ast.Constant) and bool(_MODES.fullmatch(str(mode.value))) for mode in modes]
            return any(is_mode) or not (call.args or call.keywords)
        case _:
            return False


WRITES_FILES = {
    "storage/files.py": "the one way",
    "storage/sqlite.py": "a new database, which gets its name when it is complete",
    "storage/swap.py": "databases, with its own order of syncs",
    "storage/archive.py": "archives, with its own order of syncs; unpacks into scratch folders",
    "storage/documents.py": "appends and syncs",
    "storage/log_recovery.py": "a log and its database, with its own order of syncs",
    "storage/locks.py": "a file that tells which locks the file system has, and is removed",
    "storage/tree.py": "the same steps below the descriptor of a folder, so that no link is followed",
    "skills/hub/fetch.py": "a scratch folder, from which skills are installed",
    "backup/files.py": "a scratch folder, from which the archive is written",
    "operations/profiles.py": "a scratch folder, which is published",
    "imports/assets.py": "a copied folder, which is synced",
    "sessions/sqlite/semantic.py": "a cache",
    "sessions/embedding/local.py": "a converted model, which can be converted again",
    "connect/record.py": "the newest errors of a connection",
    "connect/events.py": "the prompt of a turn that is under way",
    "connect/hooks.py": "the time of the last event",
    "cli/chat/input_line.py": "the history of the input line",
    "cli/terminal.py": "the text in an editor",
    "cli/hook.py": "a log",
    "observe.py": "a log",
    "agent/mcp_tools.py": "a log of a process",
    "providers/hindsight/provider.py": "a log of a process",
}
"""Who changes files by other means than `storage/files.py`: nothing that a command reports as done is only there."""
_WRITING_MODES = re.compile(r"[wax]|[rb]*\+")
_CREATES = re.compile(r"^os\.open\(.*\b(O_CREAT|flags)\b")
_WRITERS = {f"os.{name}" for name in ("rename", "replace", "link", "symlink", "mkdir", "makedirs")}
_WRITERS |= {f"shutil.{name}" for name in (*_COPIES, "move")}
_METHODS_THAT_WRITE = {"write_text", "write_bytes", "touch", "mkdir", "symlink_to", "hardlink_to"}


def test_files_are_written_in_one_way(trees: dict[Path, ast.Module]) -> None:
    """A command that reports a change must have synced it; other code does not see what a loss of power takes away."""
    others = {
        _ids(path)
        for path, tree in trees.items()
        if "testing" not in path.parts
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _writes_a_file(node)
    }

    assert others == set(WRITES_FILES)


def _writes_a_file(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, name = ast.unparse(call.func.value), call.func.attr
    if owner in {"os", "shutil", "tarfile", "zipfile"}:  # the archives write to the file that they are given
        return f"{owner}.{name}" in _WRITERS or (owner == "os" and bool(_CREATES.search(ast.unparse(call))))
    if name in {"rename", "replace"}:  # of a path; those of texts, rows and dates have more arguments
        return len(call.args) == 1 and not call.keywords
    if name == "open":
        modes = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        return any(isinstance(mode, ast.Constant) and _WRITING_MODES.match(str(mode.value)) for mode in modes)
    return name in _METHODS_THAT_WRITE


def test_databases_are_opened_in_one_way(trees: dict[Path, ast.Module]) -> None:
    """Every connection to a file is registered, so that its file is never closed under it."""
    connects = {
        (_ids(path), ast.unparse(node.args[0]))
        for path, tree in trees.items()
        if path.is_relative_to(SRC / "storage")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"apsw.Connection", "_Connection"}
    }

    assert {place for place, name in connects if name != "':memory:'"} == {"storage/connections.py"}
    assert not any("sqlite3" in _imported(tree) for tree in trees.values())


GATES = {"caller.require_person", "self.caller.require_person", "_decide", "require_person", "refuse_decision"}
"""The calls that make sure that a person decides."""
DECIDING = (
    r"approvals\.(?:approve|reject)$",
    r"\bpending\.(?:approve|reject)$",
    r"^_writable\(caller\)\.(?:accept|purge|install)$",
    r"^set_trust$",
    r"^Forgetter\(caller\)\.carry_out$|^_carry_out$",
    r"^(?:replace_exactly|edit_page|restore_text|reset|import_text)$",
    r"^(?:un)?set_secret$",
    r"^_write_seen$|^mark_seen$",
    r"^_writable\(caller\)\.restore$|\bcurator\.roll_back$",
)
"""The calls that carry out what only a person may decide."""
DECIDING_STATEMENTS = r"\b(?:INSERT INTO|DELETE FROM|UPDATE) (?:tokens|platform_people)\b"
WITHOUT_GATE = {
    "forgetting/forget.py:_carry_out": "its callers ask",
    "forgetting/forget.py:_finish": "continues what a person had decided before the process was killed",
    "imports/undo.py:_remove_value": "its only caller asks",
    "operations/news.py:mark_seen": "its callers ask, or fill an empty home",
    "operations/demo.py:_write_entries": "fills an empty home",
    "gateway/state/tokens.py:_note_use": "notes when a token was used",
    "gateway/state/tokens.py:_store": "its callers ask",
    "gateway/state/tokens.py:sign_out": "removes the token of the browser that asks",
    "cli/commands/skills.py:rollback": "calls the operation, which asks",
    "cli/commands/skills.py:_propose": "carries out merges of skills, by another function of this name",
    "cli/commands/skills.py:run": "the same",
    "agent/without_model/keeping.py:_withdraw_corrected": "the person has just said it differently",
    "agent/without_model/keeping.py:withdraw": "the person has just said it differently",
}


def _functions(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in trees.items():
        if path.relative_to(SRC).parts[0] not in TIERS | {"testing", "formats", "config"}:
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{_ids(path)}:{node.name}", node


def _calls(function: ast.AST) -> set[str]:
    return {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}


def test_only_a_person_decides(trees: dict[Path, ast.Module]) -> None:
    """Whatever carries out a decision makes sure, in the same function, that a person takes it."""
    asking = {
        name: bool(GATES & _calls(function)) or "caller.require(Scope.DECIDE)" in ast.unparse(function)
        for name, function in _functions(trees)
        if any(re.search(pattern, call) for pattern in DECIDING for call in _calls(function))
        or any(
            isinstance(node, ast.Constant) and re.search(DECIDING_STATEMENTS, str(node.value))
            for node in ast.walk(function)
        )
    }

    assert {name for name, asks in asking.items() if not asks} <= set(WITHOUT_GATE)


def test_the_rights_of_a_person_are_given_in_few_places(trees: dict[Path, ast.Module]) -> None:
    """Only these modules name the scopes that contain decisions; everything else passes on what a caller has."""
    named = {
        _ids(path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in {"OWNER_SCOPES", "USER_SCOPES"})
        or (isinstance(node, ast.Attribute) and node.attr in {"DECIDE", "person"} and "pp" in ast.unparse(node.value))
    }

    assert named <= {
        "app/caller.py", "app/root.py", "gateway/identity.py", "gateway/switchboard.py", "gateway/state/tokens.py",
    }  # fmt: skip


def test_settings_are_loosened_only_with_a_reason(trees: dict[Path, ast.Module]) -> None:
    """Only what protects more is written without asking whether a person decides."""
    unasked = {
        name
        for name, function in _functions(trees)
        for node in ast.walk(function)
        if isinstance(node, ast.keyword) and node.arg == "why_no_person" and ast.unparse(node.value) == "''"
    }

    assert unasked == {"operations/providers.py:switch_off", "backup/files.py:_drop_address"}


STARTS = {"subprocess.Popen", "subprocess.run", "os.posix_spawnp", "StdioServerParameters"}


def test_processes_carry_the_mark_of_an_agent(trees: dict[Path, ast.Module]) -> None:
    """Every process that kept starts is marked, except the editor of the person."""
    unmarked = {
        f"{_ids(path)}:{node.name}"
        for path, tree in trees.items()
        if path.relative_to(SRC).parts[0] != "testing"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        if STARTS & (calls := _calls(node)) and "mark_environment" not in calls
    }

    assert unmarked == {"cli/terminal.py:edit_text"}


OLD_NAME = re.compile(
    r"(?:pip3?|pipx|uv pip|uv tool|npm|pnpm|yarn) (?:install|add)\b[^`\n|#]*?[ '\"]kept(?![\w./-])"
    r"|\b(?:uvx|npx|pipx run) kept\b|\bfrom kept(?:\.\w+)* import\b|^\s*import kept\b|-m kept\b"
)


def test_no_hint_installs_the_package_of_a_stranger():
    """`kept` belongs to others on the indexes: hints, guides and configurations name `wellkept`."""
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=SRC.parents[1], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    texts = {name: SRC.parents[1] / name for name in tracked if name and not name.startswith("tests/")}
    wrong = [
        f"{name}:{number}: {line.strip()}"
        for name, path in texts.items()
        if path.is_file() and path.suffix not in {".png", ".bin"}
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1)
        if OLD_NAME.search(line)
    ]

    assert wrong == []
    assert OLD_NAME.search("run: pip install 'kept[gateway]'")
    assert not OLD_NAME.search("Without make: `pip install .`, then `kept chat`.")


def test_pages_are_freed_in_one_way():
    """SQLite's VACUUM leaves out a table whose declaration has a damaged letter; one function looks at them first."""
    strays = {_ids(path) for path in SRC.rglob("*.py") if re.search(r'execute\(f?"VACUUM', path.read_text("utf-8"))}

    assert strays == {"storage/maintenance.py", "storage/postgres/rewrite.py"}


def test_every_module_is_used():
    """A module that nothing names was left behind when its content moved."""
    texts = {path: path.read_text("utf-8") for path in SRC.rglob("*.py")}
    unused = []
    for path in texts:
        module = ".".join(path.relative_to(SRC.parent).with_suffix("").parts)
        package, _, leaf = module.rpartition(".")
        others = "\n".join(text for other, text in texts.items() if other != path)
        named = (
            rf"{re.escape(module)}\b|from {re.escape(package)} import (?:\([^)]*|[^\n]*)\b{leaf}\b|[\"'.]{leaf}[\"':.]"
            rf"|\b{package.rpartition('.')[2]}\.{leaf}\b"
        )
        if not leaf.startswith("__") and "testing" not in path.parts and re.search(named, others) is None:
            unused.append(module)

    assert unused == []
