"""Run the adapters against their real back ends, each in an environment of its own.

    make test-providers [PROVIDERS="mem0 hindsight"]

`real_NAME.py` starts what it needs, makes its checks, prints JSON and exits 0 if all is well. What it needs is in
`REQUIREMENTS`; environments stay in `.providers/` and are used again.
"""

import argparse
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".providers"

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "mem0": ("mem0ai>=2.2",),
    "honcho": ("honcho-ai==2.7.*",),
    "supermemory-v3": ("supermemory==3.62.*",),
    "supermemory-v5": ("supermemory==5.0.*",),
}
"""Provider, with the edition after a hyphen → packages of its real back end or of the vendor's client."""


def prepare(name: str) -> Path:
    """Return the Python of the provider's environment; create it if it is missing."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    wanted = "\n".join(REQUIREMENTS[name])
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-e", str(ROOT), "pytest", *REQUIREMENTS[name]], check=True)
        stamp.write_text(wanted)
    return python


def main() -> int:
    """Run the named providers, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROVIDER", help=f"of: {', '.join(REQUIREMENTS)}")
    names = parser.parse_args().names or list(REQUIREMENTS)
    failed = []
    for name in names:
        began = time.monotonic()
        python = prepare(name)
        ready = time.monotonic()
        code = subprocess.run([str(python), str(HERE / f"real_{name.partition('-')[0]}.py")], check=False).returncode
        took = f"set-up {ready - began:.0f} s, run {time.monotonic() - ready:.0f} s"
        print(f"{name}: {'ok' if code == 0 else 'FAILED'} ({took})", flush=True)
        if code != 0:
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
