"""The two programs that `peer.py` compares: what each does for a kind of work, and the worker that times it.

Runs in the interpreter of the side that it serves, so that it imports nothing of the other one:

    python benchmarks/peer_sides.py kept|peer HOME
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.corpus import Corpus, Made

ENTRIES = 15
"""On each page of curated memory, as many as they have in real use."""
APPENDED = "bench-append"
"""The session that messages are appended to."""


@dataclass(frozen=True)
class Side:
    """What one program does."""

    fill: Callable[[int], None]
    """Stores this many messages of the corpus."""
    search: Callable[[str], int]
    """Asks the tool for past conversations; returns how many it found."""
    question: Callable[[str], int]
    """Asks the tool a whole question, in the form that its description asks a model for."""
    browse: Callable[[], int]
    """Asks the tool for the recent conversations."""
    scroll: Callable[[str, int], int]
    """Asks the tool for the messages around one of a session."""
    recorded_scroll: Callable[[str, int], int]
    """The same as an agent of the program does it: kept stores a receipt of what the model was shown."""
    append: Callable[[str], object]
    """Appends one message as the program does it by default."""
    append_durably: Callable[[str], object]
    """Appends one message that survives a loss of power when the call returns."""
    add: Callable[[str, str], None]
    """Adds an entry to a page with the tool."""
    remove: Callable[[str], object]
    """Removes an entry from the page `memory`; not measured."""
    load: Callable[[], int]
    """Reads both pages and returns the number of characters of their blocks."""
    close: Callable[[], object]
    """Ends the program as its own commands do."""


def open_kept(folder: Path) -> Side:
    """Return this program on the home `folder`."""
    from wellkept import Message, NewMessage, Origin, Role, Session, SessionStore, ToolContext, open_app
    from wellkept.core.clock import SystemClock
    from wellkept.core.ids import SessionId
    from wellkept.core.text import dumps
    from wellkept.sessions.tool import session_search

    def open_store(environ: Mapping[str, str]) -> tuple[Any, SessionStore]:
        app = open_app(str(folder), environ=environ)
        store = app.caller().space.sessions
        assert isinstance(store, SessionStore)
        if store.session(SessionId(APPENDED)) is None:
            store.create(Session(SessionId(APPENDED), "cli", time.time()))
        return app, store

    app, store = open_store(os.environ)
    _, durable = open_store({**os.environ, "KEPT_SESSIONS__DURABILITY": "full"})
    own = {tool.schema.name: tool for tool in app.caller().space.core_tools()}
    searching = session_search(lambda: store, app.settings.sessions, clock=SystemClock())
    context = ToolContext()

    def search(**given: Any) -> str:
        return dumps(searching.call(given, context))

    def edit(**given: Any) -> Any:
        return json.loads(dumps(own["memory"].call(given, context)))

    def append(store: SessionStore, text: str) -> None:
        store.append(SessionId(APPENDED), [NewMessage(Message(Role.USER, text), time.time(), Origin.PERSON)])

    def add(text: str, target: str) -> None:
        assert edit(action="add", target=target, content=text)["success"]

    def scroll_recorded(session: str, number: int) -> int:
        return len(dumps(own["session_search"].call({"session_id": session, "around_message_id": number}, context)))

    return Side(
        # imported only to fill, because what it imports would count as memory of the program
        fill=lambda count: import_module("benchmarks.scale").build(store, count) and None,
        search=lambda query: int(json.loads(search(query=query))["count"]),
        question=lambda query: int(json.loads(search(query=query))["count"]),
        browse=lambda: len(search()),
        scroll=lambda session, number: len(search(session_id=session, around_message_id=number)),
        recorded_scroll=scroll_recorded,
        append=lambda text: append(store, text),
        append_durably=lambda text: append(durable, text),
        add=add,
        remove=lambda text: edit(action="remove", target="memory", old_text=text),
        load=lambda: sum(len(block or "") for block in app.caller().space.memory.load().values()),
        close=app.close,
    )


def open_peer(folder: Path) -> Side:
    """Return Hermes Agent on the home `folder`, through its public classes; every commit of it is synchronised."""
    db = import_module("hermes_state").SessionDB(folder / "state.db")
    ask = import_module("tools.session_search_tool").session_search
    memory = import_module("tools.memory_tool")
    edited = memory.MemoryStore()
    edited.load_from_disk()
    db.ensure_session(APPENDED, "cli")

    def fill(count: int) -> None:
        for batch in _sessions(Corpus().messages(count), most=50):
            rows = [
                {"id": name, "source": "cli", "started_at": made[0].timestamp, "messages": [_row(one) for one in made]}
                for name, made in batch
            ]
            assert db.import_sessions(rows)["ok"]

    def add(text: str, target: str) -> None:
        assert json.loads(memory.memory_tool("add", target, text, store=edited))["success"]

    def scroll(session: str, number: int) -> int:
        return len(ask(session_id=session, around_message_id=number, db=db))

    def load() -> int:
        pages = memory.MemoryStore()
        pages.load_from_disk()
        return sum(len(pages.format_for_system_prompt(target) or "") for target in ("memory", "user"))

    return Side(
        fill=fill,
        search=lambda query: int(json.loads(ask(query=query, db=db))["count"]),
        # its description: all words are required unless they are joined with OR
        question=lambda query: int(json.loads(ask(query=" OR ".join(query.strip("?").split()), db=db))["count"]),
        browse=lambda: len(ask(db=db)),
        scroll=scroll,
        recorded_scroll=scroll,
        append=lambda text: db.append_message(APPENDED, "user", text),
        append_durably=lambda text: db.append_message(APPENDED, "user", text),
        add=add,
        remove=lambda text: memory.memory_tool("remove", "memory", old_text=text, store=edited),
        load=load,
        close=db.close,
    )


def _row(made: Made) -> dict[str, object]:
    return {"role": made.role, "content": made.text, "timestamp": made.timestamp}


def _sessions(messages: Iterator[Made], *, most: int) -> Iterator[list[tuple[str, list[Made]]]]:
    batch: list[tuple[str, list[Made]]] = []
    for name, group in groupby(messages, key=lambda made: made.session_id):
        batch.append((name, list(group)))
        if len(batch) == most:
            yield batch
            batch = []
    yield batch


def serve(side: Side) -> None:
    """Do what the lines of standard input say, and answer each with times."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a program prints must not be taken for an answer
    for line in sys.stdin:
        work, items = json.loads(line)
        answers.write(json.dumps(_do(side, work, items)) + "\n")
        answers.flush()
    side.close()


def _do(side: Side, work: str, items: list[Any]) -> dict[str, Any]:
    if work == "fill":
        side.fill(items[0])
        for number in range(ENTRIES):
            side.add(f"Fact {number}: the staging database of project {number} runs on port {5400 + number}.", "memory")
            side.add(f"Prefers answer style {number} where tables are wide.", "user")
        return {}
    if work == "memory in use":
        # not by getrusage, which counts the process that started this one as well
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return {"megabytes": int(status["VmHWM"].split()[0]) / 1024}
    walls, used, answered = [], [], []
    for item in items:
        act = _act(side, work, item)
        start, begun = time.perf_counter(), time.process_time()
        found = act()
        used.append(time.process_time() - begun)
        walls.append(time.perf_counter() - start)
        answered.append(bool(found))
        if work == "memory add":
            side.remove(item)
    return {"wall": walls, "processor": used, "answered": answered}


def _act(side: Side, work: str, item: Any) -> Callable[[], object]:
    def append_and_find() -> int:
        for text in item:
            side.append(text)
        return side.search(item[-1].split()[0])

    acts: dict[str, Callable[[], object]] = {
        "whole question": lambda: side.question(item),
        "browse": side.browse,
        "scroll": lambda: side.scroll(*item),
        "scroll and receipt": lambda: side.recorded_scroll(*item),
        "append": lambda: side.append(item),
        "append, equal durability": lambda: side.append_durably(item),
        "append 100, find the last": append_and_find,
        "memory add": lambda: side.add(item, "memory"),
        "snapshot load": side.load,
    }
    return acts.get(work) or (lambda: side.search(item))


if __name__ == "__main__":
    serve((open_kept if sys.argv[1] == "kept" else open_peer)(Path(sys.argv[2])))
