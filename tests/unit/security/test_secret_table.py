"""The table of credential shapes, row by row."""

import random
import re

import pytest

from wellkept.security.scan import scan
from wellkept.security.secrets import redact, shape_table, shapes
from wellkept.testing.credentials import make_credential

SHAPES = shape_table().shapes
FORMS = [(shape, form) for shape in SHAPES for form in shape.forms]
SEED = 20_261_117


def _ids(value):
    return None if isinstance(value, str) else f"{value.rule}-{SHAPES.index(value)}"


def test_the_table_is_wide_and_every_row_is_complete():
    """At least sixty vendors, each with a source, an anchor, a form and a near miss."""
    assert len({shape.vendor for shape in SHAPES}) >= 60
    for shape in SHAPES:
        assert shape.rule.isidentifier()
        assert all((shape.vendor, shape.source, shape.anchors, shape.pattern, shape.forms, shape.near)), shape


@pytest.mark.parametrize(("shape", "form"), FORMS, ids=_ids)
def test_a_documented_form_is_redacted(shape, form):
    """Whatever the random part is, nothing of it is left; the rule is named."""
    dice = random.Random(SEED)
    for _ in range(20):
        secret = make_credential(form, dice)
        text = f"use {secret} for it"
        left = redact(text)

        assert f"[redacted:{shape.rule}]" in left, (text, left)
        assert shape.rule in dict(shapes(text)), text
        assert scan(text).findings, text
        for body in _random_parts(form, secret):
            assert body not in left, (text, left)


def _random_parts(form, secret):
    """Return the long random parts of a credential, which must be gone."""
    literal = [re.escape(part) for part in re.split(r"<[^>]+>", form)]
    found = re.fullmatch("(.+)".join(literal), secret, re.DOTALL)
    bodies = [] if found is None else [body for body in found.groups() if len(body) >= 20]
    return [body for body in bodies if "\n" not in body]


@pytest.mark.parametrize("shape", SHAPES, ids=_ids)
def test_a_near_miss_is_left_alone(shape):
    """A text that only resembles the form stays as it is."""
    assert redact(f"see {shape.near} there") == f"see {shape.near} there"


@pytest.mark.parametrize("shape", SHAPES, ids=_ids)
def test_a_pattern_is_bounded(shape):
    """No pattern has an open-ended repetition, except possessive ones that cannot be retried."""
    assert re.search(r"(?<!\\)[*+](?!\+)(?![^\[]*\])", re.sub(r"\\.|\[[^\]]*\]|\}\+|=\*", "", shape.pattern)) is None


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if not shape.spans], ids=_ids)
def test_a_single_word_is_long_enough_to_be_looked_at(shape):
    """Shapes without spaces are looked for in long words only, so their forms have no shorter one."""
    for form in shape.forms:
        assert len(make_credential(form, random.Random(SEED))) >= 20


@pytest.mark.parametrize(
    "text",
    [
        "create_user(name, password=password)",
        "connect(host, password=db_secret, port=1)",
        "password=None, token=None",
        '"password": "Passwort"',
        "'password' => 'required|min:8'",
        "password=self.password",
        "password = req.body.password",
        "PWD=/home/me/work",
        "docker run --user 1000:1000 image",
        "mysql -u root -p",
        "curl -u user:password https://acme.test",
        "Forgot password? Click here: password reset",
        "The password policy: minimum twelve characters",
        "--password-file /run/secrets/db",
        "a-very-long-hyphenated-compound-adjective-of-many-words-2024",
        "https://acme.test/a/very/long/path/with/many/parts/and-words-in-it?page=2&sort=name",
        "/home/someone/projects/application/source/main/resources/templates/index.html",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b fixed it",
        "id 123e4567-e89b-12d3-a456-426614174000",
    ],
)
def test_ordinary_text_is_left_alone(text):
    """Code, paths, hashes and talk about passwords are not credentials."""
    assert redact(text) == text
