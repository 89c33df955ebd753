"""`kept backup` and `kept restore`: write a home to one file, and restore it."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wellkept.app import App
from wellkept.backup import backup as backups
from wellkept.backup import restore as restores
from wellkept.cli.terminal import (
    JsonFlag,
    YesFlag,
    ask,
    confirm,
    count_noun,
    expect,
    fail,
    note,
    open_caller,
    print_json,
    say,
)
from wellkept.core.errors import Refused, UsageError
from wellkept.core.ids import OWNER

if TYPE_CHECKING:
    from wellkept.backup.backup import BackupReport
    from wellkept.backup.restore import RestoreReport

PassphraseFlag = Annotated[
    str | None,
    typer.Option("--passphrase-env", metavar="NAME", help="Read the passphrase from this environment variable."),
]


_NOT_WHOLE = "`kept doctor` names the repair; earlier backups were not replaced by this one"
_OLDER = "use an earlier backup; this one can be restored, with what is left in it"


def register(program: typer.Typer) -> None:
    """Add the commands of this module."""
    program.command("backup")(backup)
    program.command("restore")(restore)


def backup(
    file: Annotated[
        Path | None,
        typer.Argument(help="The file to write, or a folder for a new file in it; without it `backup.folder`."),
    ] = None,
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt it with a passphrase (age format).")] = False,
    passphrase_env: PassphraseFlag = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read it back, compare all checksums and check the databases.")
    ] = False,
    if_due: Annotated[bool, typer.Option("--if-due", help="Only if a scheduled backup is due.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write everything to one file: pages, ledger, conversations, skills, and settings without keys.

    It is safe while other processes write. The owner's backup contains all users, another user's only their own.
    Without FILE it goes to the folder of scheduled backups, encrypted as `backup.passphrase_env` says. A backup of
    damaged data gets `-damaged` in its name, and the command ends with exit code 74.
    """
    if file is None and (encrypt or passphrase_env is not None or verify):
        raise UsageError("these options need a FILE", "name the file, or set backup.passphrase_env")
    passphrase = read_passphrase(passphrase_env, twice=True) if encrypt or passphrase_env is not None else None
    with open_caller() as caller:
        if if_due:
            made: BackupReport | Refused | None = backups.take_scheduled_backup(caller)
        elif file is None:
            made = backups.take_backup(caller)
        else:
            made = backups.create_backup(caller, file, overwrite=overwrite, passphrase=passphrase)
        if verify and not isinstance(made, Refused) and made is not None:
            made = backups.verify_backup(caller, made.file, passphrase=passphrase)
    _show_made(made, verified=verify, as_json=as_json)


def _show_made(made: "BackupReport | Refused | None", *, verified: bool, as_json: bool) -> None:
    made = expect(made, as_json=as_json)
    if made is None:
        print_json({"success": True, "file": None}) if as_json else say("no backup is due")
    elif as_json:
        print_json({"success": not made.problems, "verified": verified and not made.problems, **made.as_json()})
    else:
        show_backup(made)
        say(f"{'written and verified' if verified else 'written'}: {made.file} ({_show_bytes(made.archive_bytes)})")
    if made is not None and made.problems:
        fail(f"{str(made.file)!r} is not whole: {made.problems[0]}", _NOT_WHOLE, code=74)


def start_if_due(app: App) -> None:
    """Start a scheduled backup that is due in a separate process, so that no command waits for it."""
    if "KEPT_BACKGROUND" in os.environ or not backups.is_due(app):
        return
    from wellkept.cli.hook import start_detached

    place = ["--home", str(app.home.root), "--profile", app.home.profile]
    os.environ["KEPT_BACKGROUND"] = "1"  # it must not start another one
    start_detached([sys.executable, "-m", "wellkept", *place, "backup", "--if-due"])
    del os.environ["KEPT_BACKGROUND"]


def show_backup(made: "BackupReport") -> None:
    """Print what is in a backup, and what is not."""
    nouns = {"pages": "page", "sessions": "session", "messages": "message", "skills": "skill", "users": "other user"}
    told = [count_noun(made.parts[name], noun) for name, noun in nouns.items() if made.parts.get(name)]
    size = f"{count_noun(made.files, 'file')}, {_show_bytes(made.content_bytes)}"
    say(f"{', '.join(told) or 'nothing stored yet'}; {size}")
    for omission in made.left_out:
        if not omission.is_needless:
            note(f"left out: {omission.what} ({omission.why})")
    for name in made.redacted:
        note(f"without its keys: {name}")
    for problem in made.problems:
        note(f"kept: {problem}")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `kept backup` wrote.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Only read it, compare all checksums and check the databases in it.")
    ] = False,
    settings: Annotated[bool, typer.Option("--settings", help="Replace the settings of this home too.")] = False,
    include_forgotten: Annotated[
        bool,
        typer.Option("--include-forgotten", help="Also restore files although something was forgotten since."),
    ] = False,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Do not back up this home first.")] = False,
    passphrase_env: PassphraseFlag = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Restore a backup: unchanged into an empty home, merged without loss into one with data.

    Pages are merged by their ledger, conversations by their ids, skills by their versions. If both sides changed
    something, both versions are kept and listed.
    """
    with open_caller() as caller:
        passphrase = read_passphrase(passphrase_env) if backups.needs_passphrase(file) else None
        if verify:
            report = backups.verify_backup(caller, file, passphrase=passphrase)
            _show_verified(report, as_json=as_json)
            return
        options = restores.RestoreOptions(settings, include_forgotten)
        with restores.open_restore(caller, file, options, passphrase=passphrase) as prepared:
            opened = expect(prepared, as_json=as_json)
            assert opened.preview is not None
            if not as_json or dry_run:
                _show_restore(opened.preview, as_json=as_json)
            if dry_run:
                return
            if not opened.preview.changes_nothing and not confirm("restore this?", yes=yes):
                fail("nothing was restored")
            _show_done(restores.apply_restore(caller, opened, backup=not no_backup), as_json=as_json)


def _show_done(done: "RestoreReport | Refused", *, as_json: bool) -> None:
    done = expect(done, as_json=as_json)
    if as_json:
        print_json({"success": True, **done.as_json()})
    elif done.changes_nothing:
        say("this home already contains everything in the backup; nothing was changed")
    else:
        say(f"restored{f'; the previous state is in {done.backup}' if done.backup is not None else ''}")


def _show_verified(found: "BackupReport", *, as_json: bool) -> None:
    if as_json:
        print_json({"success": not found.problems, "verified": not found.problems, **found.as_json()})
    else:
        show_backup(found)
    if found.problems:
        fail(f"{str(found.file)!r} holds what was damaged when it was made: {found.problems[0]}", _OLDER, code=74)
    if not as_json:
        say(f"verified: all {found.files:,} files of {found.file}, made {found.created}, are intact")


def _show_restore(report: "RestoreReport", *, as_json: bool) -> None:
    if as_json:
        print_json(report.as_json())
        return
    say(f"backup of {report.created}, {'into an empty home' if report.is_fresh else 'merged into this home'}")
    for user, parts in report.parts.items():
        for name, part in parts.items():
            told = ", ".join(f"{count:,} {what}" for what, count in part.counts.items() if count)
            if told:
                say(f"{'' if user == OWNER else f'{user}: '}{name:<10} {told}")
    for line in report.collect("conflicts"):
        say(f"conflict: {line}")
    for line in report.collect("held_back"):
        note(f"held back: {line}")
    if report.forgotten_since:
        note(
            f"forgotten here after this backup: {count_noun(len(report.forgotten_since), 'time')}; what was forgotten "
            "stays forgotten, and files that are not here are held back unless you give --include-forgotten"
        )


def read_passphrase(variable: str | None, *, twice: bool = False) -> str:
    """Return the passphrase from an environment variable, or ask for it; never from the command line."""
    if variable is not None:
        passphrase = os.environ.get(variable)
        if not passphrase:
            raise UsageError(f"the environment variable {variable!r} is not set", "set it to the passphrase")
        return passphrase
    if not sys.stdin.isatty():
        fail("there is no terminal to ask for the passphrase", "give --passphrase-env NAME", code=2)
    first = ask("passphrase", hidden=True)
    if twice and ask("again", hidden=True) != first:
        fail("the two passphrases differ", "run it again", code=2)
    return first


def _show_bytes(size: int) -> str:
    return f"{size:,} bytes" if size < 10_000 else f"{size / 1_000_000:,.2f} MB"
