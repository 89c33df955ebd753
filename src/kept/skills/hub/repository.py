"""Git repositories as sources: a shallow clone without hooks, prompts or other protocols than the one asked for."""

import resource
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kept.core.errors import Reason, Refused
from kept.skills.hub.sources import Fetched, Git

_MOST_PACK_BYTES = 256 * 1_048_576
_SAFETY = ("core.hooksPath=/dev/null", "core.symlinks=true", "fetch.fsckObjects=true", "submodule.recurse=false")


def has_git(environ: Mapping[str, str]) -> bool:
    """Tell whether git is installed."""
    return shutil.which("git", path=environ.get("PATH")) is not None


def clone(source: Git, target: Path, *, environ: Mapping[str, str], seconds: float) -> Fetched | Refused:
    """Fetch one revision of `source` to `target`, without its history."""
    if source.ref.startswith("-"):
        return Refused(Reason.INVALID, f"{source.ref!r} is no revision", "name a branch or tag")
    branch = ["--branch", source.ref] if source.ref else []
    options = ["--quiet", "--depth", "1", "--no-tags", "--single-branch", *branch]
    safety = [word for setting in _SAFETY for word in ("-c", setting)]
    try:
        _git([*safety, "clone", *options, "--", source.url, str(target)], source, environ=environ, seconds=seconds)
        revision = _git(["-C", str(target), "rev-parse", "HEAD"], source, environ=environ, seconds=seconds)
    except subprocess.TimeoutExpired:
        return Refused(Reason.UNAVAILABLE, f"git took more than {seconds:g} s", "try again, or use a zip")
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip().splitlines()
        return Refused(Reason.UNAVAILABLE, f"git could not fetch it: {said[-1] if said else '?'}", "check the address")
    shutil.rmtree(target / ".git")
    return Fetched(revision.decode().strip(), target)


def _git(arguments: list[str], source: Git, *, environ: Mapping[str, str], seconds: float) -> bytes:
    quiet = {
        **environ,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_ASKPASS": "true",
        # redirects included: an answer over HTTPS cannot lead to a plain or a local address
        "GIT_ALLOW_PROTOCOL": source.url.partition("://")[0] if "://" in source.url else "ssh",
    }
    done = subprocess.run(
        ["git", *arguments],
        env=quiet,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=True,
        preexec_fn=_bounded,
    )
    return done.stdout


def _bounded() -> None:
    """Stop a repository that would fill the disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_PACK_BYTES, _MOST_PACK_BYTES))
