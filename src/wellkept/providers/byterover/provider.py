"""The ByteRover provider, and the program `brv` in one folder that it drives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from msgspec import Struct

from wellkept.core.agency import mark_environment
from wellkept.core.errors import ConfigError, ProviderError
from wellkept.core.regular_files import open_regular
from wellkept.core.settings import Between
from wellkept.core.text import JSON
from wellkept.providers.base import ForgetRequest, Forgotten, Messages, Rejected
from wellkept.providers.remote import (
    RemoteProvider,
    RemoteTool,
    bullet_list,
    clean,
    objects,
    safe_name,
    short_hash,
    text_of,
)
from wellkept.storage.files import make_folder, write_atomically

OWN: Final = "kept"
"""The folder of the tree that holds what kept wrote; the others are ByteRover's."""
NO_MODEL: Final = "no provider connected"
_MOST_BYTES: Final = 4_000_000
_MOST_FILE_BYTES: Final = 1_000_000
_LEAST_WAIT: Final = 10
"""The shortest time-out that brv accepts."""


class Brv:
    """Runs the program. It exits with 0 even when it fails, so only its output shows an error."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder

    def find_program(self) -> str | None:
        """Return the path of the program, None if it is not installed."""
        return shutil.which(self._program)

    def run(self, *arguments: str, seconds: float) -> Mapping[str, JSON]:
        """Run a command and return the data of its last event; raise what it reports as an error."""
        program = self.find_program()
        if program is None:
            raise ProviderError(f"{self._program} is not installed", "run: npm install -g byterover-cli")
        make_folder(self._folder)
        process = subprocess.Popen(
            [program, *arguments],
            cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=mark_environment({**os.environ, "BRV_DISABLE_AUTOUPDATE": "1"}), start_new_session=True,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # the group: brv starts helpers that keep the pipes open; its daemon has a group of its own
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise ProviderError(
                f"byterover did not answer within {seconds:g} s", "run `brv status` to see whether its daemon works"
            ) from None
        return _read_events(out, err, arguments[0])

    def search(self, query: str, *, limit: int, seconds: float) -> list[Mapping[str, JSON]]:
        """Return the documents that match, best first; needs no model and is never cached."""
        found = self.run("search", "--format", "json", "--limit", str(limit), "--", query, seconds=seconds)
        return objects(found, "results")

    def query(self, query: str, *, seconds: float) -> str:
        """Return the answer of ByteRover's model."""
        wait = str(max(_LEAST_WAIT, int(seconds)))
        found = self.run("query", "--format", "json", "--timeout", wait, "--", query, seconds=seconds + 5)
        return text_of(found, "result", "content")

    def curate(self, text: str, *, seconds: float) -> None:
        """Have ByteRover's model put a text into the tree, and wait until that is done."""
        wait = str(max(_LEAST_WAIT, int(seconds)))
        found = self.run("curate", "--format", "json", "--timeout", wait, "--", text, seconds=seconds + 5)
        if found.get("event") != "completed" and found.get("status") != "completed":
            raise ProviderError("byterover did not complete what it was given", "run `brv curate view`")

    def model(self, *, seconds: float) -> str:
        """Return the model that is connected, empty for none."""
        found = self.run("providers", "--format", "json", seconds=seconds)
        return text_of(found, "activeModel") or text_of(found, "providerId")


class Tree:
    """The Markdown files that `brv` searches; a file is found as soon as it exists and gone with it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / ".brv" / "context-tree"
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111 - HOME may be relative
        name = str(folder.absolute()).strip("/").replace("/", "--")
        self.logs = Path(data) / "brv" / "projects" / name
        """What the program records about its tasks in this folder, with their text."""

    def write(self, path: str, text: str) -> None:
        """Store a text below our own folder."""
        file = self.root / OWN / path
        make_folder(file.parent)
        write_atomically(file, f"{text}\n".encode("utf-8", "replace"))

    def has(self, path: str) -> bool:
        """Whether a file of ours exists."""
        return (self.root / OWN / path).is_file()

    def remove(self, path: str) -> None:
        """Delete a file of ours; a missing one is not an error."""
        (self.root / OWN / path).unlink(missing_ok=True)

    def read(self, path: str, *, most_chars: int) -> str:
        """Return the beginning of a file of the tree; empty for a path that leaves it."""
        file = (self.root / path).resolve()
        if not file.is_relative_to(self.root.resolve()) or not file.is_file():
            return ""
        return _text_of_file(file)[:most_chars].strip()

    def files(self) -> Iterator[Path]:
        """Yield every file of the tree, then the program's records."""
        for folder in (self.root, self.logs):
            yield from (each for each in sorted(folder.rglob("*")) if each.is_file() and not each.is_symlink())

    def files_with(self, words: Sequence[str]) -> list[Path]:
        """Return the files that contain one of the words, which are in lower case."""
        return [file for file in self.files() if _contains(_text_of_file(file), words)]

    def is_own(self, file: Path) -> bool:
        """Whether kept wrote a file."""
        return file.is_relative_to(self.root / OWN)

    def cut(self, file: Path, words: Sequence[str]) -> None:
        """Delete from a file the paragraphs with the words, from a list of records the lines; else the whole file."""
        gap = {".md": "\n\n", ".jsonl": "\n"}.get(file.suffix)
        pieces = _text_of_file(file).split(gap) if gap else []
        rest = (gap or "").join(piece for piece in pieces if not _contains(piece, words)).strip()
        if not rest or _contains(rest, words):
            file.unlink(missing_ok=True)
        else:
            write_atomically(file, f"{rest}\n".encode())


def _contains(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(word in folded for word in words)


def _text_of_file(file: Path) -> str:
    with open_regular(file) as stream:
        return stream.read(_MOST_FILE_BYTES).decode("utf-8", "replace")


def _read_events(out: bytes, err: bytes, command: str) -> Mapping[str, JSON]:
    """Return the data of the last event of a command's output."""
    if len(out) > _MOST_BYTES:
        raise ProviderError(f"byterover answered with more than {_MOST_BYTES:,} bytes", "run `brv status`")
    events = []
    for line in out.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, Mapping):
            events.append(event)
    if not events:
        said = " ".join(err.decode("utf-8", "replace").split())[:200]
        raise ProviderError(f"`brv {command}` answered without JSON: {said}", "check `brv --version`: 3.14 or later")
    data = events[-1].get("data")
    found: Mapping[str, JSON] = data if isinstance(data, Mapping) else {}
    if events[-1].get("success") is not True or found.get("event") == "error" or found.get("status") == "error":
        raise _error(" ".join((text_of(found, "error", "message") or "no reason given").split())[:300])
    return found


def _error(said: str) -> ProviderError:
    low = said.casefold()
    if NO_MODEL in low:
        return ProviderError(f"byterover: {said}", "run `brv providers connect`")
    if "too large" in low or "too long" in low or "exceeds" in low:
        return Rejected(f"byterover: {said}", "it refuses this text for its size")
    return ProviderError(f"byterover: {said}", "run `brv status`; the writes wait in the outbox")


_RECALL_CHARS = 6_000
_DOCUMENT_CHARS = 1_000
"""How much of one document a recall takes."""


class ByteRoverSettings(Struct, frozen=True, kw_only=True):
    """The settings in `byterover.json`."""

    command: str = "brv"
    """The program, by name or path."""
    auto_capture: bool = True
    """Whether finished turns are kept."""
    auto_extract: bool = True
    """Whether ByteRover's model sorts turns into its tree; otherwise, and without a model, they are kept verbatim."""
    recall_limit: Annotated[int, Between(1, 50)] = 6
    """How many documents a recall takes."""
    timeout_seconds: Annotated[float, Between(1, 60)] = 7.5
    """How long a search may take; each starts a process."""
    curate_seconds: Annotated[float, Between(10, 600)] = 50.0
    """How long ByteRover's model may take."""


class ByteRoverProvider(RemoteProvider[ByteRoverSettings]):
    """Every user of a profile has a folder with a tree of Markdown; page entries are files in it."""

    NAME = "byterover"
    SETTINGS = ByteRoverSettings
    QUESTIONS: ClassVar[Mapping[str, str]] = {
        "command": "Name or path of the program brv",
        "auto_capture": "Keep finished turns",
        "auto_extract": "Let its model sort them",
    }

    def __init__(self) -> None:
        super().__init__()
        self._has_model: bool | None = None

    def is_available(self, *, kept_home: str = "") -> bool:
        """Return whether the program is installed."""
        return super().is_available(kept_home=kept_home) and shutil.which(self.settings.command) is not None

    def check_config(self, values: Mapping[str, JSON], variables: Collection[str]) -> None:
        """Check also that the program is there."""
        super().check_config(values, variables)
        if shutil.which(self.settings.command) is None:
            raise ConfigError(f"{self.settings.command!r} is not installed", "run: npm install -g byterover-cli")

    @property
    def folder(self) -> Path:
        """Return the folder in which the program runs."""
        return self.home / self.NAME / self.scope

    @property
    def brv(self) -> Brv:
        """Return the program in the user's folder."""
        return Brv(self.settings.command, self.folder)

    @property
    def tree(self) -> Tree:
        """Return the user's tree."""
        return Tree(self.folder)

    def remote_tools(self) -> Sequence[RemoteTool]:
        """Return the three tools."""
        query: dict[str, JSON] = {"query": {"type": "string", "description": "A full question in plain words."}}
        content: dict[str, JSON] = {"content": {"type": "string", "description": "What to keep, with its reasons."}}
        return (
            RemoteTool(
                "brv_query",
                "Ask ByteRover; its model answers from the tree, without a model the best documents are returned.",
                query,
                ("query",),
                self._query,
            ),
            RemoteTool("brv_curate", "Put knowledge into the tree.", content, ("content",), self._curate, writes=True),
            RemoteTool("brv_status", "Show the state of ByteRover.", {}, (), self._status),
        )  # fmt: skip

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002 - all sessions are searched
        """Return the documents that match the message; the search needs no model."""
        return bullet_list(self._find(clean(query)[:1_000]), most_chars=_RECALL_CHARS)

    def sync_turn(
        self, user: str, assistant: str, *, session_id: str = "", messages: Messages = (), idempotency_key: str = ""
    ) -> None:
        """Hand the exchange to ByteRover's model; without one, keep it verbatim, under a name derived from its key."""
        del messages
        said = _as_text((("user", clean(user)), ("assistant", clean(assistant))))
        if not self.is_writable or not self.settings.auto_capture or not said:
            return
        path = f"turns/{safe_name(session_id or 'none')}/{short_hash(idempotency_key or said)}.md"
        if self._curates() and not self.tree.has(path):
            try:
                self.brv.curate(said, seconds=self.settings.curate_seconds)
            except ProviderError as error:
                if NO_MODEL not in error.message.casefold():
                    raise
                self._has_model = False  # disconnected since we asked
            else:
                return
        self.tree.write(path, said)

    def on_pre_compress(self, messages: Messages) -> str:
        """Keep the messages verbatim before they are shortened, unless every turn is kept verbatim anyway."""
        if not self.is_writable or (self.settings.auto_capture and not self._curates()):
            return ""
        roles = [(str(message.get("role")), message.get("content")) for message in messages]
        said = _as_text([(role, clean(text)) for role, text in roles if role in _SPEAKERS and isinstance(text, str)])
        if said:
            self.tree.write(f"turns/{safe_name(self.session_id or 'none')}/before-{short_hash(said)}.md", said)
        return ""

    def add_entry(self, target: str, text: str) -> None:
        """Store an entry as a file, named after its text."""
        self.tree.write(_entry_path(target, text), text)

    def remove_entry(self, target: str, text: str) -> None:
        """Delete the file of an entry."""
        self.tree.remove(_entry_path(target, text))

    def forget_content(self, request: ForgetRequest) -> Forgotten:
        """Delete the files that kept wrote, and the paragraphs of ByteRover's own, that the request selects."""
        words, found = _words(request), self._select(request)
        cut = [] if request.everything else [file for file in found if not self.tree.is_own(file)]
        for file in found:
            if file in cut:
                self.tree.cut(file, words)
            else:
                file.unlink(missing_ok=True)
        note = f"of {len(cut)} files that ByteRover wrote, the passages with the words were deleted"
        return Forgotten(len(found), note if cut else "")

    def holds_content(self, request: ForgetRequest) -> bool:
        """Return whether a file is left that the request selects."""
        return bool(self._select(request))

    def check_health(self) -> Mapping[str, JSON]:
        """Run the program once."""
        found = self.brv.run("status", "--format", "json", seconds=2 * self.settings.timeout_seconds)
        return {"version": text_of(found, "cliVersion"), "folder": str(self.folder)}

    def _curates(self) -> bool:
        """Whether turns go to ByteRover's model; the program is asked once."""
        if not self.settings.auto_extract:
            return False
        if self._has_model is None:
            self._has_model = bool(self.brv.model(seconds=2 * self.settings.timeout_seconds))
        return self._has_model

    def _find(self, query: str) -> list[str]:
        if not query or not self.tree.root.is_dir():
            return []
        found = self.brv.search(query, limit=self.settings.recall_limit, seconds=self.settings.timeout_seconds)
        paths = [(text_of(each, "path"), text_of(each, "excerpt")) for each in found]
        return [self.tree.read(path, most_chars=_DOCUMENT_CHARS) or excerpt for path, excerpt in paths]

    def _select(self, request: ForgetRequest) -> list[Path]:
        if request.everything:
            return list(self.tree.files())
        words = _words(request)
        found = self.tree.files_with(words) if words else []
        sessions = {safe_name(each) for each in request.session_ids}
        found += [file for file in self.tree.files() if self.tree.is_own(file) and file.parent.name in sessions]
        return list(dict.fromkeys(found))

    def _query(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        if self._curates():
            # the program caches answers, which may be older than the tree, so the documents are returned too
            answer = self.brv.query(args["query"], seconds=self.settings.curate_seconds)
            return {"answer": answer, "documents": list(self._find(args["query"]))}
        return {"documents": list(self._find(args["query"]))}

    def _curate(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        text = clean(args["content"])
        if self._curates():
            self.brv.curate(text, seconds=self.settings.curate_seconds)
            return {"curated": True}
        self.tree.write(f"told/{short_hash(text)}.md", text)
        return {"curated": False, "stored": "verbatim: no model is connected"}

    def _status(self, args: Mapping[str, Any]) -> Mapping[str, JSON]:
        del args
        model = self.brv.model(seconds=2 * self.settings.timeout_seconds)
        return {**self.check_health(), "model": model or "none", "documents": len(list(self.tree.root.rglob("*.md")))}


_SPEAKERS = ("user", "assistant")


def _as_text(said: Sequence[tuple[str, str]]) -> str:
    return "\n\n".join(f"{role}: {text}" for role, text in said if text)


def _entry_path(target: str, text: str) -> str:
    return f"pages/{safe_name(target)}-{short_hash(text)}.md"


def _words(request: ForgetRequest) -> list[str]:
    return [text.casefold() for text in request.texts if text.strip()]
