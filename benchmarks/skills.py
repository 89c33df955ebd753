"""How fast a library of skills is read, searched and changed, and whether its catalogue keeps its budget."""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from wellkept.core.tools import ToolContext
from wellkept.skills.library import SkillLibrary, catalogue, estimate_tokens
from wellkept.skills.settings import SkillSettings
from wellkept.skills.tool import SkillTools

VERBS = ["deploy", "rotate", "review", "migrate", "profile", "debug", "release", "audit", "translate", "monitor"]
NOUNS = ["service", "database", "key", "queue", "cache", "report", "invoice", "image", "cluster", "website"]


def build(home: Path, number: int) -> None:
    chance = random.Random(7)
    for place in range(number):
        verb, noun = chance.choice(VERBS), chance.choice(NOUNS)
        name = f"{verb}-{noun}-{place}"
        folder = home / chance.choice(["devops", "data", "office", ""]) / name
        folder.mkdir(parents=True)
        head = (
            f"name: {name}\ndescription: {verb.title()} the {noun} number {place}. Use when a {noun} must be handled."
        )
        if place % 5 == 0:
            head = f"name: {name}\ndescription: >-\n  {verb.title()} the {noun} number {place}.\n  Use it when asked."
        head += f"\nmetadata:\n  hermes:\n    tags: [{verb}, {noun}]"
        body = f"# {verb.title()}\n\n## When\n\nAlways.\n\n## Steps\n\n" + "1. Do the next step with care.\n" * 40
        (folder / "SKILL.md").write_text(f"---\n{head}\n---\n\n{body}")


def timed(action: Callable[[], object], rounds: int = 1) -> tuple[float, object]:
    result, took = None, []
    for _ in range(rounds):
        start = time.perf_counter()
        result = action()
        took.append(time.perf_counter() - start)
    return statistics.median(took), result


def block(library: SkillLibrary) -> str:
    return catalogue(library.usable(), library.usage.read(), budget=library.settings.catalogue_tokens)


def measure(home: Path, number: int) -> dict[str, float]:
    settings = SkillSettings(bundled=False)
    library = SkillLibrary(home, settings=settings)
    cold, text = timed(lambda: block(library))
    warm, again = timed(lambda: block(library), 5)
    fresh = [SkillLibrary(home, settings=settings) for _ in range(3)]
    other_process = statistics.median(timed(partial(block, one))[0] for one in fresh)
    assert text == again
    tools = SkillTools(library)
    listing = tools.tools()[0]
    search, _ = timed(lambda: listing.call({"query": "rotate the key of the service"}, ToolContext()), 5)
    manage = tools.tools()[2]
    name = library.skills()[0].name
    patches = []
    for turn in range(20):
        change = {"action": "patch", "name": name, "old_string": "Always", "new_string": f"Always{turn}"}
        took, _ = timed(partial(manage.call, {**change, "replace_all": True}, ToolContext()))
        patches.append(took)
    return {
        "skills": number,
        "catalogue_cold_s": round(cold, 3),
        "catalogue_warm_ms": round(warm * 1000, 1),
        "catalogue_new_library_ms": round(other_process * 1000, 1),
        "catalogue_tokens": estimate_tokens(str(text)),
        "search_ms": round(search * 1000, 1),
        "patch_p50_ms": round(statistics.median(patches) * 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=1_000)
    number = parser.parse_args().skills
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "skills")
        build(home, number)
        print(json.dumps(measure(home, number), indent=1))


if __name__ == "__main__":
    main()
