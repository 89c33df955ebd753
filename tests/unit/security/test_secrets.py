"""The removal of credentials from text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.security.secrets import redact, redact_json, shapes

BODY = "Zk3vQ9sLw2Xp7Rt5Ym1Bc8Nd4Hf6Jg0AaEeTtUu"
# written in two halves, so that no scanner of this repository takes an example for a leak
CREDENTIALS = {
    "openai_key": "sk-" + "proj-" + BODY,
    "anthropic_key": "sk-" + "ant-api03-" + BODY,
    "github_token": "gh" + "p_" + BODY[:36],
    "gitlab_token": "gl" + "pat-" + BODY[:20],
    "slack_token": "xo" + "xb-123456789012-" + BODY[:24],
    "aws_access_key": "AK" + "IAQ3T7ZLMNOPRSTUVW",
    "google_api_key": "AI" + "za" + BODY[:35],
    "stripe_key": "sk" + "_live_" + BODY[:24],
    "npm_token": "np" + "m_" + BODY[:36],
    "pypi_token": "py" + "pi-" + BODY + BODY,
    "huggingface_token": "h" + "f_" + BODY[:34],
    "telegram_token": ":AA" + BODY[:33],
    "jwt": "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0In0." + BODY[:20],
    "sendgrid_key": "SG" + "." + BODY[:22] + "." + BODY + "Zz1",
    "twilio_key": "A" + "C" + "0123456789abcdef" * 2,
}


@pytest.mark.parametrize(("rule", "secret"), CREDENTIALS.items(), ids=CREDENTIALS.keys())
def test_a_known_shape_is_replaced_by_its_rule(rule: str, secret: str) -> None:
    """The reader sees what kind of secret stood there, and nothing of it."""
    before = "bot 7381920465" if rule == "telegram_token" else "the key is "

    assert redact(f"{before}{secret}, keep it") == f"{before}[redacted:{rule}], keep it"
    assert (rule, True) in shapes(f"{before}{secret}")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('api_key = "a8f5f167f44f4964e6c998dee827110c"', 'api_key = "[redacted:credential_assignment]"'),
        ("password: hunter2", "password: [redacted:password_assignment]"),
        ("DB_PASSWORD=Zx81!kkQ9w", "DB_PASSWORD=[redacted:password_assignment]"),
        ("the password is Tr0ub4dor&3.", "the password is [redacted:password_assignment]."),
        ("Authorization: Bearer 8f14e45fceea167a5a36", "Authorization: Bearer [redacted:bearer_token]"),
        ("postgres://app:Zx81kkQ9@db/x", "postgres://app:[redacted:url_password]@db/x"),
    ],
)
def test_an_assigned_value_is_removed_and_its_name_stays(text: str, kept: str) -> None:
    """Only the value goes, so that the sentence stays readable."""
    assert redact(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "my password is on the sticky note",
        "token count: 1234",
        "password: Optional[str] = None",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "secret = config.get('secret')",
        "password = getpass.getpass()",
        "api_key: your_api_key_here",
        "password=********",
        "the key = value syntax, token: string",
        "postgres://localhost:5432/app and redis://cache:6379/0",
        "postgres://user:password@localhost/app",
        "the sk-learn package, an sk-1 ticket and a task-force-of-twenty-people-2024",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "-----BEGIN PUBLIC KEY-----",
        "Bearer of bad news",
    ],
)
def test_prose_and_code_are_left_alone(text: str) -> None:
    """A word that talks about secrets is not a secret."""
    assert redact(text) == text


def test_a_private_key_goes_whole() -> None:
    """The armour and all that is between is one secret."""
    begin, end = (f"-----{word} RSA PRIVATE " + "KEY-----" for word in ("BEGIN", "END"))

    assert redact(f"a\n{begin}\nMIIEow/+=\nabcd\n{end}\nb") == "a\n[redacted:private_key]\nb"


def test_nested_values_are_redacted_with_their_keys() -> None:
    """A value is judged together with the key it stands under."""
    secret = CREDENTIALS["github_token"]
    value = {"password": "S3cure!pass99", "n": [1, None, True, {"note": f"use {secret}"}], "name": "Ada"}

    assert redact_json(value) == {
        "password": "[redacted:password_assignment]",
        "n": [1, None, True, {"note": "use [redacted:github_token]"}],
        "name": "Ada",
    }


@given(st.text(max_size=400))
def test_redaction_is_idempotent_and_never_raises(text: str) -> None:
    """What was redacted once stays as it is."""
    once = redact(text)

    assert redact(once) == once


@given(st.text(max_size=60), st.sampled_from(sorted(CREDENTIALS.values())), st.text(max_size=60))
def test_a_secret_never_survives_between_spaces(before: str, secret: str, after: str) -> None:
    """Wherever a credential stands as a word, it is gone."""
    lead = "7381920465" if secret.startswith(":AA") else ""

    assert secret not in redact(f"{before} {lead}{secret} {after}")
