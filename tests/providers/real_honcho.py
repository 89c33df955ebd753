"""The vendor's client drives the double that our adapter is tested with, on the same workspace, peers and sessions.

Run by `make test-providers` in an environment with `honcho-ai`; prints one JSON object.
"""

import importlib.util
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from honcho import Honcho

from wellkept.providers.base import StartContext
from wellkept.providers.honcho import HonchoProvider


def load_double():
    """Return the module with the double that the ordinary tests use."""
    spec = importlib.util.spec_from_file_location("double", Path(__file__).with_name("test_honcho.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """What one of the two stores, the other one finds."""
    double = load_double()
    os.environ["HONCHO_API_KEY"] = double.KEY
    with double.HonchoDouble() as server, tempfile.TemporaryDirectory() as home:
        settings = {"base_url": server.url, "dialecticCadence": 0, "sessionStrategy": "global"}
        Path(home, "honcho.json").write_text(json.dumps(settings))
        ours = HonchoProvider()
        ours.initialize("s1", **StartContext(kept_home=home).keywords())
        ours.sync_turn("my dog is called Rex", "nice", session_id="s1", idempotency_key="k")
        ours.on_memory_write("add", "user", "Likes oolong tea", {"ledger_id": 1})

        client = Honcho(api_key=double.KEY, base_url=server.url, workspace_id=ours.api.workspace, max_retries=0)
        person, agent = client.peer(ours.api.person), client.peer(ours.api.agent)
        session = client.session("all-owner")
        found = [message.content for message in person.search("dog")]
        messages = [message.content for message in session.messages()]
        known = [each.content for each in agent.conclusions_of(person).list()]
        session.add_messages([person.message("the vendor said this")])
        checks = {
            "search": found == ["my dog is called Rex"],
            "messages": messages == ["my dog is called Rex", "nice"],
            "conclusions": known == ["Likes oolong tea"],
            "ours finds theirs": "vendor" in ours.handle_tool_call("honcho_search", {"query": "vendor"}),
        }
    ok = all(checks.values())
    print(json.dumps({"provider": "honcho", "version": version("honcho-ai"), "ok": ok, "checks": checks}, indent=1))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
