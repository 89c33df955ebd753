"""A real repository, made by git in a temporary folder."""

import os
import subprocess

import pytest

FIRST = 1_735_732_800
DAY = 86_400


class Repo:
    """A repository with one commit a day."""

    def __init__(self, root):
        self.root = root
        self.day = 0
        root.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    @property
    def now(self):
        """Half a day after the newest commit."""
        return FIRST + self.day * DAY + DAY / 2

    def git(self, *arguments):
        moment = f"{FIRST + self.day * DAY} +0000"
        names = {
            f"GIT_{role}_{what}": value
            for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "Ana"), ("EMAIL", "ana@orchard.example"), ("DATE", moment))
        }
        own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        subprocess.run(
            ["git", *arguments], cwd=self.root, env={**os.environ, **own, **names}, check=True, capture_output=True
        )

    def write(self, files):
        """Write files; None deletes one."""
        for name, text in files.items():
            path = self.root / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def commit(self, files=None):
        """Write files and commit everything, a day later."""
        self.day += 1
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-qm", f"Day {self.day}", "--allow-empty")

    def move(self, old, new):
        (self.root / new).parent.mkdir(parents=True, exist_ok=True)
        self.git("mv", old, new)
        self.commit()


@pytest.fixture
def repo(tmp_path):
    """A repository with a file, and nothing committed yet."""
    return Repo(tmp_path / "orchard")


def prose(name, lines=20):
    """Return a text of some length that resembles no other."""
    return "".join(f"line {number} about {name}\n" for number in range(lines))
