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

from wellkept.core.tools import ToolContext
from wellkept.providers.hooks import close_provider
from wellkept.providers.loading import PluginPolicy, load
from wellkept.testing.provider_contract import Bench

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
        _tell(manager, SENTENCE, "Noted, I will remember that.")
        manager.writes.wait_for("s1", seconds=30)
        time.sleep(1.0)  # some plugins send in threads of their own
        recalled = manager.recall(QUESTION, session_id="s1", turn=2)
        word = RECALLED.get(self.name, WORD)
        if word not in recalled:  # several recall what they fetched after the last turn
            _tell(manager, QUESTION, "It is that one.")
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


def _tell(manager, user: str, assistant: str) -> None:
    messages = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    manager.turn_finished(user, assistant, session_id="s1", messages=messages)


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


def route_first(double, method: str, pattern: str, handler) -> None:
    """Answer before the route of the ordinary tests."""
    double.route(method, pattern, handler)
    double._routes.insert(0, double._routes.pop())


def complete_hindsight(double) -> None:
    """The bank exists, as for somebody who moves over."""
    double.banks["hermes"] = {}


def complete_supermemory(double) -> None:
    """Documents without an id of their own, and a profile that searches."""
    named = iter(range(1_000))
    add = double._add

    def profile(request):
        found = [{"id": "m", "memory": text, "similarity": 0.9} for text in double.texts()]
        results = {"results": found, "total": len(found), "timing": 1} if request.body.get("q") else None
        return 200, {"profile": {"static": [], "dynamic": []}, "searchResults": results}

    route_first(
        double, "POST", "/v3/documents", lambda r: add(r) if r.body.setdefault("customId", f"d{next(named)}") else None
    )
    route_first(double, "POST", "/v4/profile", profile)


def complete_openviking(double) -> None:
    """Sessions by id alone, messages in parts, and the search that knows the session."""

    def ok(result):
        return 200, {"status": "ok", "result": result, "error": None}

    def add(request):
        texts = ["".join(part.get("text", "") for part in each["parts"]) for each in request.body["messages"]]
        double.sessions.setdefault(("default", request.groups[0]), []).extend(
            {"role": "user", "content": t} for t in texts
        )
        return ok({"added": len(texts)})

    def find(request):
        wanted = set(request.body["query"].lower().replace("?", "").split())
        found = [
            {"uri": uri, "abstract": text, "score": 0.8, "level": 2, "category": "memory", "context_type": "memory"}
            for uri, text in double.files.items()
            if wanted & set(text.lower().rstrip(".").split())
        ]
        return ok({"memories": found, "resources": [], "skills": [], "total": len(found)})

    session = "/api/v1/sessions/([^/]+)"
    route_first(double, "GET", session, lambda request: ok({"session_id": request.groups[0], "message_count": 0}))
    route_first(double, "POST", f"{session}/messages/batch", add)
    route_first(
        double, "POST", f"{session}/commit", lambda _: ok({"status": "accepted", "task_id": "t1", "archived": True})
    )
    route_first(double, "POST", "/api/v1/search/search", find)


COMPLETE = {"hindsight": complete_hindsight, "supermemory": complete_supermemory, "openviking": complete_openviking}
"""What a plugin of Hermes uses of its back end, and our own adapter does not."""
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
        COMPLETE.get(run.name, lambda _: None)(double)
        variables = drive_http(run, double.url)
        try:
            answer = run.drive(tool, arguments, double.texts)
            if run.name == "mem0":
                answer["users"] = sorted({each["user_id"] for each in double.memories.values()})
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
            if not source.is_dir() or source.name.startswith("_") or (sys.argv[1:] and source.name not in sys.argv[1:]):
                continue
            run = Run(source, scratch / "homes")
            try:
                provider = run.load()
                facts: dict = {"loads": True, "tools": len(provider.get_tool_schemas())}
                close_provider(provider)
                if run.name in TOOLS:
                    facts |= try_plugin(Run(source, scratch / "driven"))
            except Exception as error:
                facts = {"loads": False, "error": f"{type(error).__name__}: {error}"}
            report["plugins"][run.name] = facts
    print(json.dumps(report, indent=1))
    plugins = report["plugins"]
    bad = [
        name
        for name, each in plugins.items()
        if not each["loads"] or False in (each.get("recalled"), each.get("stored"))
    ]
    if plugins.get("mem0", {}).get("users", ["hermes-user"]) != ["hermes-user"]:
        bad.append("mem0 uses another user than under Hermes")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
