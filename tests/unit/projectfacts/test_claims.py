"""What an entry claims about a project."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.projectfacts.claims import MOST_CLAIMS, read_claims


def texts(entry):
    return {claim.text for claim in read_claims(entry)}


@pytest.mark.parametrize(("entry", "expected"), [
    ("Handlers are in src/app.py, tests in `tests/unit/`", {"src/app.py", "tests/unit"}),
    ("Fails at src/app.py:42 and tests/test_a.py::test_b", {"src/app.py", "tests/test_a.py"}),
    ("Run `make lint` and npm run build", {"make", "make lint", "npm run build"}),
    ("make sure that just one of them runs", set()),
    ("Django 4.2 and psycopg==3.1.9", {"django 4.2", "psycopg 3.1.9"}),
    ("The server listens on port 8000, not 9000", {"port 8000"}),
    ("端口 8080，分支 develop", {"port 8080", "branch develop"}),
    ("The `release/1.x` branch gets fixes", {"branch release/1.x", "release/1.x"}),
    ("src/old.py was deleted. Use src/new.py.", {"src/new.py"}),
    ("Write to https://x.example/a/b.py or ~/c/d.py or /etc/e.toml", set()),
    ("Ana prefers e.g. small commits and/or short titles", {"and/or"}),
    ("部署步骤在 docs/deploy.md 里", {"docs/deploy.md"}),
])  # fmt: skip
def test_claims(entry, expected):
    """Paths, targets, versions, ports and branches; nothing of a clause about the past."""
    assert texts(entry) == expected


@given(st.text(max_size=3_000))
def test_any_text_can_be_read(entry):
    """It is somebody's sentence, and may be anything."""
    claims = read_claims(entry)

    assert len(claims) <= MOST_CLAIMS
    assert all(".." not in claim.text.split("/") for claim in claims)


@pytest.mark.parametrize("unit", ["a/", "`", "a.b.", "x=", "port ", "branch ", "make a-", "v1.", "(", "a" * 50 + " "])
def test_a_long_text_takes_no_long_time(unit):
    """No expression backtracks without end; the test has a timeout."""
    read_claims(unit * 100_000)
