"""The removal of credentials from text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellkept.core.text import JSON
from wellkept.security.secrets import redact, redact_json, shapes

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


HEX = "a8f5f167f44f4964e6c998dee827110c"
PASSWORD, ASSIGNED, GIVEN = "[redacted:password_assignment]", "[redacted:credential_assignment]", "[redacted:command_password]"  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("password: abc12c", f"password: {PASSWORD}"),
        ("password: ab12c.", "password: ab12c."),  # five characters and the end of the sentence
        ("password: 123456789", "password: 123456789"),
        ("password: abcdefghi", "password: abcdefghi"),
        ("the password is Abcdef1", f"the password is {PASSWORD}"),
        ("the password is abc-ef1", f"the password is {PASSWORD}"),
        ("the password is abcdef1.", "the password is abcdef1."),  # a word with a number, such as `version2`
        ("password=correcthorse", f"password={PASSWORD}"),
        ("password=123456", "password=123456"),
        ("password=hunter2hunter!?", f"password={PASSWORD}!?"),
        ("api_key = a1b2c3d4e5f6g7h8", f"api_key = {ASSIGNED}"),
        ("api_key = a1b2c3d4e5f6g7h", "api_key = a1b2c3d4e5f6g7h"),
        ("api_key = a1a1a1a1a1a1a1a1a1a1", "api_key = a1a1a1a1a1a1a1a1a1a1"),
        ("api_key = abcd12abcd12abcd12", "api_key = abcd12abcd12abcd12"),  # six characters over and over
        ("api_key = aabbccdd11223344", f"api_key = {ASSIGNED}"),
        ("api_key = 12345678901234567890", "api_key = 12345678901234567890"),
        (f"token: {HEX}", f"token: {ASSIGNED}"),
        (f"the secret is {HEX}", f"the secret is {ASSIGNED}"),
        (f"key: {HEX}", f"key: {HEX}"),  # of a dictionary, a hash, a primary key
        (f"mytoken: {HEX}", f"mytoken: {HEX}"),
        ("curl -u admin:correcthorse x", f"curl -u admin:{GIVEN} x"),
        ("curl -u admin:12345 x", "curl -u admin:12345 x"),
        (f"curl {'a' * 280} -u me:zanzibar9", f"curl {'a' * 280} -u me:{GIVEN}"),
        (f"curl {'a' * 310} -u me:zanzibar9", f"curl {'a' * 310} -u me:zanzibar9"),  # another command by now
        ("sudo -u me:zanzibar9 x", "sudo -u me:zanzibar9 x"),
    ],
)
def test_a_value_must_look_like_a_credential(text: str, kept: str) -> None:
    """Long enough, mixed enough, and named by what stands before it; a form that leaves no doubt needs letters only."""
    assert redact(text) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"the key is API_KEY={HEX}", f"the key is API_KEY={ASSIGNED}"),
        ("password: a1b2c3\npassword: d4e5f6", f"password: {PASSWORD}\npassword: {PASSWORD}"),
        ("pwd=correcthorse pwd=trombonist", f"pwd={PASSWORD} pwd={PASSWORD}"),
        (
            f"my key: yes, API_KEY={HEX} and X-Api-Key: {HEX}",
            f"my key: yes, API_KEY={ASSIGNED} and X-Api-Key: {ASSIGNED}",
        ),
        (f"Bearer {CREDENTIALS['openai_key']}!", "Bearer [redacted:bearer_token]!"),
        (
            f"Bearer {CREDENTIALS['openai_key']} and {CREDENTIALS['npm_token']}, password: hunter2",
            f"Bearer [redacted:bearer_token] and [redacted:npm_token], password: {PASSWORD}",
        ),
        ("ẞİ password: hunter2", f"ẞİ password: {PASSWORD}"),  # letters that grow in lower case
        ("x" * 30 + f" {CREDENTIALS['npm_token']} {CREDENTIALS['npm_token']}", "x" * 30 + " [redacted:npm_token]" * 2),
    ],
)
def test_every_credential_of_a_text_is_removed_once(text: str, kept: str) -> None:
    """One that was turned down hides no later one, and two shapes of the same credential are one."""
    assert redact(text) == kept


@pytest.mark.parametrize("name", ["password", "note"])
def test_the_words_of_a_text_rule_out_no_shape_that_it_holds(name: str) -> None:
    """The scanner gives the words that it has split already; they change the speed and not the answer."""
    text = f"DB_PASSWORD=Zx81!kkQ9w and {CREDENTIALS['github_token']} for the {name}"

    assert shapes(text, text.lower()) == shapes(text) == (("password_assignment", True), ("github_token", True))
    assert shapes(text, "words of another text") == (("github_token", True),)


def test_a_proof_counts_wherever_it_stands() -> None:
    """Of several credentials of one rule, one that leaves no doubt is enough."""
    assert shapes("password: hunter2") == (("password_assignment", False),)
    assert shapes("password: hunter2 and password=correcthorse") == (("password_assignment", True),)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({CREDENTIALS["github_token"]: "x"}, {"[redacted:github_token]": "x"}),
        ({"password": "first line\nhunter2 line"}, {"password": "first line\nhunter2 line"}),  # a text, not a password
        ({"password": ["hunter2"]}, {"password": ["hunter2"]}),
        ({"api_key": "use " + CREDENTIALS["npm_token"]}, {"api_key": "use [redacted:npm_token]"}),
        ({"my password is": "Tr0ub4dor&3"}, {"my password is": PASSWORD}),
        ({"n": 1.5, "list": (CREDENTIALS["npm_token"],)}, {"n": 1.5, "list": ["[redacted:npm_token]"]}),
    ],
)
def test_json_is_redacted_by_the_same_rules(value: JSON, kept: JSON) -> None:
    """Keys, lists and tuples too; a text of several lines is not the value of a field named password."""
    assert redact_json(value) == kept


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


HEAD = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"


@pytest.mark.parametrize(
    "text",
    [
        f"const token = '{HEAD}.SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c';",
        f"Authorization: Bearer {HEAD}.XbPfbIHMI6arZ3Y922BhjWgQzWXcXNrz0ogtVhfEd2o",
        '{"totp_secret": "JBSWY3DPEHPK3PXP"}',
        f'"access_token": "{HEAD}.abcde1234567890"',
    ],
)
def test_published_samples_are_no_secrets(text):
    """Tutorials quote the token of jwt.io and the secret of one-time passwords; a signature has both cases."""
    assert redact(text) == text


def test_a_sample_with_anything_else_in_it_is_a_secret():
    """The same claims with another signature, and a key that merely contains a sample."""
    signature = "q0Zr8vYw3Lk1TtB5nUe7XcJ2sHd9GfMpAiVoQzRxWyE"

    assert redact(f"use {HEAD}.{signature}") == "use [redacted:jwt]"
    assert "JBSWY3" not in redact('{"totp_secret": "JBSWY3DPEHPK3PXPQ7K2"}')
