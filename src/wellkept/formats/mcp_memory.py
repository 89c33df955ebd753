"""The knowledge graph of the MCP memory server: entities with observations, and relations, as JSONL.

An observation becomes an entry `name (type): observation`, a relation `from → type → to`. Entries of that form become
a graph again; all others are observations of one entity per page, so that an exported graph comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from wellkept.core.text import JSON
from wellkept.formats.json_files import JsonStream, open_own
from wellkept.formats.messages import as_text
from wellkept.formats.port import Asset, MemoryFile, Position, Problem, Reading, Request, Source, Unusable
from wellkept.memory.page import Target

PAGE_TYPE = "kept page"
"""The type of the entity that holds the entries of a page that are about nothing else."""
_PERSONS = frozenset(("default_user", "user", "me"))
"""Names that graphs use for the person; what is known of them goes to the page about the person."""
_OBSERVATION = re.compile(r"(?P<name>[^\n:→]{1,120}?) \((?P<type>[^()\n:→]{1,60})\): (?P<text>.+)", re.DOTALL)
_RELATION = re.compile(r"(?P<from>[^\n→]{1,120}) → (?P<type>[^\n→]{1,60}) → (?P<to>[^\n→]{1,120})")
_MOST_BYTES = 64_000_000
_MOST_PROBLEMS = 20


class _Entity(Struct):
    kind: str
    observations: dict[str, None] = field(default_factory=dict)


class Graph(Struct):
    """Entities by name, each observation once, and relations."""

    entities: dict[str, _Entity] = field(default_factory=dict)
    relations: dict[tuple[str, str, str], None] = field(default_factory=dict)

    def observe(self, name: str, kind: str, observations: Iterable[Any]) -> None:
        """Add observations; the same entity may come many times."""
        entity = self.entities.setdefault(name, _Entity(kind))
        entity.observations |= dict.fromkeys(text.strip() for text in observations if as_text(text) and text.strip())

    def take(self, record: Mapping[str, Any]) -> bool:
        """Add one record, or a whole graph in one object; return whether it was either."""
        parts = [record.get("entities"), record.get("relations")]
        if any(isinstance(part, list) for part in parts):
            listed = [one for part in parts if isinstance(part, list) for one in part]
            return all([isinstance(one, dict) and self.take(one) for one in listed])  # noqa: C419 # every one is taken
        name, observations = as_text(record.get("name")), record.get("observations")
        if name is not None and record.get("type") in {None, "entity"}:
            self.observe(
                name, as_text(record.get("entityType")) or "", observations if isinstance(observations, list) else ()
            )
            return True
        ends = [as_text(record.get(end)) for end in ("from", "relationType", "to")]
        if all(ends) and record.get("type") in {None, "relation"}:
            self.relations[ends[0] or "", ends[1] or "", ends[2] or ""] = None
            return True
        return "_aim" in str(record.get("type"))  # the header of a variant

    def entries(self) -> dict[Target, list[str]]:
        """Return the entries of each page."""
        entries: dict[Target, list[str]] = {Target.USER: [], Target.MEMORY: []}
        for name, entity in self.entities.items():
            is_page = entity.kind == PAGE_TYPE
            target = Target.USER if name.lower() in _PERSONS else Target.MEMORY
            # an entity without a type is written with a general one, so that its entries are recognised again
            before = "" if is_page else f"{name} ({entity.kind or 'entity'}): "
            entries[target] += [f"{before}{text}" for text in entity.observations]
        entries[Target.MEMORY] += [f"{start} → {kind} → {end}" for start, kind, end in self.relations]
        return entries

    def lines(self) -> Iterator[dict[str, JSON]]:
        """Yield the records as the server writes them; every end of a relation is an entity."""
        for start, _, end in self.relations:
            self.observe(start, "entity", ())
            self.observe(end, "entity", ())
        for name, entity in self.entities.items():
            texts: list[JSON] = [*entity.observations]
            yield {"type": "entity", "name": name, "entityType": entity.kind, "observations": texts}
        for start, kind, end in self.relations:
            yield {"type": "relation", "from": start, "to": end, "relationType": kind}


def build_graph(pages: Iterable[tuple[str, Iterable[str]]]) -> Graph:
    """Return the graph of some pages, given by name with their entries."""
    graph = Graph()
    for page, entries in pages:
        for entry in entries:
            relation = _RELATION.fullmatch(entry)
            observation = _OBSERVATION.fullmatch(entry)
            if relation is not None:
                graph.relations[relation["from"], relation["type"], relation["to"]] = None
            elif observation is not None:
                graph.observe(observation["name"], observation["type"], [observation["text"]])
            else:
                graph.observe(page, PAGE_TYPE, [entry])
    return graph


class McpMemory(Source):
    """Reads the file of the MCP memory server; it has no conversations."""

    client = "mcp-memory"

    def find_roots(self, environ: Mapping[str, str]) -> list[Path]:
        """Return the file that the variable names, else those beside the server's code in the cache of npx."""
        chosen = environ.get("MEMORY_FILE_PATH")
        if chosen:
            return [Path(chosen).expanduser()]
        home = Path(environ.get("HOME") or "~").expanduser()
        places = home.glob(".npm/_npx/*/node_modules/@modelcontextprotocol/server-memory/dist/memory.json*")
        return sorted(place for place in places if place.suffix in {".json", ".jsonl"}) or [home / "memory.jsonl"]

    def list_transcripts(self, root: Path) -> list[Path]:
        """Return nothing."""
        del root
        return []

    def open(self, path: Path, position: Position) -> Reading:
        """Refuse: there are no conversations."""
        del position
        raise Unusable(f"{str(path)!r} holds no conversations", "use: kept import mcp-memory --source FILE")

    def list_assets(self, root: Path, request: Request) -> Iterator[Asset]:
        """Yield the graph as entries; invalid records are reported."""
        del request
        found = [root / name for name in ("memory.jsonl", "memory.json")] if root.is_dir() else [root]
        for path in (place for place in found if place.is_file() or place == root):
            graph = Graph()
            try:
                problems = list(_read_graph(path, graph))
            except (Unusable, OSError) as error:
                problems = [Problem(str(path), str(error))]
            yield from problems[:_MOST_PROBLEMS]
            for target, entries in graph.entries().items():
                if entries:
                    yield MemoryFile(f"graph/{target.value}", target, entries=tuple(entries))


def _read_graph(path: Path, graph: Graph) -> Iterator[Problem]:
    with open_own(path) as file:
        if path.stat().st_size > _MOST_BYTES:
            raise Unusable(f"{str(path)!r} is larger than a graph can be", "give the file of the memory server")
        for number, piece in enumerate(JsonStream(file), 1):
            if piece.value is None:
                yield Problem(f"{path}, record {number}", piece.problem)
            elif not graph.take(piece.value):
                yield Problem(f"{path}, record {number}", "neither an entity nor a relation")
