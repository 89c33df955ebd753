"""A home on a full disk or a read-only file system, through every surface by its real command.

What is stored can be read; every write says why it was refused and what to do, with the exit code of storage;
a chat continues, says that nothing is stored, and stores again when there is room.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
from tests import forks

KEPT = " ".join(forks.command("-m", "wellkept"))
STORAGE = 74


def namespaces_work():
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


pytestmark = [
    pytest.mark.skipif(not namespaces_work(), reason="unshare -rm with a tmpfs is forbidden here"),
    pytest.mark.timeout(120),
]

SPOKEN = "The staging database runs on heron, port 5433."
FULL = "head -c 100000000 /dev/zero > $KEPT_HOME/filler 2>/dev/null"
READ_ONLY = "mount -o remount,ro $KEPT_HOME"
WRITES = [
    "memory add another",
    "memory undo",
    "memory reset --yes",
    "sessions import $OUTSIDE/lines.jsonl",
    "sessions rename $ID title",
    "sessions delete $ID --yes",
    "sessions reindex",
    "sessions repair",
    "forget --session $ID --yes",
    "skills create a-demo --description 'Shows how a demo is run. Use for demos.' --file $OUTSIDE/skill.md",
    "config set memory.overflow archive",
    "run 'Remember that I like green tea'",
]
READS = {
    "memory show": "the first fact",
    "memory log": "the first fact",
    "sessions list": SPOKEN,
    "sessions search heron": SPOKEN,
    "sessions show $ID": SPOKEN,
    "sessions export": SPOKEN,
    """tool session_search '{"query": "heron"}'""": SPOKEN,
    "run 'Where does the staging database run?'": SPOKEN,
    "backup $OUTSIDE/home.tar.gz --overwrite --verify": "written and verified",
}


def ran(tmp_path, refusing):
    """Run every surface in a home on a tmpfs that `refusing` makes refuse; return command -> (code, out, err)."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "lines.jsonl").write_text(
        json.dumps({"session_id": "s", "role": "user", "content": "x", "timestamp": 1})
    )
    (outside / "skill.md").write_text("# A demo\n\n## Steps\n\n1. Run the demo, and look at what it shows.\n")
    lines = [
        "mkdir -p $KEPT_HOME && mount -t tmpfs -o size=3m tmpfs $KEPT_HOME || exit 9",
        "$KEPT memory add 'the first fact' >/dev/null || exit 8",
        "$KEPT memory add 'the second fact' >/dev/null || exit 8",
        f"echo {SPOKEN!r} | $KEPT chat >/dev/null 2>&1 || exit 7",
        "ID=$($KEPT sessions list | head -n 1 | cut -d' ' -f1)",
        refusing,
    ]
    for number, command in enumerate([*WRITES, *READS, "doctor --offline"]):
        place = f"$OUTSIDE/{number}"
        lines.append(f"$KEPT {command} >{place}.out 2>{place}.err </dev/null; echo $? >{place}.code")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KEPT": KEPT, "KEPT_HOME": str(tmp_path / "home"), "OUTSIDE": str(outside)},
    )
    assert done.returncode == 0, done.stderr
    answers = {}
    for number, command in enumerate([*WRITES, *READS, "doctor --offline"]):
        code, out, errors = ((outside / f"{number}.{kind}").read_text() for kind in ("code", "out", "err"))
        assert "Traceback" not in errors, (command, errors)
        assert "this is a bug" not in errors, (command, errors)
        answers[command] = (int(code), out, errors)
    return answers


@pytest.mark.parametrize(
    ("refusing", "why"), [(FULL, "disk is full"), (READ_ONLY, "read-only")], ids=["full", "read-only"]
)
def test_what_is_stored_can_be_read_and_every_write_says_why_not(tmp_path, refusing, why):
    """Reads of pages, ledger and sessions answer; writes end with 74, the reason and the next step."""
    answers = ran(tmp_path, refusing)

    for command in WRITES:
        code, _, errors = answers[command]
        assert code == STORAGE, (command, answers[command])
        assert "next:" in errors, (command, errors)
        assert why in errors, (command, errors)
    for command, text in READS.items():
        code, out, errors = answers[command]
        assert code == 0, (command, answers[command])
        assert text in out, (command, out, errors)
    code, out, _ = answers["doctor --offline"]
    assert code == 1
    assert why in out
    assert "damaged" not in out


def test_a_home_that_cannot_be_made_holds_no_sessions_yet(tmp_path):
    """On a read-only file system without a database reads answer as in a new home; a write says why it cannot be."""
    commands = {
        "sessions list": (0, "no sessions"),
        "sessions search heron": (0, "nothing matched"),
        "sessions stats": (0, "messages     0"),
        "sessions export": (0, ""),
        "usage": (0, "no model calls"),
        "sessions show heron": (2, "there is no session"),
        """tool session_search '{"query": "heron"}'""": (0, "nothing matched"),
        "sessions import $LINES": (STORAGE, "Read-only file system"),
        "sessions reindex": (STORAGE, "Read-only file system"),
    }
    (tmp_path / "lines.jsonl").write_text('{"session_id": "s", "role": "user", "content": "x", "timestamp": 1}')
    runs = [f"$KEPT {command} 2>&1; echo code $?; echo ===" for command in commands]
    begin = "mkdir -p $KEPT_HOME && mount -t tmpfs tmpfs $KEPT_HOME && mount -o remount,ro $KEPT_HOME || exit 9"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", "\n".join([begin, *runs])],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "KEPT": KEPT,
            "KEPT_HOME": str(tmp_path / "home"),
            "LINES": str(tmp_path / "lines.jsonl"),
        },
    )

    answers = done.stdout.split("===\n")
    for (command, (code, words)), answer in zip(commands.items(), answers, strict=False):
        assert words in answer, (command, answer)
        assert answer.endswith(f"code {code}\n"), (command, answer)
        assert "Traceback" not in answer, (command, answer)


TALK = """
import json, os, subprocess, sys, time
from pathlib import Path
kept, home = os.environ["KEPT"].split(), Path(os.environ["KEPT_HOME"])
begins_full = sys.argv[1] == "full at the start"
filler = home / "filler"

def fill():
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass

subprocess.run([*kept, "memory", "add", "the first fact"], check=True, capture_output=True)
subprocess.run([*kept, "chat"], input="An older talk of badgers.", check=True, capture_output=True, text=True)
if begins_full:
    fill()
chat = subprocess.Popen([*kept, "chat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
heard = []

def turn(text, until):
    chat.stdin.write(text + "\\n")
    chat.stdin.flush()
    lines = []
    while not any(word in line for line in lines for word in until):
        line = chat.stdout.readline()
        assert line, (lines, heard)
        lines.append(line)
    heard.append("".join(lines))

if not begins_full:
    turn("A word about walruses.", ["I keep this conversation"])
    fill()
for number in range(40):  # the log of the database may have some room of its own left
    turn(f"Words on a full disk about otters {number}. " + "Padding. " * 3000, ["(not stored", "I keep this"])
    if "(not stored" in heard[-1]:
        break
turn("More words about lemurs, still full.", ["(not stored"])
filler.unlink()
turn("Words with room about beavers.", ["I keep this conversation"])
chat.stdin.close()
rest = chat.stdout.read()
found = {}
for word in ("walruses", "otters", "lemurs", "beavers", "badgers"):
    done = subprocess.run([*kept, "sessions", "search", word, "--json"], check=True, capture_output=True, text=True)
    found[word] = word in done.stdout.replace('"query": "' + word + '"', "")
print(json.dumps({"heard": heard, "code": chat.wait(), "found": found, "rest": rest}))
"""


@pytest.mark.parametrize("when", ["full at the start", "full later"])
def test_a_chat_outlives_a_full_disk_and_stores_again(tmp_path, when):
    """In one process: what was said while the disk was full is stored too, as soon as there is room."""
    script = f'mkdir -p $KEPT_HOME && mount -t tmpfs -o size=3m tmpfs $KEPT_HOME && exec {sys.executable} -c "$TALK" "{when}"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KEPT": KEPT, "KEPT_HOME": str(tmp_path / "home"), "TALK": TALK},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    everything = "".join(told["heard"])

    assert told["code"] == 0
    assert "this conversation is not being stored" in everything
    assert "disk is full" in everything
    assert everything.count("this conversation is not being stored: cannot") == 1, "said once, then after each turn"
    assert "writing works again" in everything
    assert "Traceback" not in everything
    assert all(told["found"][word] for word in ("otters", "lemurs", "beavers", "badgers")), told["found"]
    assert told["found"]["walruses"] is (when == "full later")
