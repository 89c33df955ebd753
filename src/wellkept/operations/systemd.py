"""The server as a systemd service: write its unit, and remove it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import field

from wellkept.app.caller import Caller, Scope
from wellkept.core.errors import Reason, Refused, StorageError, UsageError
from wellkept.core.installation import find_program
from wellkept.core.values import JsonStruct
from wellkept.storage.files import make_folder, read_bytes, write_atomically

if TYPE_CHECKING:
    from wellkept.app.root import App

_MARK = "# Written by `kept serve install-service`, which replaces it."
_SYSTEM_FOLDER = Path("/etc/systemd/system")
_STOP_SECONDS = 15
"""Seconds that the server needs after its turns have ended: replies, outbox, closing files."""
_NO_SYSTEMD = Refused(
    Reason.UNAVAILABLE,
    "this machine does not use systemd: there is no systemctl",
    "start `kept serve` with your system's service manager; --dry-run shows the unit",
)
_HARDENING = (
    "UMask=0077",
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "RestrictNamespaces=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures=native",
)
"""Options that need no namespaces, so that they work in user units everywhere."""
_SYSTEM_HARDENING = (
    "CapabilityBoundingSet=",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectSystem=full",
)


class Service(JsonStruct, frozen=True):
    """A systemd unit, its path, and the commands that start it."""

    path: Path
    unit: str
    commands: tuple[str, ...]
    is_written: bool = field(name="written")


def install_service(caller: Caller, *, is_system: bool = False, dry_run: bool = False) -> Service | Refused:
    """Write a unit that runs the server of this home; refused without systemd, or for a file of somebody else."""
    caller.require(Scope.ADMIN)
    path = _find_path(caller.app, is_system=is_system)
    service = Service(path, _write_unit(caller.app, is_system=is_system), _list_commands(path, is_system), not dry_run)
    if dry_run:
        return service
    refused = _refuse(path)
    if refused is not None:
        return refused
    try:
        make_folder(path.parent)
        write_atomically(path, service.unit.encode(), mode=0o644)
    except StorageError as error:
        if not is_system:
            raise
        raise UsageError(f"the system unit cannot be written: {error.message}", "run it as root") from error
    return service


def uninstall_service(caller: Caller, *, is_system: bool = False) -> Service | Refused:
    """Remove the unit that `install_service` wrote; a running server continues until it is stopped."""
    caller.require(Scope.ADMIN)
    path = _find_path(caller.app, is_system=is_system)
    refused = _refuse(path)
    if refused is not None:
        return refused
    unit = read_bytes(path)
    if unit is None:
        return Refused(Reason.NO_MATCH, f"there is no unit {path}", "`kept serve install-service` writes one")
    try:
        path.unlink()
        (path.parent / f"{_find_target(is_system)}.wants" / path.name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be removed: {error.strerror}", "run it as root") from error
    control = _control(is_system)
    return Service(
        path, unit.decode("utf-8", "replace"), (f"{control} stop {path.name}", f"{control} daemon-reload"), False
    )


def _refuse(path: Path) -> Refused | None:
    if shutil.which("systemctl") is None:
        return _NO_SYSTEMD
    found = read_bytes(path)
    if found is not None and not found.startswith(_MARK.encode()):
        return Refused(Reason.PRESENT, f"{path} was written by somebody else", "move it away, or change it by hand")
    return None


def _find_path(app: App, *, is_system: bool) -> Path:
    home = app.home
    name = "kept.service" if home.path == home.root else f"kept-{home.profile}.service"
    if is_system:
        return _SYSTEM_FOLDER / name
    own = app.environ.get("XDG_CONFIG_HOME") or ""
    folder = Path(own) if own.startswith("/") else Path(app.environ.get("HOME") or Path.home()) / ".config"
    return folder / "systemd" / "user" / name


def _write_unit(app: App, *, is_system: bool) -> str:
    home = app.home
    command = [*find_program(), "--home", str(home.root)]
    command += ["--profile", home.profile] if home.path != home.root else []
    stop_seconds = round(app.settings.serve.drain_seconds) + _STOP_SECONDS
    hardening = (*_HARDENING, *(_SYSTEM_HARDENING if is_system else ()))
    return "\n".join(
        [
            _MARK,
            "[Unit]",
            "Description=kept, memory for agents",
            *(["After=network-online.target", "Wants=network-online.target"] if is_system else []),
            "StartLimitIntervalSec=300",
            "StartLimitBurst=5",
            "",
            "[Service]",
            "Type=exec",
            *([f"User={_find_owner(home.root)}"] if is_system else []),
            f"ExecStart={' '.join(map(_quote, [*command, 'serve']))}",
            "Restart=on-failure",
            "RestartSec=5",
            "# invalid settings: another start would fail in the same way",
            "RestartPreventExitStatus=2",
            f"TimeoutStopSec={stop_seconds}",
            *hardening,
            "",
            "[Install]",
            f"WantedBy={_find_target(is_system)}",
            "",
        ]
    )


def _find_owner(home: Path) -> str:
    """Return the operating-system user who owns the home, as whom the server must run."""
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    return existing.owner()


def _quote(word: str) -> str:
    """Return a word of a command as systemd reads it: its own specifiers, variables and quotes are escaped."""
    if any(ord(each) < 32 for each in word):
        raise UsageError(f"{word!r} cannot be in a systemd unit", "use a path without control characters")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return (
        escaped
        if escaped.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum()
        else f'"{escaped}"'
    )


def _find_target(is_system: bool) -> str:
    return "multi-user.target" if is_system else "default.target"


def _control(is_system: bool) -> str:
    return "systemctl" if is_system else "systemctl --user"


def _list_commands(path: Path, is_system: bool) -> tuple[str, ...]:
    control = _control(is_system)
    start = (f"{control} daemon-reload", f"{control} enable --now {path.name}")
    # without lingering, a user's services end with the last login session
    return start if is_system else (*start, "loginctl enable-linger")
