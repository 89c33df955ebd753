"""`kept tool NAME '{json}'`: the agent's tools from a shell."""

import json
import subprocess
import sys

import pytest

from wellkept.cli import entry


def call(run, arguments, **options):
    return run("tool", "memory", arguments if isinstance(arguments, str) else json.dumps(arguments), **options)


def test_an_accepted_call_prints_its_json_and_ends_with_zero(run):
    """The exact call of the issue."""
    ran = call(run, '{"action":"add","target":"memory","content":"Project uses pytest"}')

    assert ran.code == 0
    assert json.loads(ran.out)["entries"] == ["Project uses pytest"]


def test_a_refused_call_prints_its_json_and_ends_with_one(run):
    """The same shape, success false, with a remedy."""
    ran = call(run, {"action": "remove", "target": "memory", "old_text": "absent"})

    assert ran.code == 1
    answer = json.loads(ran.out)
    assert answer["success"] is False
    assert answer["remedy"]


@pytest.mark.parametrize(
    "arguments",
    [
        {}, {"action": None}, {"target": 5}, {"target": "memory", "action": "add"}, {"target": "memory", "content": 5},
        {"target": "memory", "action": "add", "content": ""}, {"target": "memory", "action": "add", "content": "\x00\x1b"},
        {"target": "memory", "action": "add", "content": "\ud800"}, {"target": "memory", "action": "add", "content": "x" * 10_000_000},
        {"target": "memory", "operations": [{}]}, {"target": "memory", "operations": "x"}, {"target": ["memory"]},
        {"target": "memory", "operations": [{"action": "add", "content": "ok"}, {"action": "add", "content": "\x07"}]},
    ],
)  # fmt: skip
def test_bad_arguments_are_a_json_refusal(run, home, arguments):
    """Missing, null, wrong, empty, huge, control characters: exit 1 and a JSON answer with a remedy."""
    ran = call(run, "-", stdin=json.dumps(arguments).encode())

    assert ran.code == 1
    answer = json.loads(ran.out)
    assert answer["success"] is False
    assert answer["error"]
    assert answer["remedy"]
    assert not (home / "memories" / "MEMORY.md").exists()


@pytest.mark.parametrize("text", ["", "{", "nonsense", "[]", '"x"', "5", "[" * 100_000, '{"a":' * 5_000])
def test_what_is_no_json_object_is_wrong_usage(run, text):
    """Exit 2 with the right form."""
    ran = call(run, "-", stdin=text.encode())

    assert ran.code == 2
    assert "kept tool memory '{" in ran.err


def test_bytes_that_are_no_text_are_wrong_usage(run):
    """Standard input must be UTF-8."""
    assert call(run, "-", stdin=b'{"target": "\xff"}').code == 2


def test_an_unknown_tool_names_the_nearest(run):
    """And lists what there is."""
    ran = run("tool", "memry", "{}")

    assert ran.code == 2
    assert "'memory'" in ran.err


def test_without_a_name_the_tools_are_listed(run):
    """One line each."""
    ran = run("tool")

    assert ran.code == 0
    assert ran.out.startswith("memory  [memory]")


def test_the_list_answers_programs(run):
    """With the parameters of each tool."""
    listed = {each["name"]: each for each in json.loads(run("tool", "--json").out)}

    assert listed["memory"]["toolset"] == "memory"
    assert "target" in listed["memory"]["parameters"]["properties"]


LOST = """
import sys, time
from wellkept.cli import entry, main
class Callback:
    def __del__(self):
        raise KeyboardInterrupt
def build(arguments):
    Callback()
    time.sleep(60)
main.build = build
sys.argv = ["kept", "version"]
entry.main()
"""


def test_an_interrupt_in_a_callback_is_not_lost():
    """Python only reports an exception there; the command must end all the same."""
    assert subprocess.run([sys.executable, "-c", LOST], timeout=50, check=False).returncode == 130


def test_a_command_leaves_the_report_of_lost_exceptions_as_it_found_it(monkeypatch):
    """Thousands of commands in one process must not report through one another."""
    before = sys.unraisablehook
    monkeypatch.setattr(sys, "argv", ["kept", "version"])

    with pytest.raises(SystemExit):
        entry.main()

    assert sys.unraisablehook is before


def test_an_interrupt_while_the_program_loads_is_no_traceback():
    """Ctrl-C right after the command was typed."""
    script = "import sys; sys.modules['wellkept.cli.main'] = None\nfrom wellkept.cli import entry\n"
    script += "import builtins; real = builtins.__import__\ndef load(name, *more):\n"
    script += " if name == 'wellkept.cli.main': raise KeyboardInterrupt\n return real(name, *more)\n"
    script += "builtins.__import__ = load; sys.argv = ['kept', 'version']; entry.main()"

    ended = subprocess.run([sys.executable, "-c", script], timeout=50, check=False, capture_output=True)

    assert (ended.returncode, ended.stderr) == (130, b"")
