"""The vendor's client of either generation drives the double that our adapter is tested with.

Run by `make test-providers` in an environment with `supermemory`; prints one JSON object.
"""

import importlib.util
import json
import sys
from importlib.metadata import version
from pathlib import Path

from supermemory import Supermemory

CONTAINER = "kept-default-owner"
TEXT = "my dog is called Rex"


def load_double():
    """Return the module with the double that the ordinary tests use."""
    spec = importlib.util.spec_from_file_location("double", Path(__file__).with_name("test_supermemory.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drive(client, generation):
    """Store, search, read the profile and forget with the vendor's client; return what it understood."""
    if generation == 3:
        added = client.add(content=TEXT, container_tags=[CONTAINER], custom_id="c1")
        found = client.search.memories(q="dog called", container_tag=CONTAINER, limit=3, search_mode="hybrid").results
        profile = client.profile(container_tag=CONTAINER).profile
        listed = client.documents.list(container_tags=[CONTAINER], limit=10, page=1, include_content=True).memories
        gone = client.memories.forget(container_tag=CONTAINER, id=found[0].id)
        client.documents.delete(added.id)
        return found[0].memory, list(profile.static), len(listed), gone.forgotten
    added = client.add(CONTAINER, content=TEXT, id="c1")
    found = client.search(CONTAINER, query="dog called", limit=3).results
    profile = client.profile(CONTAINER).profile
    listed = client.list(CONTAINER, type="documents", limit=10, page=1, include={"content": True}).documents
    gone = client.memories.forget(CONTAINER, ids=[found[0].id])
    client.documents.delete(CONTAINER, ids=[added.id])
    return found[0].memory, [fact.memory for fact in profile.static], len(listed), bool(gone.count)


def main() -> int:
    """Run the client of the installed generation."""
    installed = version("supermemory")
    double = load_double()
    with double.SupermemoryDouble() as server:
        client = Supermemory(api_key=double.KEY, base_url=server.url, max_retries=0)
        memory, profile, listed, forgotten = drive(client, int(installed.partition(".")[0]))
        routes = sorted({f"{each.method} {each.path}" for each in server.requests})
    ok = memory == TEXT and TEXT in profile and listed == 1 and forgotten is True
    print(json.dumps({"provider": "supermemory", "version": installed, "ok": ok, "routes": routes}, indent=1))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
