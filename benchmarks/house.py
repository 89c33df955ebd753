"""The shape of the tree: its size, how much of it one must know, and how much of it one command runs.

    python benchmarks/house.py [--json] [--tree]

`--tree` leaves out the modules run by commands, which takes some seconds. Docstrings and comments count as lines.
"""

import argparse
import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
SATELLITES = (
    "agent/", "cli/", "gateway/", "mcp_server/", "formats/", "imports/", "connect/", "providers/",
    "testing/", "skills/hub/", "skills/curator/", "sessions/postgres/", "storage/postgres/", "memory/postgres.py",
    "salvage/", "storage/row_checksums.py", "storage/columns.py", "sessions/sqlite/recovery.py",
    "sessions/sqlite/repair.py", "sessions/sqlite/fts5.py", "sessions/sqlite/checksums.py",
    # what only the agent, plugins or PostgreSQL uses
    "operations/storage", "operations/vectors.py", "operations/plugins.py",
    "operations/providers.py", "operations/evaluation.py", "operations/demo.py", "operations/slash_commands.py",
    "operations/curator.py", "operations/models.py",
)  # fmt: skip
"""What a change to the tiers, storage or search does not need to know; everything else is the core."""
LEAST_BUNCH, OLD_LIMIT = 381, 400
COMMANDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "memory add": (("memory", "add", "I like tea"), ""),
    "search": (("sessions", "search", "When did we move the staging server?"), ""),
    "turn": (("run", "Where is the staging server?"), ""),
    "hook prompt": (
        ("hook", "claude-code"),
        json.dumps(
            {
                "hook_event_name": "UserPromptSubmit",
                "session_id": "a",
                "cwd": "/",
                "prompt": "where did we move the staging server",
            }
        ),
    ),
}
OBSERVED = """
import atexit, os, sys, threading
sys.path.insert(0, {benchmarks!r})
from touched import Touched
touched = Touched(package={package!r})
report = lambda: open({report!r}, "w").write(str(len(touched.modules)))
atexit.register(report)
leave = os._exit
setattr(os, "_exit", lambda status: (report(), leave(status)))
threading.setprofile(touched)
sys.setprofile(touched)
from {package}.__main__ import main
sys.argv = ["kept", *sys.argv[1:]]
main()
"""


def main() -> None:
    """Print the numbers."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tree", action="store_true")
    options.add_argument("--json", action="store_true")
    chosen = options.parse_args()
    package = next(path for path in sorted(SOURCE.iterdir()) if (path / "__init__.py").is_file())
    numbers = dict(measure_tree(package))
    if not chosen.tree:
        numbers |= {f"modules run: {name}": count for name, count in measure_runs(package.name)}
    if chosen.json:
        print(json.dumps(numbers))
    else:
        for name, number in numbers.items():
            print(f"{number:>9,}  {name}" if isinstance(number, int) else f"{number:>9.1%}  {name}")


def measure_tree(package: Path) -> Iterator[tuple[str, int | float]]:
    """Count modules, lines and private functions."""
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in sorted(package.rglob("*.py"))}
    counted = [path for path in lines if path.name != "__init__.py" and path.relative_to(package).parts[0] != "testing"]
    yield "modules outside testing and __init__", len(counted)
    yield "lines of src", sum(lines.values())
    yield (
        "lines of the core",
        sum(count for path, count in lines.items() if not str(path.relative_to(package)).startswith(SATELLITES)),
    )
    yield "modules of 381 to 400 lines", sum(LEAST_BUNCH <= lines[path] <= OLD_LIMIT for path in lines)
    names = Counter[str]()
    private = list[str]()
    for path in lines:
        uses, definitions = _read_names(path)
        private += [name for name in definitions if name.startswith("_") and not name.startswith("__")]
        names.update({f"{path}:{name}": count for name, count in uses.items()})
    once = sum(_used_once(path, names) for path in lines)
    yield "private functions", len(private)
    yield "private functions used once", once / len(private)


def _read_names(path: Path) -> tuple[Counter[str], list[str]]:
    uses = Counter[str]()
    definitions = list[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                definitions.append(name)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                uses[name] += 1
            case _:
                pass
    return uses, definitions


def _used_once(path: Path, names: Counter[str]) -> int:
    _uses, definitions = _read_names(path)
    return sum(
        name.startswith("_") and not name.startswith("__") and names[f"{path}:{name}"] == 1 for name in definitions
    )


def measure_runs(package: str) -> Iterator[tuple[str, int]]:
    """Count the modules that run code in each command and in one chat completion over HTTP, in a new home each."""
    for name, (arguments, given) in COMMANDS.items():
        with tempfile.TemporaryDirectory() as folder:
            _run(package, folder, "run", "We moved the staging server to heron on Monday.")
            yield name, _run(package, folder, *arguments, given=given)
    with tempfile.TemporaryDirectory() as folder:
        yield "HTTP completion", _serve(package, folder)


def _environment(folder: str) -> dict[str, str]:
    return {**os.environ, "HOME": folder, "KEPT_HOME": f"{folder}/home", "KEPT_CONNECT__PROMPT_SECONDS": "20"}


def _command(package: str, folder: str, *arguments: str) -> list[str]:
    program = OBSERVED.format(benchmarks=str(Path(__file__).parent), package=package, report=f"{folder}/count")
    return [sys.executable, "-c", program, *arguments]


def _run(package: str, folder: str, *arguments: str, given: str = "") -> int:
    environment = _environment(folder)
    command = _command(package, folder, *arguments)
    subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=True, cwd=folder)
    return int(Path(folder, "count").read_text(encoding="ascii"))


def _serve(package: str, folder: str) -> int:
    environment = _environment(folder)
    token = subprocess.run(
        [sys.executable, "-m", package, "serve", "token", "create", "--json"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    command = _command(package, folder, "serve", "--port", "0", "--json")
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        body = {"model": "kept", "messages": [{"role": "user", "content": "Where is the staging server?"}]}
        headers = {"authorization": f"Bearer {json.loads(token)['token']}", "content-type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        time.sleep(0.5)  # what the turn leaves to the background
        server.send_signal(signal.SIGTERM)
    return int(Path(folder, "count").read_text(encoding="ascii"))


if __name__ == "__main__":
    main()
