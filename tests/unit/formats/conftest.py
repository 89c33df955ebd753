"""A home with a caller, and the rows of Claude Code's transcripts."""

import json
import uuid
from pathlib import Path

import pytest

from wellkept.app import open_app

CORPUS = Path(__file__).parents[2] / "corpora" / "transcripts"


@pytest.fixture
def corpus():
    """The folder with transcripts of real clients."""
    return CORPUS


@pytest.fixture
def caller(home):
    """The owner of a new home."""
    app = open_app(str(home), None)
    yield app.caller()
    app.close()


class Rows:
    """Writes a transcript as Claude Code does, row by row."""

    def __init__(self, path, session="11111111-aaaa", **common):
        self.path = path
        self.session = session
        self.common = {"entrypoint": "cli", "cwd": "/home/sam/project", "version": "2.1.325", **common}
        self.second = 0
        path.parent.mkdir(parents=True, exist_ok=True)

    def row(self, kind, **fields):
        self.second += 1
        stamp = f"2026-11-01T10:{self.second // 60:02}:{self.second % 60:02}.000Z"
        row = {
            "type": kind, "uuid": str(uuid.uuid4()), "timestamp": stamp, "sessionId": self.session, "isSidechain": False,
            **self.common, **fields,
        }  # fmt: skip
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return row

    def user(self, content, **fields):
        return self.row("user", message={"role": "user", "content": content}, **fields)

    def answer(self, *blocks, id=None, **fields):  # noqa: A002 - the key of the format
        made = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        message = {
            "id": id or f"msg_{uuid.uuid4().hex[:12]}", "role": "assistant", "model": "claude-opus-4-8", "content": made,
            "stop_reason": "end_turn", "usage": {"input_tokens": 5, "output_tokens": 7},
        }  # fmt: skip
        return self.row("assistant", message=message, **fields)


@pytest.fixture
def rows(tmp_path):
    """A transcript to write."""
    return Rows(tmp_path / "claude" / "projects" / "p" / "11111111-aaaa.jsonl")


@pytest.fixture
def make_rows(tmp_path):
    """Makes further transcripts."""
    return lambda name, **fields: Rows(tmp_path / "claude" / "projects" / "p" / name, **fields)
