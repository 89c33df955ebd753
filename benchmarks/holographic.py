"""Recall of the holographic provider on LoCoMo: each line of a conversation is a fact, each question finds its line."""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kept.providers.holographic import HolographicProvider

DEPTHS = (1, 5, 10, 20)


def lines(conversation: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (id, session, text) of every line."""
    number = 1
    while f"session_{number}" in conversation:
        for line in conversation[f"session_{number}"]:
            caption = f" [image: {line['blip_caption']}]" if line.get("blip_caption") else ""
            yield line["dia_id"], f"session_{number}", f"{line['speaker']}: {line['text']}{caption}"
        number += 1


def ranks(sample: dict[str, Any], home: str) -> Iterator[tuple[int | None, float]]:
    """Yield for every question the place of its first evidence, and the seconds that the search took."""
    provider = HolographicProvider()
    provider.initialize("benchmark", kept_home=home)
    ids: dict[int, str] = {}
    for identity, session, text in lines(sample["conversation"]):
        call = {"action": "add", "content": text[:4000]}
        answer = json.loads(provider.handle_tool_call("fact_store", call, session_id=session))
        ids.setdefault(answer.get("fact_id", -1), identity)
    for question in sample["qa"]:
        evidence = set(question.get("evidence", [])) & set(ids.values())
        if evidence:
            begun = time.perf_counter()
            asked = {"action": "search", "query": question["question"], "limit": max(DEPTHS)}
            found = json.loads(provider.handle_tool_call("fact_store", asked))["results"]
            seconds = time.perf_counter() - begun
            places = [place for place, hit in enumerate(found, 1) if ids[hit["fact_id"]] in evidence]
            yield (places[0] if places else None), seconds
    provider.shutdown()


def main(path: str) -> None:
    places: list[int | None] = []
    seconds: list[float] = []
    for sample in json.loads(Path(path).read_text(encoding="utf-8")):
        with tempfile.TemporaryDirectory() as home:
            for place, took in ranks(sample, home):
                places.append(place)
                seconds.append(took)
    hits = {depth: sum(place is not None and place <= depth for place in places) / len(places) for depth in DEPTHS}
    mean = sum(1 / place for place in places if place) / len(places)
    print(f"{len(places)} questions: " + ", ".join(f"hit@{depth} {share:.3f}" for depth, share in hits.items()))
    print(f"MRR {mean:.3f}; search p50 {sorted(seconds)[len(seconds) // 2] * 1000:.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1])
