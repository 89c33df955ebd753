"""How many instructions a search takes, counted by valgrind: the same on an idle machine and on a busy one.

    python benchmarks/instructions.py OTHER_CHECKOUT . --work "rare word" phrase

Each source tree answers the same questions on a copy of the same store, in a process of its own; the last column
compares it with the first tree. Needs valgrind (Debian's package of that name). Times depend on more than
instructions: compare times with `peer.py`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.peer import SEARCHES, Questions

WORKER = """
import json, os, subprocess, sys
from pathlib import Path
tree, home, blocks = Path(sys.argv[1]), Path(sys.argv[2]), json.load(open(sys.argv[3]))
sys.path[:0] = [str(tree / "src"), str(tree)]
from benchmarks.peer_sides import _do, open_kept

side = open_kept(home)
if "fill" in blocks:
    _do(side, "fill", blocks.pop("fill"))
for work, (first, items) in blocks.items():
    _do(side, work, first)  # loads modules and indexes what waits
    for words in (["-i", "on"], ["-z"]):
        subprocess.run(["callgrind_control", *words, str(os.getpid())], stdout=subprocess.DEVNULL, check=True)
    _do(side, work, items)
    for words in (["-d", work], ["-i", "off"]):
        subprocess.run(["callgrind_control", *words, str(os.getpid())], stdout=subprocess.DEVNULL, check=True)
side.close()
"""


def run(tree: Path, home: Path, blocks: Path, *, counts_to: Path | None = None) -> None:
    """Let one source tree do the work of `blocks`; count its instructions if a path for the counts is given."""
    counting = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts_to}"]
    environ = {**os.environ, "HOME": str(home.parent), "KEPT_HOME": str(home), "PYTHONHASHSEED": "0"}
    worker = [sys.executable, "-c", WORKER, str(tree.resolve()), str(home), str(blocks)]
    subprocess.run([*(counting if counts_to else []), *worker], env=environ, check=True, stderr=subprocess.DEVNULL)


def count(tree: Path, store: Path, works: list[str], blocks: Path) -> list[float]:
    """Return the thousands of instructions that one question of each kind takes."""
    home = store.with_name("copy")
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(store, home)
    out = store.with_name("counts")
    run(tree, home, blocks, counts_to=out)
    found = []
    for place, work in enumerate(works, 1):
        text = Path(f"{out}.{place}").read_text()
        total = re.search(r"^(?:summary|totals): (\d+)", text, re.MULTILINE)
        assert total is not None
        found.append(int(total[1]) / 1_000 / len(json.loads(blocks.read_text())[work][1]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trees", type=Path, nargs="+", help="source trees; the first one fills the store")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--work", nargs="+", choices=[*SEARCHES, "scroll"], default=[*SEARCHES, "scroll"])
    chosen = parser.parse_args()
    questions = Questions(chosen.messages)
    with tempfile.TemporaryDirectory() as scratch:
        store, blocks = Path(scratch) / "store", Path(scratch) / "blocks.json"
        store.mkdir()
        blocks.write_text(json.dumps({"fill": [chosen.messages]}))
        run(chosen.trees[0], store, blocks)
        asked = {
            work: [questions.block(work, 0), questions.block(work, 1) + questions.block(work, 2)]
            for work in chosen.work
        }
        blocks.write_text(json.dumps(asked))
        counts = [count(tree, store, chosen.work, blocks) for tree in chosen.trees]
    for work, row in zip(chosen.work, zip(*counts, strict=True), strict=True):
        print(f"{work:16}", *(f"{one:10,.0f}" for one in row), f"{row[-1] / row[0]:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
