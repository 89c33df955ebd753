"""`kept plugins`: list, show, disable and enable providers, context engines and packages of skills."""

from typing import Annotated

import typer

from wellkept import operations
from wellkept.cli.terminal import JsonFlag, open_caller, print_json, refuse, say
from wellkept.core.errors import Refused

app = typer.Typer(no_args_is_help=True, help="Third-party plugins.", rich_markup_mode=None)

NameArgument = Annotated[str, typer.Argument(help="The plugin, by its folder, its entry point or its own name.")]


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="plugins")


@app.command("list")
def list_plugins(as_json: JsonFlag = False) -> None:
    """List providers, context engines and packages of skills; nothing is imported."""
    with open_caller() as caller:
        found = operations.plugins.list_plugins(caller)
    if as_json:
        print_json(found.as_json())
        return
    kind = ""
    for each in found.plugins:
        if each.kind != kind:
            kind = each.kind
            say(f"{kind}s" if kind != "skills" else kind)
        words = "; ".join(part for part in (each.note, each.description) if part)
        say(f"  {each.name:22} {each.state:10} {each.origin:12} {words}".rstrip())


@app.command()
def show(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show where a plugin comes from, where it runs, what it may do and what it needs."""
    with open_caller() as caller:
        found = operations.plugins.show_plugin(caller, name)
    if as_json:
        print_json(found.as_json())
        return
    plugin = found.plugin
    version = f" {plugin.version}" if plugin.version else ""
    say(f"{plugin.name}{version}: {plugin.kind}, {plugin.state}")
    rows = [
        ("note", plugin.note),
        ("about", plugin.description),
        ("calls itself", plugin.own_name),
        ("origin", plugin.origin),
        ("path", plugin.path),
        ("runs", found.runs),
        *(("may", each) for each in found.abilities),
        *(("package missing", each) for each in found.missing),
        *(("variable", each) for each in found.variables),
        *(("program", each) for each in found.hints),
    ]
    for label, words in rows:
        if words:
            say(f"  {label:16} {words}")


@app.command()
def disable(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Never load a plugin until it is enabled again; its data stays."""
    with open_caller() as caller:
        done = operations.plugins.disable_plugin(caller, name)
    if isinstance(done, Refused):
        refuse(done, as_json=as_json)
    _show_switch(done, as_json=as_json)


@app.command()
def enable(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Allow a disabled plugin again."""
    with open_caller() as caller:
        done = operations.plugins.enable_plugin(caller, name)
    _show_switch(done, as_json=as_json)


def _show_switch(done: "operations.plugins.PluginSwitch", *, as_json: bool) -> None:
    if as_json:
        print_json(done.as_json())
        return
    state = "enabled" if done.enabled else "disabled"
    say(f"{done.name} is {state}" if done.changed else f"{done.name} was already {state}")
