"""The commands in the documentation: each is one that the program has, and its examples answer as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "reference"),
]
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(kept (?:[^`\n]|\\\|)+)`")
GLOBAL = {"--home", "--profile", "-p", "--as", "--debug", "--help", "-h", "--install-completion", "--show-completion"}
COMING = "kept import hermes"
"""The importer that spec 2 has us name where another agent's database is met; take this away when it is there."""
HIDDEN = "kept hook"
"""Run by other programs only, and before the command line is loaded."""
NO_COMMANDS = {"needs"}
"""Words after `kept` that begin a sentence which the program says."""


def commands_on(page):
    """Return every command line that a page shows: in console blocks, in tables and in the text."""
    text = page.read_text(encoding="utf-8")
    shown = [line.strip().removeprefix("$ ") for block in BLOCK.findall(text) for line in block.splitlines()]
    found = [line.split(" | ")[-1] if line.startswith("echo ") else line for line in shown]
    found += [match.replace("\\|", "|") for match in INLINE.findall(BLOCK.sub("", text))]
    return sorted({line for line in found if line.startswith("kept ") and line.split()[1] not in NO_COMMANDS})


@pytest.fixture(scope="module")
def program():
    from typer.main import get_command

    from wellkept.cli.main import build_all

    return get_command(build_all())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_exists(page, program):
    """Its words lead to a command, and that command has each option that is written."""
    check_commands(page, commands_on(page), program)


def test_every_command_that_the_program_names_exists(program):
    """A remedy, a hint or a text for the model sends nobody to a command that there is not."""
    for path in sorted(path for kind in ("*.py", "*.md") for path in (ROOT / "src").rglob(kind)):
        named = {
            line for line in INLINE.findall(path.read_text(encoding="utf-8")) if not line.startswith((COMING, HIDDEN))
        }
        check_commands(path, sorted(named), program)


def check_commands(page, lines, program):
    """Fail where a line names a command or an option that the program does not have."""
    for line in lines:
        words = [word.strip("[]…,.") for word in re.split(r"\s+", line.split("  ")[0].split(" #")[0])[1:]]
        command, options = program, set(GLOBAL)
        for word in words:
            inner = getattr(command, "commands", {})
            if word in inner:
                command = inner[word]
                options |= {name for parameter in command.params for name in parameter.opts}
            elif (
                inner
                and re.fullmatch(r"[a-z][a-z-]+", word)
                and words[words.index(word) - 1] not in {"-p", "--as", "|"}
            ):
                pytest.fail(f"{page.name}: `{line}`: `{command.name}` has no command {word!r}")
        named = {word.split("=")[0] for word in words if re.match(r"-{1,2}[a-z]", word)}
        assert named <= options, f"{page.name}: `{line}`: no such option {sorted(named - options)}"


def examples(page):
    """Return a page's console blocks as (command, typed lines, printed lines), in order."""
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if not block.startswith("$ "):
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *rest = part.rstrip("\n").split("\n")
            typed = (
                [line.removeprefix("> ") for line in rest if line.startswith("> ")] if command == "kept chat" else []
            )
            found.append((command, typed, [line for line in rest if not line.startswith("> ")]))
    return found


VARYING = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?|\d{8}_\d{6}_[0-9a-f]{6}|\b[0-9a-f]{8}\b|message \d+")


@pytest.mark.parametrize(("page", "until"), [("README.md", ""), ("docs/memory.md", "kept memory pending")])
def test_the_examples_answer_as_printed(tmp_path, page, until):
    """A new user who types a page's examples in order sees the page's answers, dates and ids aside."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    places = {"HOME": str(tmp_path), "KEPT_HOME": str(tmp_path / "home")}
    every = examples(ROOT / page)
    assert len(every) >= 5
    for command, typed, printed in every:
        if command == until:  # what follows needs an agent that asked for something
            break
        done = subprocess.run(
            ["sh", "-c", command],
            input="\n".join(typed),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **places, "PATH": path},
            cwd=tmp_path,
        )
        said = VARYING.sub("…", done.stdout + done.stderr)
        for line in printed:
            assert VARYING.sub("…", line) in said, (command, line, said)
