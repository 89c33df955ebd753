"""Mem0 itself: the embedded library behind our adapter, and the vendor's client against our double.

Run by `make test-providers` in an environment with `mem0ai`; prints one JSON line with times.
"""

import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from wellkept.providers.base import StartContext
from wellkept.providers.mem0 import Mem0Provider
from wellkept.providers.trial import run_trial
from wellkept.testing.http_double import HttpDouble

WORDS = 64


def double_of_test() -> type[HttpDouble]:
    """Return the double that the ordinary tests use."""
    spec = importlib.util.spec_from_file_location("test_mem0", Path(__file__).with_name("test_mem0.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Mem0Double


class Embeddings(HttpDouble):
    """Vectors of hashed words, so that texts with the same words are near to each other."""

    def __init__(self) -> None:
        super().__init__()
        self.route("POST", "/v1/embeddings", self._embed)

    def _embed(self, request):
        given = request.body["input"]
        rows = []
        for index, text in enumerate([given] if isinstance(given, str) else given):
            vector = [0.01] * WORDS
            for word in str(text).lower().split():
                vector[sum(word.encode()) % WORDS] += 1.0
            rows.append({"object": "embedding", "index": index, "embedding": vector})
        return 200, {"object": "list", "data": rows, "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def try_embedded(folder: Path) -> dict:
    """Make the round trip with the library inside this process."""
    began = time.monotonic()
    with Embeddings() as server:
        settings = {
            "mode": "oss",
            "model_base_url": f"{server.url}/v1",
            "embedding_model": "m",
            "embedding_dims": WORDS,
        }
        (folder / "mem0.json").write_text(json.dumps(settings))
        os.environ["MEM0_API_KEY"] = "none"
        trial = run_trial(Mem0Provider(), StartContext(kept_home=str(folder), user_id="trial"))
    return {**trial.as_json(), "edition": "oss", "seconds": round(time.monotonic() - began, 1)}


def try_vendors_client() -> dict:
    """Drive our double with the vendor's own client, which must get what our adapter gets."""
    from mem0 import MemoryClient

    with double_of_test()() as server:
        os.environ["MEM0_API_KEY"] = "m0-0123456789abcdef"
        client = MemoryClient(api_key="m0-0123456789abcdef", host=server.url)
        client.add([{"role": "user", "content": "my dog is called Rex"}], user_id="u")
        found = client.search("what is my dog called", filters={"user_id": "u"})
        results = found["results"] if isinstance(found, dict) else found
        client.delete(results[0]["id"])
        paths = sorted({f"{each.method} {each.path}" for each in server.requests})
        return {"edition": "vendor's client", "ok": results[0]["memory"] == "my dog is called Rex", "routes": paths}


def main() -> int:
    """Run both and print what happened."""
    with tempfile.TemporaryDirectory() as name:
        found = [try_embedded(Path(name)), try_vendors_client()]
    print(json.dumps({"provider": "mem0", "runs": found}, indent=1))
    return 0 if all(each["ok"] for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
