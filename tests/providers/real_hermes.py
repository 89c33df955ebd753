"""The plugins of Hermes itself, unchanged: all of them load, and those whose back end has a double store and recall.

Run by `make test-providers` twice: with Hermes installed, and without it but with the packages of the plugins. The plugin
folders are taken from the wheel of `hermes-agent`, which pip downloads by name; none is part of this repository.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from kept.core.tools import ToolContext
from kept.providers.hooks import close_provider
from kept.providers.loading import PluginPolicy, load
from kept.testing.provider_contract import Bench

HERE = Path(__file__).resolve().parent
WORD = "kestrel"
SENTENCE = f"The staging server is called {WORD} and runs in Graz."
RECALLED = {"byterover": "The answer of the model"}
"""What the double of a back end recalls where it does not search."""
QUESTION = f"What is the staging server called? {WORD}"


def fetch_plugins(folder: Path) -> Path:
    """Return a folder with the memory plugins of the newest Hermes."""
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "hermes-agent"]
    subprocess.run(download, check=True)
    (wheel,) = folder.glob("hermes_agent-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = [name for name in archive.namelist() if name.startswith("plugins/memory/")]
        archive.extractall(folder, inside)
    return folder / "plugins" / "memory"


def test_module(name: str):
    """Return the test module that holds the double of a back end."""
    spec = importlib.util.spec_from_file_location(f"test_{name}", HERE / f"test_{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Run:
    """One plugin in a fresh home."""

    def __init__(self, source: Path, scratch: Path) -> None:
        self.name = source.name
        self.home = scratch / self.name
        target = self.home / "plugins" / f"hermes-{self.name}"
        target.mkdir(parents=True)
        for path in source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                copy = target / path.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())

    def load(self):
        """Load it in a process of its own, as kept does by default."""
        policy = PluginPolicy(isolate="auto", start_seconds=60)
        return load(f"hermes-{self.name}", self.home / "plugins", {}, policy)

    def configure(self, **values) -> None:
        """Write its settings file."""
        (self.home / f"{self.name}.json").write_text(json.dumps(values))

    def drive(self, tool: str, arguments: dict, known) -> dict:
        """Store by a turn and by a tool, recall, and end; return what happened."""
        bench = Bench(self.home)
        manager = bench.manager(self.load(), start_timeout_seconds=60, delivery_timeout_seconds=60)
        found: dict = {"problem": manager.status()[0].problem}
        tools = {each.schema.name: each for each in manager.tools()}
        found["tools"] = len(tools)
        found["tool"] = str(tools[tool].call(arguments, ToolContext(session_id="s1")))[:200] if tool in tools else None
        manager.recall("hello", session_id="s1", turn=1)
        manager.turn_finished(SENTENCE, "Noted, I will remember that.", session_id="s1", messages=[])
        manager.writes.wait_for("s1", seconds=30)
        time.sleep(1.0)  # some plugins send in threads of their own
        recalled = manager.recall(QUESTION, session_id="s1", turn=2)
        word = RECALLED.get(self.name, WORD)
        if word not in recalled:  # several recall what they fetched after the last turn
            manager.turn_finished(QUESTION, "It is that one.", session_id="s1")
            manager.writes.wait_for("s1", seconds=30)
            time.sleep(1.5)
            recalled = manager.recall(QUESTION, session_id="s1", turn=3)
        manager.writes.queue_session_end("s1", [{"role": "user", "content": SENTENCE}])
        manager.close()
        found["recalled"] = word in recalled
        found["stored"] = any(WORD in str(text) for text in known())
        found["last_error"] = manager.status()[0].health.last_error
        bench.close()
        return found


def drive_http(run: Run, url: str) -> dict:
    """Point the plugin at the double by its settings file and its variables."""
    key = sys.modules[f"test_{run.name}"].KEY
    variables = {
        "mem0": {"MEM0_API_KEY": key},
        "supermemory": {"SUPERMEMORY_API_KEY": key},
        "retaindb": {"RETAINDB_API_KEY": key, "RETAINDB_BASE_URL": url, "RETAINDB_PROJECT": "kept"},
        "openviking": {"OPENVIKING_API_KEY": key, "OPENVIKING_ENDPOINT": url},
        "hindsight": {"HINDSIGHT_API_KEY": key, "HINDSIGHT_API_URL": url},
    }[run.name]
    os.environ.update(variables)
    match run.name:
        case "mem0":
            run.configure(host=url)
        case "supermemory":
            run.configure(base_url=url)
        case "hindsight":
            (run.home / "hindsight").mkdir()
            settings = {"mode": "local_external", "api_url": url, "api_key": key, "recall_prefetch_method": "recall"}
            (run.home / "hindsight" / "config.json").write_text(json.dumps(settings))
    return variables


TOOLS = {
    "mem0": ("mem0_add", {"content": SENTENCE}),
    "supermemory": ("supermemory_store", {"content": SENTENCE}),
    "retaindb": ("retaindb_remember", {"content": SENTENCE}),
    "openviking": ("viking_remember", {"content": SENTENCE}),
    "hindsight": ("hindsight_retain", {"content": SENTENCE}),
    "byterover": ("brv_curate", {"content": SENTENCE}),
    "holographic": ("fact_store", {"action": "add", "content": SENTENCE}),
}


def try_plugin(run: Run) -> dict:
    """Drive one plugin against its double."""
    tool, arguments = TOOLS[run.name]
    if run.name == "holographic":
        return run.drive(tool, arguments, lambda: [SENTENCE] * any(run.home.rglob("*.db")))
    if run.name == "byterover":
        fake = test_module("byterover").FakeBrv(run.home / "fake")
        fake.set(model=True)
        os.environ["PATH"] = f"{fake.folder}:{os.environ['PATH']}"
        os.environ["FAKE_BRV"] = str(fake.folder)
        return run.drive(tool, arguments, lambda: [str(fake.calls("curate"))])
    module = test_module(run.name)
    kind = next(value for key, value in vars(module).items() if key.endswith("Double") and key != "HttpDouble")
    with kind() as double:
        variables = drive_http(run, double.url)
        try:
            answer = run.drive(tool, arguments, double.texts)
            answer["requests"] = sorted({f"{each.method} {each.path}" for each in double.requests})
            return answer
        finally:
            for name in variables:
                os.environ.pop(name, None)


def main() -> int:
    """Load all, drive those that can be driven, print one JSON line, and return 0 if all is well."""
    is_installed = importlib.util.find_spec("hermes_constants") is not None
    report: dict = {"hermes_installed": is_installed, "plugins": {}}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        os.environ["HOME"] = folder
        for source in sorted(fetch_plugins(scratch / "wheel").iterdir()):
            if not source.is_dir() or source.name.startswith("_"):
                continue
            run = Run(source, scratch / "homes")
            try:
                provider = run.load()
                facts: dict = {"loads": True, "tools": len(provider.get_tool_schemas())}
                close_provider(provider)
                needs = [] if is_installed else sys.argv[1:]
                if run.name in TOOLS and run.name not in needs:
                    facts |= try_plugin(Run(source, scratch / "driven"))
            except Exception as error:
                facts = {"loads": False, "error": f"{type(error).__name__}: {error}"}
            report["plugins"][run.name] = facts
    print(json.dumps(report, indent=1))
    bad = [name for name, each in report["plugins"].items() if not each["loads"] or each.get("recalled") is False]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
