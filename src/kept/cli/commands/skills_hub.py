"""`kept skills browse | search | install | update | remove | audit`."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kept.app import App
from kept.cli.commands.skills import NameArgument, told
from kept.cli.terminal import JsonFlag, YesFlag, confirm, note, opened, print_json, refuse, say
from kept.core.errors import Refused
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.skills.hub.hub import AuditResult, Hub, Offer, Prepared

SourceArgument = Annotated[
    str, typer.Argument(help="A folder, a zip, a git URL, owner/repo/path, an https:// site, or pip:PACKAGE.")
]


def add_to(app: typer.Typer) -> None:
    """Add these commands to the group."""
    for command in (browse, search, install, update, remove, audit):
        app.command()(command)


def _hub(kept: App) -> "Hub":
    from kept.skills.hub.hub import Hub

    return Hub(kept.skill_tools.editor)


def browse(
    source: Annotated[str | None, typer.Argument(help="The source; those of skills.hub_sources by default.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the skills at a source. Uses the network when the source is remote."""
    with opened() as kept:
        _listed(_offered(kept, source), as_json=as_json)


def search(
    query: Annotated[str, typer.Argument(help="Words that name or describe it.")],
    source: Annotated[str | None, typer.Option("--source", "-s", help="Look only here.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Search the sources of skills.hub_sources, or one source. Uses the network when a source is remote."""
    from kept.skills.hub.hub import filter_offers

    with opened() as kept:
        _listed(filter_offers(query, _offered(kept, source)), as_json=as_json)


def _offered(kept: App, source: str | None) -> "list[Offer]":
    sources = [source] if source else list(kept.settings.skills.hub_sources)
    if not sources:
        note("no source is named: give one, or list some in skills.hub_sources")
    offers: list[Offer] = []
    for one in sources:
        found = _hub(kept).browse(one)
        if isinstance(found, Refused):
            if source:
                refuse(found, as_json=False)
            note(f"kept: {one}: {found.error}")
        else:
            offers += found
    return offers


def _listed(offers: "list[Offer]", *, as_json: bool) -> None:
    if as_json:
        print_json([asdict(offer) for offer in offers])
        return
    for offer in offers:
        say(f"{offer.name}  ({offer.source})\n    {offer.description}")


def install(
    source: SourceArgument,
    skill: Annotated[str | None, typer.Option("--skill", help="Which one, when the source has several.")] = None,
    category: Annotated[str, typer.Option("--category", "-c", help="An optional group.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Take a dangerous skill from a local source.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Fetch a skill to quarantine, check it, show what it may do, and place it after your yes."""
    with opened() as kept:
        hub = _hub(kept)
        prepared = hub.prepare(source, skill=skill)
        if isinstance(prepared, Refused):
            refuse(prepared, as_json=as_json)
        _placed(hub, prepared, category=category, force=force, yes=yes, as_json=as_json)


def _placed(hub: "Hub", prepared: "Prepared", *, category: str, force: bool, yes: bool, as_json: bool) -> None:
    from kept.skills.guard.verdict import Policy

    _described(prepared)
    blocked = prepared.policy is Policy.BLOCK and not (force and not prepared.network)
    # a caution is the person's own decision: --yes alone, as scripts give it, does not make it
    agreed = yes and (force or prepared.policy is Policy.ALLOW)
    if not blocked and not confirm(f"install {prepared.package.name!r}?", yes=agreed):
        raise typer.Exit(1)
    told(hub.install(prepared, category=category, force=force), as_json=as_json)


_NOTHING_FOUND = "do nothing that the scan knows of (network, programs, files, variables, packages, rights)"


def _described(prepared: "Prepared") -> None:
    package = prepared.package
    note(f"{package.name}: {package.description}")
    note(f"  from {prepared.source} at {prepared.revision[:48]} ({prepared.trust})")
    note(f"  verdict: {prepared.report.danger}")
    for finding in prepared.report.findings:
        note(f"    {finding}")
    note(f"  files: {', '.join(sorted(package.files))}")
    note(f"  its scripts may: {', '.join(prepared.abilities) or _NOTHING_FOUND}")
    for warning in package.warnings:
        note(f"  note: {warning}")


def update(
    name: Annotated[str | None, typer.Argument(help="One skill; all installed ones by default.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Drop changes that were made here.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Fetch installed skills again and place what is new. Uses the network when the source is remote."""
    with opened() as kept:
        hub = _hub(kept)
        for one in [name] if name else sorted(hub.lock.read()):
            prepared = hub.prepare_update(one, force=force)
            if prepared is None:
                note(f"{one} is up to date")
            elif isinstance(prepared, Refused):
                if name:
                    refuse(prepared, as_json=as_json)
                note(f"kept: {one}: {prepared.error}")
            else:
                _placed(hub, prepared, category="", force=force, yes=yes, as_json=as_json)


def remove(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Move an installed skill to the archive and forget where it came from."""
    with opened() as kept:
        told(_hub(kept).remove(name), as_json=as_json)


def audit(as_json: JsonFlag = False) -> None:
    """Hash and scan every installed skill again; exit 1 when one differs from its lock."""
    with opened() as kept:
        found = _hub(kept).audit()
    if as_json:
        print_json([_audit_row(one) for one in found])
    else:
        for one in found:
            say(f"{one.name}: {'as installed' if one.clean else 'differs'} ({one.verdict})")
            for kind, paths in (("changed", one.changed), ("missing", one.missing), ("added", one.added)):
                if paths:
                    say(f"    {kind}: {', '.join(paths)}")
        if not found:
            note("nothing is installed from a source")
    if any(not one.clean for one in found):
        raise typer.Exit(1)


def _audit_row(one: "AuditResult") -> dict[str, JSON]:
    return {
        "name": one.name,
        "clean": one.clean,
        "changed": list(one.changed),
        "missing": list(one.missing),
        "added": list(one.added),
        "verdict": one.verdict,
        "locked_verdict": one.locked_verdict,
        "rules": list(one.rules),
    }
