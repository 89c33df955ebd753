"""A held-out corpus of credentials: forms that were written after the table, with random bodies, in ordinary contexts."""

import random
import re
from pathlib import Path

from wellkept.security.secrets import redact
from wellkept.testing.credentials import make_credential

FORMS = Path(__file__).parents[2] / "corpora" / "secret_forms.txt"
CONTEXTS = (
    "{}", "my key is {}", "use {}, please", "({})", "export TOKEN={}", "TOKEN={}\n", 'token: "{}"', "token: '{}'",
    '{{"token": "{}"}}', "- {}\n- next", "`{}`", "see {}.", "https://acme.test/?t={}", "curl -H 'X-Token: {}' https://acme.test",
    'client = Client("{}")', "const t = `{}`;", "**{}**", "[2026-11-17 04:00:00] token={} ok", "Authorization: Bearer {}",
)  # fmt: skip
ROUNDS = 3
BAR = 0.98


def corpus(seed):
    """Yield the name, the random parts and the text of every example."""
    dice = random.Random(seed)
    for line in FORMS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, form = line.split("\t")
        form = form.replace(r"\n", "\n").replace("\\\n", r"\n")
        alone = re.search(r"[ =\n]", re.sub(r"=<|=$", "", form)) is not None
        for context in ("{}",) if alone else CONTEXTS:
            for _ in range(ROUNDS):
                secret = make_credential(form, dice)
                yield name, (secret, random_parts(form, secret)), context.format(secret)


def random_parts(form, secret):
    """Return the random parts of a credential that are long enough to be worth anything."""
    literal = [re.escape(part) for part in re.split(r"<[^>]+>", form)]
    found = re.fullmatch("(.+?)".join(literal), secret, re.DOTALL)
    assert found is not None
    # the number in a Telegram token is the public id of the bot
    return [part for part in found.groups() if len(part) >= 8 and not part.isdigit()]


def is_gone(secret, text):
    """Tell whether no long random stretch of the credential is left."""
    left = redact(text)
    shown = set(re.findall(r"[A-Za-z0-9_+/!-]{8,}", left))
    return "[redacted:" in left and not [part for part in secret[1] if part in shown]


def missed(seed):
    found = [(name, text) for name, secret, text in corpus(seed) if not is_gone(secret, text)]
    return found, sum(1 for _ in corpus(seed))


def test_nearly_all_credentials_of_the_held_out_corpus_are_redacted():
    """At least 98 % of the examples."""
    found, total = missed(seed=1)

    assert total > 4_000
    assert len(found) / total <= 1 - BAR, [text[:160] for _, text in found[:40]]
    names = [line.split("\t")[0] for line in FORMS.read_text().splitlines() if not line.startswith("#")]
    assert len(names) >= 60
