"""A provider's own settings: the file `<home>/<provider>.json`, and the questions and answers of setup.

The command line asks the questions.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import ConfigError, KeptError, Reason, Refused
from wellkept.core.settings import InvalidSetting, accepts, build, describe, fields
from wellkept.core.text import JSON, dumps
from wellkept.core.threads import start_job
from wellkept.providers.base import MemoryProvider, StartContext
from wellkept.providers.hooks import call_hook, close_provider, describe_error, find_isolated, overrides
from wellkept.storage.files import make_folder, read_bytes, write_atomically

T = TypeVar("T")
_REMEDY = "correct it, or run `kept providers setup`"


def config_path(home: Path, provider: str) -> Path:
    """Return the path of the settings of `provider`."""
    return home / f"{provider}.json"


def load_values(home: Path, provider: str) -> dict[str, JSON]:
    """Return the settings of `provider`; empty if there is no file."""
    path = config_path(home, provider)
    raw = read_bytes(path)
    if raw is None or not raw.strip():
        return {}
    try:
        values = json.loads(raw)
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} is not JSON: {error}", _REMEDY) from error
    if not isinstance(values, dict):
        raise ConfigError(f"{str(path)!r} does not hold an object", _REMEDY)
    return values


def load_settings(kind: type[T], home: Path, provider: str) -> T:
    """Return the settings of `provider` as a `kind`; unknown keys are ignored."""
    return build_settings(kind, load_values(home, provider), provider)


def build_settings(kind: type[T], values: Mapping[str, JSON], provider: str) -> T:
    """Return `values` as a `kind`, or raise what is wrong with them; unknown keys are ignored."""
    section: type = kind
    own = {key: value for key, value in values.items() if key in fields(section)}
    try:
        settings: T = build(section, own)
    except InvalidSetting as unfit:
        raise ConfigError(f"{provider}.json: {unfit}", f"accepted: {unfit.accepted}") from None
    return settings


def questions(kind: type, texts: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Return the setup questions for the struct `kind`, with defaults and choices.

    Settings without a text are not asked; `--set` sets them.
    """
    defaults, annotations = kind(), fields(kind)
    return [
        {
            "key": key,
            "description": texts.get(key, key.replace("_", " ")),
            "default": _plain_default(getattr(defaults, key), annotation),
            "choices": _choices(annotation),
            "annotation": annotation,
            "asked": key in texts,
        }
        for key, annotation in sorted(annotations.items(), key=lambda each: each[0] not in texts)
    ]


def _plain_default(default: JSON, annotation: object) -> JSON:
    """Return an empty list for an optional list, so that an answer is parsed as one."""
    return [] if default is None and "list" in str(annotation) else default


def _choices(annotation: object) -> list[JSON]:
    if annotation is bool:
        return [False, True]
    return list(get_args(annotation)) if get_origin(annotation) is Literal else []


def save_values(home: Path, provider: str, values: Mapping[str, JSON]) -> None:
    """Set `values` in the settings of `provider`; other keys are kept."""
    make_folder(home)
    text = dumps({**load_values(home, provider), **values}, indent=2)
    write_atomically(config_path(home, provider), f"{text}\n".encode())


def own_name(provider: MemoryProvider) -> str:
    """Return the name that a provider gives itself; its settings file has it, whatever its folder is called."""
    return str(getattr(provider, "own_name", provider.name))


TEST_SECONDS = 15.0
"""How long the test at the end of setup may take."""
READY_SECONDS = 120.0
"""How much longer it may take where the provider starts its back end itself."""


class Field(Struct, frozen=True):
    """One question of setup."""

    key: str
    description: str
    default: JSON = None
    choices: tuple[JSON, ...] = ()
    secret: bool = False
    env_var: str | None = None
    """The environment variable that holds the secret; it is stored in `.env`."""
    url: str | None = None
    """Where to get it."""
    required: bool = False
    when: Mapping[str, JSON] | None = None
    """The question applies only with these answers to earlier ones."""
    annotation: object = None
    """The type of the setting with its bounds, where there is one."""
    asked: bool = True
    """Whether a person is asked; otherwise only `--set` sets it."""

    def takes(self, value: JSON) -> bool:
        """Whether a value has the type of the setting and is within its bounds."""
        return self.annotation is None or accepts(self.annotation, value)

    def applies(self, answers: Mapping[str, JSON]) -> bool:
        """Whether the question applies after the earlier `answers`."""
        return self.when is None or all(answers.get(key) == value for key, value in self.when.items())


class Answers(Struct, frozen=True):
    """The answers, split by where they are stored."""

    values: Mapping[str, JSON]
    secrets: Mapping[str, str]


def declared_fields(provider: MemoryProvider) -> list[Field]:
    """Return the questions that a provider declares; malformed ones are ignored."""
    declared = provider.get_config_schema() if hasattr(provider, "get_config_schema") else ()
    return [field for each in declared or () if isinstance(each, Mapping) and (field := _field(each)) is not None]


def resolve_answers(
    fields: Sequence[Field], given: Mapping[str, JSON], *, environ: Mapping[str, str]
) -> Answers | Refused:
    """Return the answers to all questions that apply: given ones, defaults, and secrets already in `environ`."""
    values: dict[str, JSON] = {}
    secrets: dict[str, str] = {}
    for field in fields:
        if not field.applies(values):
            continue
        answer = _convert(field, given.get(field.key))
        if isinstance(answer, Refused):
            return answer
        if answer is None and field.required and not (field.env_var and environ.get(field.env_var)):
            where = f"; get it at {field.url}" if field.url else ""
            return Refused(Reason.EMPTY, f"{field.key} is needed: {field.description}{where}", f"give {field.key}=…")
        if answer is None:
            continue
        if field.secret or field.env_var:
            secrets[field.env_var or field.key.upper()] = str(answer)
        else:
            values[field.key] = answer
    return Answers(values, secrets)


def with_stored(fields: Sequence[Field], stored: Mapping[str, JSON]) -> list[Field]:
    """Return the questions with the stored values as defaults, so that another setup changes only what is given."""
    return [
        replace(field, default=stored[field.key])
        if field.key in stored and not field.secret and isinstance(stored[field.key], type(field.default))
        else field
        for field in fields
    ]


def check_answers(provider: MemoryProvider, answers: Answers, *, environ: Mapping[str, str]) -> Refused | None:
    """Let the provider check the answers as a whole; return why it refuses them."""
    if not overrides(provider, "check_config"):
        return None
    variables = {*answers.secrets, *(name for name, value in environ.items() if value.strip())}
    try:
        call_hook(provider, "check_config", (dict(answers.values), variables), {})
    except KeptError as error:
        return Refused(Reason.INVALID, error.message, error.remedy)
    return None


def save(provider: MemoryProvider, answers: Answers, *, home: Path, save_secret: Callable[[str, str], None]) -> None:
    """Store the answers: secrets with `save_secret`, the rest with the provider's own `save_config`."""
    for name, value in answers.secrets.items():
        save_secret(name, value)
    isolated = find_isolated(provider)
    if isolated is not None:
        isolated.set_variables(answers.secrets)
    else:
        os.environ.update(answers.secrets)  # the test that follows runs in this process
    if not answers.values:
        return
    if hasattr(provider, "save_config"):
        call_hook(provider, "save_config", (dict(answers.values), str(home)), {})
    else:
        save_values(home, own_name(provider), answers.values)


def try_provider(provider: MemoryProvider, context: StartContext) -> Refused | None:
    """Start the provider, recall once and shut it down; return None if that worked."""
    limit = TEST_SECONDS + (READY_SECONDS if overrides(provider, "wait_until_ready") else 0)
    job = start_job(lambda: _find_problem(provider, context), name="kept-provider-test")
    if not job.wait(limit):
        return Refused(Reason.UNAVAILABLE, f"it did not answer within {limit:g} s", "check its address and server")
    if isinstance(job.error, KeptError) and not hasattr(job.error, "kind"):
        remedy = job.error.remedy or "correct the answers and run setup again"
        return Refused(Reason.UNAVAILABLE, job.error.message, remedy)
    if job.error is not None:
        problem = describe_error(job.error)
        return Refused(Reason.UNAVAILABLE, problem, "correct the answers and run setup again")
    if job.result is not None:
        return Refused(Reason.UNAVAILABLE, job.result, "give the missing answers and run setup again")
    return None


def _find_problem(provider: MemoryProvider, context: StartContext) -> str | None:
    """Start the provider, recall once, ask for its status and stop it; return what is wrong."""
    if not call_hook(provider, "is_available", (), {"kept_home": context.kept_home}):
        return "it is not available: its configuration or its package is missing"
    call_hook(provider, "initialize", ("setup",), context.keywords())
    try:
        if overrides(provider, "wait_until_ready"):
            call_hook(provider, "wait_until_ready", (READY_SECONDS,), {})
        if overrides(provider, "prefetch"):
            call_hook(provider, "prefetch", ("Is this memory connected?",), {"session_id": "setup"})
        return (
            _unreachable(call_hook(provider, "get_status", (), context.keywords()))
            if overrides(provider, "get_status")
            else None
        )
    finally:
        if hasattr(provider, "shutdown"):
            provider.shutdown()
        close_provider(provider)


def _unreachable(facts: object) -> str | None:
    """Return why the back end cannot be reached, if the provider says so."""
    if not isinstance(facts, Mapping) or facts.get("reachable") is not False:
        return None
    return str(facts.get("error") or "its back end cannot be reached")


def _field(declared: Mapping[str, JSON]) -> Field | None:
    key = declared.get("key")
    if not isinstance(key, str) or not key:
        return None
    choices, when = declared.get("choices"), declared.get("when")
    env_var, url = declared.get("env_var"), declared.get("url")
    return Field(
        key=key,
        description=str(declared.get("description", key)),
        default=declared.get("default"),
        choices=tuple(choices) if isinstance(choices, list | tuple) else (),
        secret=bool(declared.get("secret", False)),
        env_var=env_var if isinstance(env_var, str) else None,
        url=url if isinstance(url, str) else None,
        required=bool(declared.get("required", False)),
        when=when if isinstance(when, Mapping) else None,
        annotation=declared.get("annotation"),
        asked=declared.get("asked") is not False,
    )


def _convert(field: Field, given: JSON) -> JSON | Refused:
    """Return the answer in the type of the default, or why it does not fit."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return field.default
    value = _parse_as(given, field.default) if isinstance(given, str) else given
    if value is not None and (not field.choices or value in field.choices) and field.takes(value):
        return value
    wanted = ", ".join(str(choice).lower() for choice in field.choices) or type(field.default).__name__
    accepted = wanted if field.annotation is None else describe(field.annotation)
    return Refused(Reason.INVALID, f"{field.key} cannot be {given!r}", f"accepted: {accepted}")


def check_answer(field: Field, given: JSON) -> Refused | None:
    """Return why an answer does not fit, None if it does."""
    found = _convert(field, given)
    return found if isinstance(found, Refused) else None


def _parse_as(text: str, default: JSON) -> JSON:
    """Return text as a value of the default's type, or None if it is not one."""
    text = text.strip()
    match default:
        case bool():
            return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(text.lower())
        case int() | float():
            try:
                return int(text) if isinstance(default, int) else float(text)
            except ValueError:
                return None
        case list():
            return [each.strip() for each in text.split(",") if each.strip()]
        case _:
            return text
