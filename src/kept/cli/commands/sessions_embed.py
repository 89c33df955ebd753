"""`kept sessions embed`: the vectors of past messages, made in one go."""

from typing import TYPE_CHECKING, Annotated

import typer

from kept.cli.terminal import JsonFlag, fail, opened, print_json, say
from kept.core.text import JSON

if TYPE_CHECKING:
    from kept.app import App


def add_to(app: typer.Typer) -> None:
    """Add the command to its group."""
    app.command()(embed)


def embed(
    anew: Annotated[bool, typer.Option("--anew", help="Throw the vectors away first and make all of them.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the vectors that are missing, newest first; stopped at any moment, the next run goes on from there."""
    with opened() as kept:
        meaning = kept.meaning
        if meaning is None:
            fail(
                "vectors are off: sessions.embeddings.provider is not set",
                "run: kept config set sessions.embeddings.provider local",
                code=2,
            )
        made = meaning.embed_all(anew=anew)
        found = vectors_json(kept)
    if as_json:
        print_json({"made": made, **found})
    else:
        say(f"{made:,} messages got vectors; {vectors_line(found)}")


def vectors_json(kept: "App") -> dict[str, JSON]:
    """Return how far the vectors of this home go."""
    found = kept.sessions.keeping.coverage()
    return {
        "provider": kept.settings.sessions.embeddings.provider,
        "model": found.model,
        "covered": found.covered,
        "waiting": found.waiting,
        "share": round(found.share, 4) if found.model is not None else 0.0,
    }


def waiting_vectors(kept: "App") -> int:
    """Return how many messages wait for their vectors; none do while vectors are off."""
    return 0 if kept.meaning is None else kept.sessions.keeping.coverage().waiting


def vectors_line(found: JSON) -> str:
    """Return the same in a line."""
    assert isinstance(found, dict)
    if found["model"] is None:
        return "off" if found["provider"] == "off" else "none yet: `kept sessions embed` makes them"
    return f"{found['model']}, {found['covered']:,} messages, {found['waiting']:,} wait"
