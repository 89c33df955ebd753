"""`kept model`: what can be used and why, which one is, and whether it answers."""

from typing import Annotated

import typer

from kept.cli.terminal import JsonFlag, open_caller, print_json, printable, say
from kept.operations import models

app = typer.Typer(no_args_is_help=True, help="Which models can be used: list, choose, try.", rich_markup_mode=None)


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="model")


@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """Show every way to a model: which is used, which could be, and what the others need."""
    with open_caller() as caller:
        found = models.list_models(caller)
    if as_json:
        print_json(found.as_json())
        return
    say(f"in use: {found.choice.name}  ({found.choice.reason})")
    for fallback in found.fallbacks:
        say(f"  then: {fallback}")
    for one in found.offers:
        say(f"  {'yes' if one.is_available else ' no'}  {one.name}  ({one.reason})")
        for model in one.models[1:]:
            say(f"         {one.name.partition('/')[0]}/{model}")
    say("choose one with `kept model set NAME`, try it with `kept model test`")
    say(f"prices were last checked on {found.prices_checked}; `model.prices` sets your own")


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="PROVIDER/NAME, `extractive` for none, `auto` for the first there is.")],
    as_json: JsonFlag = False,
) -> None:
    """Choose the model to talk with, for this home."""
    with open_caller() as caller:
        chosen = models.choose_model(caller, name)
    if as_json:
        print_json(chosen.as_json())
    else:
        hint = "`kept model list` shows what that means, `kept model test` tries it"
        say(f"model.default is now {chosen.model}; {hint}")


@app.command("test")
def try_(
    name: Annotated[str | None, typer.Argument(help="The model to try; the chosen one if left out.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Send one tiny message and show how long the answer took, and what it used."""
    with open_caller() as caller:
        tried = models.try_model(caller, name)
    if as_json:
        print_json(tried.as_json())
        return
    response, usage = tried.response, tried.response.usage
    money = "price unknown" if tried.cost is None else f"${tried.cost:.6f}"
    answer = printable(response.message.text.strip()) or "(nothing)"
    say(f"{response.model} answered in {tried.seconds:.2f} s: {answer}")
    say(f"{usage.prompt_tokens} tokens in, {usage.output_tokens} out, {money}; window {tried.context_length:,} tokens")
    say(tried.prompt_caching)
