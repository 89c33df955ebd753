# ruff: noqa: INP001 - a script beside the pages that it writes
"""The reference pages, written from the program itself: `make reference` renews them."""

import ast
import inspect
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wellkept.config.settings import Settings
from wellkept.core.settings import describe, fields, find_guard, is_section
from wellkept.core.text import JSON, dumps, resource_path
from wellkept.core.tools import ToolSchema
from wellkept.security.rules import BUILT
from wellkept.security.rules import build as build_rules

REFERENCE = Path(__file__).parent / "reference"
RULES = resource_path("wellkept.security", BUILT)
"""Not a page, but written from the same table: the rules of the scanner as the program reads them."""
_MADE = "<!-- Written by docs/generate.py from the program. Do not edit: run `make reference`. -->"


def pages() -> dict[str, str]:
    """Return every page of the reference by its file name."""
    return {
        "commands.md": commands(),
        "hooks.md": hooks(),
        "rules.md": rules(),
        "settings.md": settings(),
        "tools.md": tools(),
    }


def commands() -> str:
    """Return the page of the command line: every command with its arguments and options."""
    from typer.main import get_command

    from wellkept.cli.main import build_all

    program: Any = get_command(build_all())
    parts = [
        _head(
            "Commands",
            "Every command of `kept`. `--home`, `--profile`, `--as` and `--debug` can be given anywhere in the line.",
        ),
        _exits(),
        "## kept\n\n" + _parameters(program),
        *_commands("kept", program),
        _slash(),
    ]
    return _page(parts)


def _commands(prefix: str, group: Any) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        full = f"{prefix} {name}"
        words = [f"## {full}" if prefix == "kept" else f"### {full}", _plain(command.help or "")]
        if hasattr(command, "commands"):
            yield "\n\n".join(words)
            yield from _commands(full, command)
            continue
        arguments = " ".join(_usage(each) for each in command.params if each.param_type_name == "argument")
        words += [f"```\n{full} [OPTIONS] {arguments}".rstrip() + "\n```", _parameters(command)]
        yield "\n\n".join(word for word in words if word)


def _usage(parameter: Any) -> str:
    name = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _parameters(command: Any) -> str:
    rows = [_parameter(each) for each in command.params if not getattr(each, "hidden", False)]
    return _table(("argument or option", "value", "default", "meaning"), rows) if rows else ""


def _parameter(parameter: Any) -> tuple[str, ...]:
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    choices = getattr(parameter.type, "choices", None)
    is_flag = getattr(parameter, "is_flag", False)
    value = " | ".join(f"`{each}`" for each in choices) if choices else "" if is_flag else _kind(parameter)
    if getattr(parameter, "multiple", False):
        value += ", repeatable"
    default = parameter.default
    shown = "" if default in (None, False, (), []) or callable(default) else f"`{getattr(default, 'value', default)}`"
    needed = "required" if parameter.required else shown
    return (", ".join(f"`{name}`" for name in names), value, needed, getattr(parameter, "help", None) or "")


def _kind(parameter: Any) -> str:
    kind = parameter.type
    name = {"integer": "whole number", "float": "number"}.get(kind.name, str(kind.name))
    if "range" not in name:
        return name
    bounds = f" from {kind.min}" if kind.min is not None else ""
    bounds += f" up to {kind.max}" if kind.max is not None else ""
    return f"whole number{bounds}" if "integer" in name else f"number{bounds}"


def _exits() -> str:
    rows = [
        ("0", "success"),
        ("1", "refused; the reason is on stderr, with `--json` also in the answer"),
        ("2", "wrong usage, an invalid setting, or an unknown name"),
        ("3", "an import stored what it understood, and named what it did not"),
        ("69", "a model or a provider failed"),
        ("74", "the disk or a database failed"),
        ("75", "another process is using the data: try again soon"),
        ("77", "the caller lacks a scope"),
        ("130", "interrupted"),
    ]
    return "## Exit codes\n\n" + _table(("code", "meaning"), rows)


def _slash() -> str:
    from wellkept.cli.chat.slash import COMMANDS

    rows = [(f"`/{name}`", command.words) for name, command in COMMANDS.items()]
    return "## Inside a chat\n\n" + _table(("command", "meaning"), rows) + "\n\n`/NAME` of a skill uses that skill."


def settings() -> str:
    """Return the page of settings: every key, what it accepts, its default and its meaning."""
    intro = (
        "Every key of `config.yaml`. A key is also an environment variable: `memory.overflow` is "
        "`KEPT_MEMORY__OVERFLOW`. How files, variables and profiles work together is in "
        "[configuration.md](../configuration.md). Only a person can change a setting with a * so that it protects less "
        "([SECURITY.md](../SECURITY.md#decisions-are-a-persons))."
    )
    return _page([_head("Settings", intro), *_sections(Settings, "", Settings())])


def _sections(section: type, prefix: str, values: Any) -> Iterator[str]:
    meanings = attribute_docstrings(section)
    hints = fields(section)
    rows = [
        (
            f"`{prefix}{name}`",
            _cell(describe(hint)) + _mark(hint),
            _default(getattr(values, name)),
            meanings.get(name, ""),
        )
        for name, hint in hints.items()
        if not is_section(hint)
    ]
    if rows:
        title = prefix.rstrip(".") or "At the top"
        yield f"## {title}\n\n" + _table(("setting", "accepts", "default", "meaning"), rows)
    for name, hint in hints.items():
        if is_section(hint):
            yield from _sections(hint, f"{prefix}{name}.", getattr(values, name))


def _mark(hint: Any) -> str:
    return " *" if find_guard(hint) is not None else ""


def attribute_docstrings(kind: type) -> dict[str, str]:
    """Return the text under each attribute of a class; base classes come first."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        if not each.__module__.startswith("wellkept."):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                assert isinstance(field.target, ast.Name)
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def _default(value: Any) -> str:
    return f"`{dumps(list(value) if isinstance(value, tuple) else value)}`"


def tools() -> str:
    """Return the page of tools: what a model can call, with every parameter."""
    from wellkept.context.lossless import SCHEMAS
    from wellkept.providers.content import RECALL_SCHEMA
    from wellkept.providers.holographic import HolographicProvider

    intro = (
        "What an agent can call. `kept tool NAME '{…}'` runs any of them from the shell, exactly as an agent would. "
        "Every answer is a JSON object with `success`; a refusal has `error` and `remedy`."
    )
    facts = [
        ToolSchema(str(each["name"]), str(each["description"]), each["parameters"], "memory")  # type: ignore[arg-type] # JSON
        for each in HolographicProvider().get_tool_schemas()
    ]
    groups = {
        "Always": _agent_tools(),
        "With `context.engine: lossless`": SCHEMAS,
        "With `memory.provider: holographic`": facts,
        "With several providers": [RECALL_SCHEMA],
    }
    parts = [_head("Tools", intro)]
    for title, schemas in groups.items():
        parts.append(f"## {title}")
        parts += [_tool(schema) for schema in schemas]
    return _page(parts)


def _agent_tools() -> list[ToolSchema]:
    from wellkept.agent.agent import Opening
    from wellkept.app import open_app

    with tempfile.TemporaryDirectory() as home:
        app = open_app(home, environ={"KEPT_MODEL__DEFAULT": "extractive"})
        agent = app.owner.agent(Opening(incognito=True))
        schemas = [tool.schema for tool in agent.parts.toolbox.tools.values()]
        app.close()
    return schemas


def _tool(schema: ToolSchema) -> str:
    properties: Any = schema.parameters.get("properties", {})
    required: Any = schema.parameters.get("required", [])
    rows = [
        (f"`{name}`", _type(each), "yes" if name in required else "", str(each.get("description", "")))
        for name, each in properties.items()
    ]
    table = _table(("parameter", "type", "required", "meaning"), rows) if rows else "No parameters."
    return f"### {schema.name}\n\nToolset `{schema.toolset}`.\n\n{_quoted(schema.description)}\n\n{table}"


def _type(schema: Mapping[str, JSON]) -> str:
    choices: Any = schema.get("enum")
    if choices:
        return " | ".join(f"`{each}`" for each in choices)
    kind: Any = schema.get("type", schema.get("anyOf", schema.get("oneOf", "any")))
    if isinstance(kind, list):
        return " or ".join(_type(each) if isinstance(each, dict) else str(each) for each in kind)
    items: Any = schema.get("items")
    return f"{kind} of {_type(items)}" if items else str(kind)


def hooks() -> str:
    """Return the page of hooks: what a provider or an engine may implement."""
    from wellkept.context.engine import ContextEngine, Setup
    from wellkept.providers.base import MemoryProvider, StartContext

    intro = (
        "The methods of the two plugin classes. Guides: [writing a provider](../writing-a-provider.md), "
        "[writing a context engine](../writing-a-context-engine.md)."
    )
    return _page(
        [
            _head("Hooks", intro),
            _class("Memory providers", MemoryProvider),
            "### What `initialize` is told\n\n" + _fields(StartContext),
            _class("Context engines", ContextEngine),
            "### What `prepare` is given\n\n" + _fields(Setup),
        ]
    )


def _class(title: str, kind: type) -> str:
    rows = []
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else member
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        shape = "" if isinstance(member, property) else _signature(function)
        rows.append((f"`{name}{shape}`", " ".join((inspect.getdoc(function) or "").split())))
    words = inspect.getdoc(kind) or ""
    return f"## {title}: `{kind.__module__}.{kind.__name__}`\n\n{words}\n\n" + _table(("hook", "meaning"), rows)


def _signature(function: Any) -> str:
    kinds: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    words: list[str] = []
    has_star = False
    for name, each in list(inspect.signature(function).parameters.items())[1:]:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not has_star:
            words.append("*")
            has_star = True
        default = "" if each.default is inspect.Parameter.empty else f"={each.default!r}"
        words.append(f"{kinds.get(each.kind, '')}{name}{default}")
    return f"({', '.join(words)})"


def _fields(kind: Any) -> str:
    meanings = attribute_docstrings(kind)
    rows = [(f"`{name}`", meanings.get(name, "")) for name in kind.__struct_fields__]
    return _table(("field", "meaning"), rows)


def rules() -> str:
    """Return the page of the threat scanner's rules."""
    from wellkept.security.rules import table
    from wellkept.security.secrets import shape_table

    intro = (
        "What `kept scan` and every write look for. A *block* is refused; a *hold* waits for a person; a *signal* says "
        "nothing alone, and several of them make the finding `persona`. `kept memory add --allow RULE` lets one pass."
    )
    rows = [
        (
            f"`{rule.id}`",
            rule.category,
            rule.severity.value if rule.severity else f"signal, weight {rule.weight}",
            ", ".join(sorted(scope.value for scope in rule.scopes)),
            _visible(rule.positive),
            _visible(rule.negative),
        )
        for rule in table().rules
    ]
    own = [
        ("`persona`", "role_hijack", "several signals that add up: 4 hold, 8 block"),
        ("`order_chain`", "instruction_override", "several kinds of held orders together, two in a short text: block"),
        (
            "`wording`",
            "wording",
            "in memory only: words that add up to an attack, by the weights of `security/wording.tsv`: hold or block",
        ),
        (
            "`invisible_unicode`",
            "invisible_unicode",
            "zero-width, bidirectional, tag characters: hold; inside a word: block",
        ),
        ("`mixed_script`", "mixed_script", "a key word written with letters that only look like it: block"),
        ("`encoded_payload`", "obfuscation", "an encoded text that would be blocked when decoded: block"),
        ("`flood`", "obfuscation", "so many anchors of a rule that not all of the text was tried: hold"),
    ]
    shapes: dict[str, tuple[str, list[str], list[str]]] = {}
    for shape in shape_table().shapes:
        what = "hold or block, by its value" if shape.vague else "block"
        _, vendors, sources = shapes.setdefault(shape.rule, (what, [], []))
        vendors.append(shape.vendor)
        sources.append(shape.source)
    return _page(
        [
            _head("Scanner rules", intro),
            "## The table\n\n" + _table(("rule", "category", "finding", "where", "matches", "does not match"), rows),
            "## Found by code\n\n" + _table(("rule", "category", "when"), own),
            "## Credentials\n\nThe same shapes are redacted before a message is stored, as `[redacted:<rule>]`.\n\n"
            "The table is `security/secrets.txt`.\n\n"
            + _table(
                ("rule", "issued by", "documented in", "finding"),
                [
                    (f"`{name}`", "; ".join(dict.fromkeys(vendors)), "; ".join(dict.fromkeys(sources)), what)
                    for name, (what, vendors, sources) in sorted(shapes.items())
                ],
            ),
        ]
    )


def _visible(text: str) -> str:
    """Return an example on one line, its invisible characters as escapes."""
    line = " ".join(text.split())
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in line)


def _head(title: str, intro: str) -> str:
    return f"{_MADE}\n\n# {title}\n\n{intro}"


def _page(parts: Iterable[str]) -> str:
    lines = "\n\n".join(part.strip() for part in parts if part.strip()).splitlines()
    return "\n".join(line if line.startswith(("|", "#", "<!--")) else _wrap(line) for line in lines) + "\n"


def _wrap(line: str) -> str:
    indent = "> " if line.startswith("> ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _plain(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(each) for each in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    line = " ".join(text.replace("\\|", "|").split())
    return line.replace("|", "\\|").replace("<", "&lt;") if "`" not in line else line.replace("|", "\\|")


def main() -> int:
    """Write the pages; with `--check` only tell which are stale."""
    check = "--check" in sys.argv[1:]
    REFERENCE.mkdir(exist_ok=True)
    stale = [name for name, text in pages().items() if _stored(name) != text]
    for name in stale:
        if not check:
            (REFERENCE / name).write_text(pages()[name], encoding="utf-8")
        print(f"{'stale' if check else 'written'}: docs/reference/{name}")  # noqa: T201
    if is_stale := RULES.read_text(encoding="utf-8") != (built := build_rules() + "\n"):
        if not check:
            RULES.write_text(built, encoding="utf-8")
        print(f"{'stale' if check else 'written'}: {RULES.name}")  # noqa: T201
    return 1 if check and (stale or is_stale) else 0


def _stored(name: str) -> str:
    path = REFERENCE / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
