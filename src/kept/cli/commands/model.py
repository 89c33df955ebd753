"""`kept model`: what can be used and why, which one is, and whether it answers."""

import asyncio
import time
from typing import Annotated

import typer

from kept.app import App
from kept.cli.terminal import JsonFlag, opened, print_json, say
from kept.core.errors import UsageError
from kept.core.messages import ChatRequest, ChatResponse, Message, Role
from kept.core.ports import ChatModel

app = typer.Typer(no_args_is_help=True, help="Which models can be used: list, choose, try.", rich_markup_mode=None)

TEST_TOKENS = 512
"""Room for a word, and for models that think before they say it."""


def register(program: typer.Typer) -> None:
    """Add the group."""
    program.add_typer(app, name="model")


@app.command("list")
def list_(as_json: JsonFlag = False) -> None:
    """Show every way to a model: which is used, which could be, and what the others need."""
    from kept.llm.choice import choose_from
    from kept.llm.pricing import prices_checked

    with opened() as kept:
        offers = list(kept.models.offers())
        choice = choose_from(kept.settings.model, offers)
        if as_json:
            print_json(
                {
                    "chosen": choice.name,
                    "why": choice.reason,
                    "fallbacks": kept.settings.model.fallbacks,
                    "offers": [
                        {"name": one.name, "available": one.is_available, "why": one.reason, "models": list(one.models)}
                        for one in offers
                    ],
                    "prices_checked": prices_checked(),
                }
            )
            return
        say(f"in use: {choice.name}  ({choice.reason})")
        for fallback in kept.settings.model.fallbacks:
            say(f"  then: {fallback}")
        for one in offers:
            say(f"  {'yes' if one.is_available else ' no'}  {one.name}  ({one.reason})")
            for model in one.models[1:]:
                say(f"         {one.name.partition('/')[0]}/{model}")
        say("choose one with `kept model set NAME`, try it with `kept model test`")
        say(f"prices were last checked on {prices_checked()}; `model.prices` sets your own")


@app.command("set")
def set_(
    name: Annotated[str, typer.Argument(help="PROVIDER/NAME, `extractive` for none, `auto` for the first there is.")],
    as_json: JsonFlag = False,
) -> None:
    """Choose the model to talk with, for this home."""
    from kept.config.file import set_value, unset_value
    from kept.llm.endpoints import EXTRACTIVE, parse_name

    with opened() as kept:
        if name == "auto":
            unset_value(kept.home, "model.default")
            written = "auto"
        else:
            wanted = parse_name(name)
            written = name if wanted.provider == EXTRACTIVE else str(wanted)
            set_value(kept.home, "model.default", written)
        if as_json:
            print_json({"model": written, "file": str(kept.home.config_file)})
        else:
            say(f"model.default is now {written}; `kept model list` shows what that means, `kept model test` tries it")


@app.command("test")
def try_(
    name: Annotated[str | None, typer.Argument(help="The model to try; the chosen one if left out.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Send one tiny message and show how long the answer took, and what it used."""
    with opened() as kept:
        choice = kept.models.choice(name)
        if choice.is_extractive:
            raise UsageError(
                "there is no model to test", "set a key or start a local server; `kept model list` shows how"
            )
        model = kept.models.bare(choice.name, context_length=kept.settings.model.context_length)
        kept.models.preload(choice.name).join()  # what is timed is the endpoint, not the loading of its SDK
        response, seconds = asyncio.run(_asked(model))
        _show(kept, response, seconds=seconds, window=model.context_length, as_json=as_json)


async def _asked(model: ChatModel) -> tuple[ChatResponse, float]:
    from kept.llm.retry import close

    prompt = (Message(Role.USER, "Answer with the single word: ready"),)
    request = ChatRequest("You are being tested for a connection.", prompt, max_output_tokens=TEST_TOKENS)
    started = time.monotonic()
    try:
        deltas = [delta async for delta in model.stream(request)]
    finally:
        await close(model)
    response = deltas[-1]
    assert isinstance(response, ChatResponse)
    return response, time.monotonic() - started


def _show(kept: App, response: ChatResponse, *, seconds: float, window: int, as_json: bool) -> None:
    from kept.llm.pricing import cost_of

    usage = response.usage
    cost = cost_of(response.model, usage, overrides=kept.settings.model.prices)
    caching = kept.models.caching(response.model).status_line
    if as_json:
        print_json(
            {
                "model": response.model,
                "answer": response.message.text,
                "seconds": round(seconds, 3),
                "input_tokens": usage.prompt_tokens,
                "output_tokens": usage.output_tokens,
                "cost": cost,
                "context_length": window,
                "prompt_caching": caching,
            }
        )
        return
    money = "price unknown" if cost is None else f"${cost:.6f}"
    say(f"{response.model} answered in {seconds:.2f} s: {response.message.text.strip() or '(nothing)'}")
    say(f"{usage.prompt_tokens} tokens in, {usage.output_tokens} out, {money}; window {window:,} tokens")
    say(caching)
