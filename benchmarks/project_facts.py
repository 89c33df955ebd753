"""How often the verdicts on entries about a project are right, and what they cost at the start of a session.

    python benchmarks/project_facts.py [--half tuning|held] [--keep FOLDER]

Makes a repository with 300 commits (renames, deletions, other versions), with loose objects and a log of HEAD, then
packed, then as a fresh clone, and judges the 80 entries of `texts/project_facts.toml` in each.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from wellkept.projectfacts.check import START, THOROUGH, check_entries
from wellkept.projectfacts.notes import note_entries, write_note
from wellkept.projectfacts.remembered import Remembered

COMMITS: Final = 300
FIRST: Final = 1_735_732_800
"""The moment of the first commit; each day has one."""
DAY: Final = 86_400
PAGE: Final = 20
"""Entries on a full page."""
REPEATS: Final = 20

_MAKEFILE = """\
.PHONY: test lint docs release migrate seed image
PYTHON ?= python3

test: ## run the tests
\t$(PYTHON) -m pytest -q

lint:
\tflake8 src
\tmypy src

docs:
\tmkdocs build

release: test
\t$(PYTHON) tools/release.py --sign

migrate:
\talembic upgrade head

seed: migrate
\t$(PYTHON) scripts/seed.py

image:
\tdocker build -t orchard .
"""
_JUSTFILE = """\
set shell := ["bash", "-uc"]

dev:
    uvicorn orchard.app:app --reload

fmt:
    ruff format src
    prettier --write frontend

bench n="10":
    python tools/bench.py {{n}}
"""
_PACKAGE = """\
{
  "name": "orchard-frontend",
  "private": true,
  "scripts": {
    "build": "vite build",
    "test": "vitest run",
    "storybook": "storybook dev -p 6006",
    "typecheck": "tsc --noEmit"
  },
  "dependencies": {
    "react": "^18.2.0"
  },
  "devDependencies": {
    "typescript": "^5.1.6",
    "vite": "^4.5.0"
  }
}
"""
_PACKAGE_LOCK = """\
{
  "name": "orchard-frontend",
  "lockfileVersion": 3,
  "packages": {
    "": {
      "name": "orchard-frontend"
    },
    "node_modules/eslint": {
      "version": "8.40.0"
    },
    "node_modules/react": {
      "version": "18.2.0"
    },
    "node_modules/typescript": {
      "version": "5.1.6"
    },
    "node_modules/vite": {
      "version": "4.5.0",
      "dependencies": {
        "esbuild": "^0.18.0"
      }
    }
  }
}
"""
_PYPROJECT = """\
[project]
name = "orchard"
version = "1.3.0"
requires-python = ">=3.11"
dependencies = ["django", "psycopg", "celery", "redis", "httpx"]

[project.scripts]
orchard = "orchard.cli:main"
orchard-admin = "orchard.admin:main"
"""
_PACKAGES = {
    "celery": "5.3.0", "django": "4.2.1", "httpx": "0.24.1", "psycopg": "3.1.9", "pytest": "7.4.0", "redis": "4.6.0",
}  # fmt: skip
_UV_LOCK = "version = 1\n" + "".join(
    f'\n[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "https://pypi.example/simple" }}\n'
    for name, version in _PACKAGES.items()
)
_COMPOSE = """\
services:
  web:
    build: .
    ports:
      - "8000:8000"
  db:
    image: postgres:16
    ports:
      - "5433:5432"
  redis:
    image: redis:7
    ports:
      - "6379:6379"
"""
_SETTINGS = """\
[server]
port = 8000
workers = 4
timeout_seconds = 30

[log]
log_level = "info"
cache_backend = "redis"
"""
_ENVIRONMENT = """\
DATABASE_PORT=5433
FEATURE_IMPORT=true
QUEUE_NAME=orchard-default
"""


def _python(name: str, functions: int) -> str:
    """Return the text of a module that resembles no other."""
    body = (
        f"\n\ndef {name}_{number}(order, {name}):\n    total = order.{name} * {number}\n    return {name}.pick(total)\n"
        for number in range(functions)
    )
    return f'"""{name.title()} of the orchard."""\n\nimport {name}_{functions}\n' + "".join(body)


def _prose(name: str, lines: int) -> str:
    return f"# {name.title()}\n\n" + "".join(
        f"Step {number} of {name}: look at {name}-{number}.\n" for number in range(lines)
    )


FILES: Final[Mapping[str, str]] = {
    ".env.example": _ENVIRONMENT,
    ".github/workflows/ci.yml": "on: push\njobs:\n  test:\n    steps:\n      - run: make test\n",
    ".github/workflows/release.yml": "on:\n  push:\n    tags: ['v*']\njobs:\n  release:\n    steps: []\n",
    ".gitignore": "build/\ndist/\n__pycache__/\n.env\n",
    ".nvmrc": "18.17.0\n",
    ".python-version": "3.11.4\n",
    "CHANGELOG.md": "# Changes\n",
    "Makefile": _MAKEFILE,
    "README.md": _prose("orchard", 9),
    "compose.yaml": _COMPOSE,
    "config/settings.toml": _SETTINGS,
    "docs/adr/0001-database.md": _prose("database", 14),
    "docs/deploy.md": _prose("deploy", 30),
    "docs/index.md": _prose("index", 6),
    "frontend/src/App.tsx": "export const App = () => <main>Orchard</main>;\n",
    "frontend/src/api.ts": "export const fetchOrders = () => fetch('/orders');\n",
    "frontend/src/components/OldTable.tsx": "export const OldTable = () => <table />;\n",
    "infra/ansible/hosts.ini": "[build]\nbuild-1\nbuild-2\n",
    "infra/ansible/site.yml": "- hosts: build\n  roles: [java, docker]\n",
    "infra/terraform/main.tf": 'resource "host" "build" {\n  count = 2\n}\n',
    "justfile": _JUSTFILE,
    "migrations/0001_init.sql": "CREATE TABLE orders (id int);\n",
    "package-lock.json": _PACKAGE_LOCK,
    "package.json": _PACKAGE,
    "pyproject.toml": _PYPROJECT,
    "scripts/backup.sh": "#!/bin/sh\npg_dump orchard\n",
    "scripts/deploy.sh": "#!/bin/sh\nset -e\nssh build-1 deploy orchard\n",
    "scripts/seed.py": _python("seed", 3),
    "src/orchard/__init__.py": "",
    "src/orchard/billing/__init__.py": "",
    "src/orchard/billing/invoice.py": _python("invoice", 6),
    "src/orchard/billing/tax.py": _python("tax", 5),
    "src/orchard/cli.py": _python("cli", 4),
    "src/orchard/importer/csv_reader.py": _python("csv", 12),
    "src/orchard/legacy/ftp.py": _python("ftp", 4),
    "src/orchard/legacy/soap.py": _python("soap", 5),
    "src/orchard/models.py": _python("models", 8),
    "src/orchard/tasks.py": _python("tasks", 7),
    "src/orchard/urls.py": _python("urls", 2),
    "src/orchard/views.py": _python("views", 10),
    "tests/fixtures/sample.csv": "id,fruit\n1,pear\n",
    "tests/test_billing.py": _python("billing", 9),
    "tests/test_models.py": _python("test", 5),
    "tools/bench.py": _python("bench", 3),
    "tools/release.py": _python("release", 5),
    "uv.lock": _UV_LOCK,
}
FILLED: Final = ("CHANGELOG.md", "src/orchard/models.py", "frontend/src/App.tsx", "tests/test_models.py")


class Repository:
    """The repository under construction; git runs as a person's would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0

    def git(self, *arguments: str) -> str:
        """Run git at the moment of the current commit."""
        moment = f"{moment_of(self.number)} +0000"
        own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "HOME": str(self.folder)}
        person = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
                  for what, value in (("NAME", "Ana"), ("EMAIL", "ana@orchard.example"), ("DATE", moment))}  # fmt: skip
        done = subprocess.run(
            ["git", *arguments], cwd=self.folder, env={**os.environ, **own, **person}, check=True, capture_output=True
        )
        return done.stdout.decode()

    def write(self, name: str, text: str) -> None:
        """Write a file and its folders."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def swap(self, name: str, old: str, new: str) -> None:
        """Replace a passage that is in the file."""
        text = (self.folder / name).read_text(encoding="utf-8")
        assert old in text, (name, old)
        self.write(name, text.replace(old, new))

    def move(self, old: str, new: str) -> None:
        """Rename a file or folder."""
        (self.folder / new).parent.mkdir(parents=True, exist_ok=True)
        self.git("mv", old, new)

    def remove(self, name: str) -> None:
        """Delete a file or folder."""
        self.git("rm", "-rq", name)


def moment_of(number: int) -> int:
    """Return when a commit was made."""
    return FIRST + number * DAY


def _merge_payments(repo: Repository) -> None:
    repo.git("merge", "-q", "--no-ff", "-m", "Add payments", "feature/payments")
    repo.git("branch", "-qD", "feature/payments")


def _start_payments(repo: Repository) -> None:
    repo.git("checkout", "-qb", "feature/payments")
    repo.write("src/orchard/payments.py", _python("payments", 3))
    repo.git("add", "-A")
    repo.git("commit", "-qm", "Start payments")
    repo.git("checkout", "-q", "main")


def _open_port(repo: Repository) -> None:
    repo.swap("config/settings.toml", "port = 8000", "port = 8080")
    repo.swap("compose.yaml", "8000:8000", "8080:8080")


def _move_database(repo: Repository) -> None:
    repo.swap("compose.yaml", "5433:5432", "5544:5432")
    repo.swap(".env.example", "5433", "5544")


def _upgrade_vite(repo: Repository) -> None:
    repo.swap("package-lock.json", '"version": "4.5.0"', '"version": "5.2.8"')
    repo.swap("package.json", "^4.5.0", "^5.2.8")


def _move_deploy_guide(repo: Repository) -> None:
    repo.move("docs/deploy.md", "docs/operations/deployment.md")
    repo.swap("docs/operations/deployment.md", "Step 3 of deploy", "Step 3 of the deployment")
    repo.swap("docs/operations/deployment.md", "# Deploy", "# Deployment\n\nRead everything first.")


def _drop_seed(repo: Repository) -> None:
    repo.swap("Makefile", "seed: migrate\n\t$(PYTHON) scripts/seed.py\n\n", "")
    repo.remove("scripts/seed.py")


def _drop_storybook(repo: Repository) -> None:
    repo.swap("package.json", '    "storybook": "storybook dev -p 6006",\n', "")
    repo.remove("frontend/src/components/OldTable.tsx")


def _change_recipes(repo: Repository) -> None:
    repo.swap("justfile", 'bench n="10":\n    python tools/bench.py {{n}}\n', "")
    repo.swap("justfile", "fmt:", "format:")


def _change_log(repo: Repository) -> None:
    repo.swap("config/settings.toml", '"info"', '"warning"')
    repo.swap("config/settings.toml", 'cache_backend = "redis"\n', "")


def _move_invoice_test(repo: Repository) -> None:
    repo.move("tests/test_billing.py", "tests/billing/test_invoice.py")
    repo.swap("tests/billing/test_invoice.py", "Billing of", "Invoices of")


def _upgrade_tests(repo: Repository) -> None:
    repo.swap("uv.lock", '"7.4.0"', '"8.3.2"')
    repo.swap("uv.lock", '"4.6.0"', '"5.0.8"')


def _drop_httpx(repo: Repository) -> None:
    source = 'source = { registry = "https://pypi.example/simple" }\n'
    repo.swap("uv.lock", f'\n[[package]]\nname = "httpx"\nversion = "0.24.1"\n{source}', "")
    repo.swap("pyproject.toml", ', "httpx"', "")


def _change_environment(repo: Repository) -> None:
    repo.swap(".env.example", "FEATURE_IMPORT=true\n", "")
    repo.swap(".env.example", "orchard-default", "orchard-main")


EVENTS: Final[Mapping[int, Callable[[Repository], None]]] = {
    20: lambda repo: repo.move("src/orchard/views.py", "src/orchard/web/views.py"),
    35: lambda repo: repo.remove("src/orchard/legacy"),
    50: lambda repo: repo.swap("uv.lock", '"4.2.1"', '"5.0.2"'),
    60: lambda repo: repo.swap("Makefile", "\tflake8 src\n", "\truff check src\n"),
    70: lambda repo: repo.move("scripts/deploy.sh", "ops/deploy.sh"),
    80: _drop_seed,
    90: _drop_storybook,
    100: _open_port,
    110: _upgrade_vite,
    120: _move_deploy_guide,
    130: lambda repo: repo.move("infra/ansible", "infra/playbooks"),
    140: lambda repo: repo.write(".nvmrc", "20.11.1\n"),
    150: _change_recipes,
    160: _change_log,
    170: lambda repo: repo.remove(".github/workflows/release.yml"),
    175: lambda repo: repo.swap("Makefile", "\nrelease: test", "\npublish: test"),
    180: _move_invoice_test,
    190: lambda repo: repo.swap("src/orchard/tasks.py", "order.tasks * 3", "order.tasks * 4"),
    200: _move_database,
    210: _upgrade_tests,
    220: lambda repo: repo.remove("docs/adr/0001-database.md"),
    230: lambda repo: repo.move("src/orchard/importer/csv_reader.py", "src/orchard/importer/readers/csv.py"),
    240: _drop_httpx,
    245: _start_payments,
    250: lambda repo: repo.swap("pyproject.toml", 'orchard-admin = "orchard.admin:main"\n', ""),
    255: lambda repo: repo.move("src/orchard/importer/readers/csv.py", "src/orchard/readers/csv.py"),
    260: lambda repo: repo.write("docs/adr/0001-database.md", FILES["docs/adr/0001-database.md"]),
    265: _change_environment,
    270: lambda repo: repo.write(".python-version", "3.12.2\n"),
    285: _merge_payments,
}


def make_repository(folder: Path) -> Path:
    """Make the repository with 300 commits on `main`, and the branches."""
    folder.mkdir(parents=True)
    repo = Repository(folder)
    repo.git("init", "-q", "-b", "main")
    for name, text in FILES.items():
        repo.write(name, text)
    for number in range(1, COMMITS + 1):
        repo.number = number
        if number > 1:
            name = FILLED[number % len(FILLED)]
            text = (folder / name).read_text(encoding="utf-8")
            sign = "//" if name.endswith(".tsx") else "#"
            repo.write(name, f"{text}{sign} {number}: more pears than in week {number // 7}\n")
            # an event that commits on its own starts from a clean tree
            if EVENTS.get(number) in (_merge_payments, _start_payments):
                repo.git("commit", "-qam", f"Change {number}")
        event = EVENTS.get(number)
        if event is not None:
            event(repo)
        repo.git("add", "-A")
        repo.git("commit", "-qm", f"Change {number}", "--allow-empty")
        if number == 200:
            repo.git("branch", "-q", "release/1.x")
    return folder


def read_entries(half: str | None = None) -> list[dict[str, Any]]:
    """Return the entries of the corpus, of one half or all."""
    text = (Path(__file__).parent / "texts" / "project_facts.toml").read_text(encoding="utf-8")
    return [entry for entry in tomllib.loads(text)["entry"] if half in (None, entry["half"])]


def judge(root: Path, entries: list[dict[str, Any]], *, thorough: bool = True) -> Counter[str]:
    """Return how many verdicts are right, wrong, and wrong by calling something gone."""
    counts: Counter[str] = Counter()
    for entry in entries:
        written = moment_of(entry["at"]) + DAY / 2
        limits = THOROUGH if thorough else START
        findings = check_entries(root, {entry["text"]: written}, limits).findings.get(entry["text"], ())
        worst = findings[0] if findings else None
        verdict = "nothing" if worst is None else worst.verdict.value
        now = None if worst is None or verdict != "renamed" else worst.now
        is_right = verdict == entry["expect"] and now in (None, entry.get("to", "").rstrip("/"))
        counts["right" if is_right else "wrong"] += 1
        counts["false gone"] += verdict == "gone" != entry["expect"]
        if not is_right:
            print("   ", entry["text"], "| expected", entry["expect"], entry.get("to", ""), "| got", verdict, now or "")
    return counts


def measure(root: Path, entries: list[dict[str, Any]]) -> None:
    """Print what the start of a session costs with full pages of entries, after a check and without one."""
    written = {entry["text"]: moment_of(entry["at"]) + DAY / 2 for entry in entries}
    texts = list(written)
    pages = [{text: written[text] for text in texts[start : start + PAGE]} for start in range(0, len(texts), PAGE)]
    for name, is_after in (("first time", False), ("after a check", True)):
        costs, spent, notes, complete = [], [], 0, 0
        for page in pages:
            thorough = check_entries(root, page)
            remembered = thorough.remembered if is_after else None
            for _ in range(REPEATS):
                began, used = time.perf_counter(), time.process_time()
                found = note_entries(root, page, remembered or Remembered())
                costs.append((time.perf_counter() - began) * 1_000)
                spent.append((time.process_time() - used) * 1_000)
            notes += len(found)
            complete += sum(bool(write_note(findings)) for findings in thorough.findings.values())
        p95 = sorted(costs)[int(len(costs) * 0.95)]
        middle, used_middle = statistics.median(costs), statistics.median(spent)
        print(f"  start of a session, {name}: {PAGE} entries, {notes} of {complete} notes")
        print(f"    median {middle:.1f} ms ({used_middle:.1f} ms of the processor), p95 {p95:.1f} ms")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--half", choices=("tuning", "held"))
    options.add_argument("--keep", type=Path, help="make the repository here, and leave it; an existing one is used")
    given = options.parse_args()
    entries = read_entries(given.half)
    with tempfile.TemporaryDirectory() as scratch:
        root = given.keep or Path(scratch) / "orchard"
        if not root.exists():
            make_repository(root)
        packed, clone = Path(scratch) / "packed", Path(scratch) / "clone"
        shutil.copytree(root, packed)
        subprocess.run(["git", "gc", "-q"], cwd=packed, check=True)
        subprocess.run(["git", "clone", "-q", str(packed), str(clone)], check=True)
        for name, folder in (("loose objects", root), ("packed", packed), ("a fresh clone", clone)):
            counts = judge(folder, entries)
            print(f"{name}: {counts['right']} of {len(entries)} right, {counts['false gone']} falsely gone")
            measure(folder, entries)


if __name__ == "__main__":
    main()
