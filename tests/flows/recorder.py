"""A plugin in a folder that records every call that it gets, as one JSON line per call."""

import json

PLUGIN = """
import json, pathlib
from agent.memory_provider import MemoryProvider

LOG = pathlib.Path({log!r})

def note(hook, args, keywords):
    with LOG.open("a") as file:
        file.write(json.dumps([hook, list(args), keywords]) + "\\n")

class Recorder(MemoryProvider):
    name = {name!r}
    def is_available(self): return {available}
    def initialize(self, **context): note("initialize", (), context)
    def get_tool_schemas(self):
        return [{{"name": "rec_search", "description": "Search.", "parameters":
                 {{"type": "object", "properties": {{"q": {{"type": "string"}}}}}}}}]
    def handle_tool_call(self, *args, **keywords):
        note("handle_tool_call", args, keywords)
        return "{{}}"
    def prefetch(self, *args, **keywords):
        note("prefetch", args, keywords)
        return "RECALLED-" + str(len(LOG.read_text()))
    def post_setup(self, *args, **keywords): note("post_setup", args, keywords)
    def backup_paths(self): return []

def recording(hook):
    return lambda self, *args, **keywords: note(hook, args, keywords)

for hook in ("queue_prefetch", "sync_turn", "on_turn_start", "on_session_end", "on_session_switch", "on_pre_compress",
             "on_memory_write", "on_delegation", "shutdown"):
    setattr(Recorder, hook, recording(hook))

def register(ctx): ctx.register_memory_provider(Recorder())
"""


def install(home, name="rec", *, available=True):
    """Write the plugin into the home; return the function that reads its calls."""
    folder = home / "plugins" / name
    folder.mkdir(parents=True)
    log = home / f"{name}.calls"
    (folder / "__init__.py").write_text(PLUGIN.format(log=str(log), name=name, available=available))

    def calls(*hooks):
        lines = log.read_text().splitlines() if log.exists() else []
        return [call for call in map(json.loads, lines) if not hooks or call[0] in hooks]

    return calls
