"""A disk that refuses: full, read-only, unreadable, undecodable, folders in the wrong place, held locks.

Every case goes through the real command in a process of its own: a clear error with the next step, the right
exit code, nothing lost, never a traceback.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests import forks

KEPT = Path(sys.executable).with_name("kept")
IN_SCRIPTS = " ".join(forks.command("-m", "wellkept"))
STORAGE, BUSY = 74, 75
# root passes every permission check; without capabilities it is an ordinary person
ORDINARY = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
HELD = """
import fcntl, os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(descriptor, fcntl.LOCK_EX)
os.ftruncate(descriptor, 0)
os.pwrite(descriptor, str(os.getpid()).encode(), 0)
print("held", flush=True)
time.sleep(120)
"""


def namespaces_work():
    if shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


in_a_namespace = pytest.mark.skipif(not namespaces_work(), reason="unshare -rm with a tmpfs is forbidden here")
as_a_person = pytest.mark.skipif(
    bool(ORDINARY) and shutil.which("setpriv") is None, reason="root without setpriv passes every permission check"
)


def kept(home, *arguments, prefix=(), **environment):
    """Run the real command and return (exit code, stdout, stderr); a traceback fails at once."""
    done = forks.run(
        [*prefix, str(KEPT), "--home", str(home), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def refused(answer, code, *words):
    """The command failed with this code and says these words, and what to do next."""
    assert answer[0] == code, answer
    assert "next:" in answer[2], answer
    for word in words:
        assert word in answer[2], answer


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A home with one entry, written by the command itself."""
    home = tmp_path_factory.mktemp("written") / "home"
    code, _, errors = kept(home, "memory", "add", "the first fact")
    assert code == 0, errors
    return home


@pytest.fixture
def home(written, tmp_path):
    """A copy of it."""
    return shutil.copytree(written, tmp_path / "home")


def page(home):
    return (home / "memories" / "MEMORY.md").read_bytes()


@in_a_namespace
def test_a_full_disk_costs_the_edit_and_nothing_else(tmp_path):
    """The add fails with the reason, the old page stays; with room again it works."""
    script = f"""
set -u
mount -t tmpfs -o size=400k tmpfs {tmp_path}
K="{IN_SCRIPTS} --home {tmp_path}/home"
$K memory add 'the first fact' >/dev/null || exit 9
head -c 1000000 /dev/zero > {tmp_path}/filler 2>/dev/null
$K memory add 'the second fact' 2>{tmp_path}/../errors; echo "code=$?"
cat {tmp_path}/home/memories/MEMORY.md; echo
ls -A {tmp_path}/home/memories
$K memory show --json; echo "code=$?"
rm {tmp_path}/filler
$K memory add 'the third fact' >/dev/null; echo "code=$?"
cat {tmp_path}/home/memories/MEMORY.md
$K memory log --json | head -c 4000
"""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)
    errors = (tmp_path.parent / "errors").read_text()
    lines = done.stdout.splitlines()

    assert "Traceback" not in done.stderr + errors
    assert lines[0] == f"code={STORAGE}", (lines, errors)
    assert "disk is full" in errors
    assert lines[1] == "the first fact"
    assert not any("kept-tmp" in line for line in lines)
    assert [line for line in lines if line.startswith("code=")] == ["code=74", "code=0", "code=0"]
    assert "the first fact\n§\nthe third fact" in done.stdout
    assert [row["after"] for row in json.loads(lines[-1].removeprefix("the third fact"))] == [
        "the third fact",
        "the first fact",
    ]


FILLING = """
import json, sys
from pathlib import Path
from wellkept.core.errors import KeptError
from wellkept.core.errors import Refused
from wellkept.memory.page import Add, Target, replay
from wellkept.memory.history import History
from wellkept.memory.page import parse
from wellkept.memory.settings import MemorySettings
from wellkept.memory.store import MemoryStore
root = Path(sys.argv[1])
accepted, failed = [], 0
for kilobytes in range(0, 160, 4):
    store = MemoryStore(root / "memories", MemorySettings(memory_char_limit=100_000))
    filler = root / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
    except OSError:
        pass
    import os
    os.truncate(filler, max(0, filler.stat().st_size - kilobytes * 1024))
    text = f"fact with {kilobytes} KB left " + "x" * 200
    try:
        store.apply("memory", Add(text))
        accepted.append(text)
    except KeptError as error:
        assert "full" in error.message + error.remedy, error
        failed += 1
    store.close()
    filler.unlink()
    on_disk = parse((root / "memories" / "MEMORY.md").read_bytes().decode()) if accepted else ()
    assert list(on_disk) == accepted, (kilobytes, on_disk[-1:], accepted[-1:])
    assert not list((root / "memories").glob(".*kept-tmp*"))
store = MemoryStore(root / "memories", MemorySettings(memory_char_limit=100_000))
store.apply("memory", Add("room again"))
accepted.append("room again")
assert replay(store.ledger.rows(Target.MEMORY)) == tuple(accepted)
assert History(store).gap(Target.MEMORY) is None
print(json.dumps([len(accepted), failed]))
"""


@in_a_namespace
def test_a_disk_that_fills_at_any_point_of_the_write(tmp_path):
    """With every amount of room left the edit is on the page or was refused; the ledger agrees in the end."""
    script = f'mount -t tmpfs -o size=600k tmpfs {tmp_path} && exec {sys.executable} -c "$FILLING" {tmp_path}'
    done = forks.run(
        ["unshare", "-rm", "sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "FILLING": FILLING},
    )

    assert done.returncode == 0, done.stderr
    accepted, failed = json.loads(done.stdout)
    assert accepted > 3
    assert failed > 0


@in_a_namespace
def test_a_read_only_file_system(home):
    """Reading continues, the log included; a write is refused and names the way out."""
    script = f"""
mount --bind {home} {home} && mount -o remount,ro,bind {home} || exit 9
K="{IN_SCRIPTS} --home {home}"
$K memory add 'another'; echo "code=$?"
$K memory show --json; echo "code=$?"
$K memory log; echo "code=$?"
$K memory snapshot --target memory; echo "code=$?"
$K config set memory.overflow archive; echo "code=$?"
"""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr
    codes = [line for line in done.stdout.splitlines() if line.startswith("code=")]
    assert codes == ["code=74", "code=0", "code=0", "code=0", "code=74"], (done.stdout, done.stderr)
    assert "read-only" in done.stderr
    assert "--home" in done.stderr
    assert page(home) == b"the first fact"


@in_a_namespace
def test_a_page_that_is_a_bind_mount_is_written_in_place(home, tmp_path):
    """Where no rename over the file is possible the bytes are written where they are."""
    (tmp_path / "host.md").write_text("from the host, a longer text than what will be written in the end")
    script = f"""
mount --bind {tmp_path}/host.md {home}/memories/MEMORY.md || exit 9
{IN_SCRIPTS} --home {home} memory replace 'from the host' 'short' && {IN_SCRIPTS} --home {home} memory show --json
"""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "host.md").read_text() == "short"


@as_a_person
def test_a_read_only_folder(home):
    """A folder without write permission: reading works, writing says whose permissions to check."""
    (home / "memories").chmod(0o500)
    try:
        refused(kept(home, "memory", "add", "x", prefix=ORDINARY), STORAGE, "Permission denied", "permissions")
        assert kept(home, "memory", "show", prefix=ORDINARY)[0] == 0
        assert "the first fact" in kept(home, "memory", "log", prefix=ORDINARY)[1]
    finally:
        (home / "memories").chmod(0o700)

    assert page(home) == b"the first fact"


@as_a_person
def test_an_unreadable_page_is_not_empty(home):
    """Every mutation is refused, the prompt continues with a warning, nothing is overwritten."""
    (home / "memories" / "MEMORY.md").chmod(0)
    try:
        for command in (["add", "x"], ["reset", "--yes"], ["show"]):
            refused(kept(home, "memory", *command, prefix=ORDINARY), STORAGE, "Permission denied")
        code, out, errors = kept(home, "memory", "snapshot", prefix=ORDINARY)
        assert (code, out) == (0, "")
        assert "the prompt does not contain this page" in errors
    finally:
        (home / "memories" / "MEMORY.md").chmod(0o600)

    assert page(home) == b"the first fact"


def test_an_undecodable_page_is_not_empty(home):
    """Edits are refused and no byte changes; `repair` makes it readable after asking."""
    raw = b"caf\xe9 and more"
    (home / "memories" / "MEMORY.md").write_bytes(raw)

    refused(kept(home, "memory", "add", "x"), STORAGE, "not UTF-8", "memory repair --target memory`")
    assert page(home) == raw
    code, _, errors = kept(home, "memory", "repair")
    assert code == 2
    assert "--yes" in errors
    assert page(home) == raw
    assert kept(home, "memory", "repair", "--yes")[0] == 0
    assert page(home) == "café and more".encode()
    assert next((home / "memories").glob("MEMORY.md.bak.*")).read_bytes() == raw


def test_a_folder_in_the_page_s_place(home):
    """The error says what is there; the other page works."""
    (home / "memories" / "MEMORY.md").rename(home / "saved.md")
    (home / "memories" / "MEMORY.md").mkdir()

    refused(kept(home, "memory", "add", "x"), STORAGE, "there is a folder in the file's place")
    assert kept(home, "memory", "add", "y", "--target", "user")[0] == 0


@pytest.mark.parametrize("place", ["", "memories", "memories/MEMORY.md.lock"])
def test_the_wrong_kind_of_thing_in_a_place(tmp_path, place):
    """A file where a folder belongs, or a folder where the lock belongs: an error with the way out."""
    home = tmp_path / "home"
    wrong = home / place
    wrong.parent.mkdir(parents=True, exist_ok=True)
    if place.endswith(".lock"):
        wrong.mkdir()
    else:
        wrong.write_text("a file")

    refused(kept(home, "memory", "add", "x"), STORAGE)
    assert wrong.is_dir() or wrong.read_text() == "a file"


def test_a_lock_held_by_a_living_process(home):
    """After the time-out its pid is named; the page is untouched; readers never wait."""
    sidecar = home / "memories" / "MEMORY.md.lock"
    holder = forks.Popen([sys.executable, "-c", HELD, str(sidecar)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        answer = kept(home, "memory", "add", "x", KEPT_MEMORY__LOCK_TIMEOUT_SECONDS="0.2")
        refused(answer, BUSY, f"process {holder.pid}")
        assert kept(home, "memory", "show")[0] == 0
        assert kept(home, "memory", "log")[0] == 0
        assert page(home) == b"the first fact"

        holder.kill()
        holder.wait()
        assert kept(home, "memory", "add", "after its death", KEPT_MEMORY__LOCK_TIMEOUT_SECONDS="5")[0] == 0
        assert page(home) == "the first fact\n§\nafter its death".encode()
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@pytest.mark.parametrize("content", [b"by no means a database " * 100, b"SQLite format 3\0" + bytes(200)])
def test_a_damaged_ledger_costs_the_undo_not_the_edit(home, content):
    """The edit succeeds with a warning, and the log says what is wrong."""
    (home / "memories" / "ledger.db").write_bytes(content)

    code, _, errors = kept(home, "memory", "add", "the second fact")
    assert code == 0
    assert "not in the ledger" in errors
    assert page(home) == "the first fact\n§\nthe second fact".encode()
    refused(kept(home, "memory", "log"), STORAGE)
    assert (home / "memories" / "ledger.db").read_bytes() == content
