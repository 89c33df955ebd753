"""A person's orders on a full page: none is refused, each is answered afterwards, and each move is undone in turn."""

import json

import pytest

PEOPLE = [
    "Okafor", "Lindqvist", "Marchetti", "Petrov", "Nakamura", "Dubois", "Hansen", "Ferreira", "Novak", "Schmidt",
    "Kowalski", "Ivanova", "Rossi", "Moreau", "Jansen", "Silva", "Yamada", "Olsen", "Costa", "Weber",
]  # fmt: skip
THINGS = [
    "dentist", "plumber", "florist", "landlord", "barber", "accountant", "electrician", "gardener", "optician",
    "vet", "lawyer", "notary", "tailor", "carpenter", "baker", "butcher", "teacher", "neighbour", "physiotherapist",
    "mechanic",
]  # fmt: skip
FACTS = [(f"my {thing} is {name}", f"who is my {thing}?", name) for thing, name in zip(THINGS, PEOPLE, strict=True)]
FACTS += [
    (
        f"the code of the {thing}'s door is {4100 + number}",
        f"what is the code of the {thing}'s door?",
        str(4100 + number),
    )
    for number, thing in enumerate(THINGS)
]


@pytest.fixture
def full(home, kept):
    """A home whose pages are full before the first order."""
    (home / "config.yaml").parent.mkdir(parents=True, exist_ok=True)
    (home / "config.yaml").write_text("memory: {memory_char_limit: 300, user_char_limit: 300}\n")
    for target in ("memory", "user"):
        assert kept("memory", "add", "--target", target, "x" * 290).code == 0


def read_pages(kept):
    views = json.loads(kept("memory", "show", "--json").out)
    return {page: (view["entries"], sorted(view.get("archived", []))) for page, view in views.items()}


def test_forty_orders_on_a_full_page(full, kept):
    """All are saved, all are answered by a question later, and undoing them one by one leads back to the beginning."""
    states = []
    for fact, _, _ in FACTS:
        states.append(read_pages(kept))
        ran = kept("run", f"Remember that {fact}.")
        assert ran.code == 0
        assert "Saved to" in ran.out

    answers = [(question, value, kept("run", question).out) for _, question, value in FACTS]
    assert [question for question, value, answer in answers if value not in answer] == []
    # the words are in past conversations too, so that the source has to say where an answer was found
    assert sum("archive/" in answer for *_, answer in answers) >= 20

    moves = [row for row in json.loads(kept("memory", "log", "--json").out) if row["origin"] == "overflow"]
    assert len(moves) >= 20
    for state in reversed(states):
        ran = kept("memory", "undo")
        assert ran.code == 0, ran.err
        assert read_pages(kept) == state


def test_the_answer_says_what_moved_and_how_to_bring_it_back(full, kept):
    """In a chat and on the command line."""
    said = kept("run", "Remember that my dentist is Dr Okafor.").out
    assert "Moved to the archive" in said
    assert "kept memory restore" in said

    added = kept("memory", "add", "Staging runs on heron")
    assert "Moved to the archive to make room: xxx" in added.err
    assert "`kept memory restore" in added.err


def test_forget_removes_from_the_archive_too(full, kept, home):
    """No byte of it is left in the home."""
    kept("run", "Remember that my dentist is Dr Okafor.")
    for number in range(12):
        kept("memory", "add", "--target", "user", f"A further fact with the number {number:03d}")
    assert any("Okafor" in text for text in read_pages(kept)["user"][1])

    assert kept("forget", "--query", "Okafor", "--yes").code == 0

    assert not any(b"Okafor" in path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert not any("Okafor" in text for _, archived in read_pages(kept).values() for text in archived)
