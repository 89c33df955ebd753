"""The methods that a client may call, each a function of the home, the request and the client's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kept.core.text import JSON
from kept.mcp_server import resources, tools
from kept.mcp_server.protocol import Message

if TYPE_CHECKING:
    from kept.app import Caller

OpenHome: TypeAlias = Callable[[], "Caller"]
Method: TypeAlias = Callable[[OpenHome, Message, str], Mapping[str, JSON]]


def _ping(_home: OpenHome, _message: Message, _client: str) -> dict[str, JSON]:
    return {}


def _list_tools(home: OpenHome, _message: Message, _client: str) -> dict[str, JSON]:
    return {"tools": tools.describe(home)}


def _call_tool(home: OpenHome, message: Message, client: str) -> dict[str, JSON]:
    return tools.call(home, message.text("name"), message.arguments(), client=client)


def _list_resources(home: OpenHome, _message: Message, _client: str) -> dict[str, JSON]:
    return {"resources": resources.list_resources(home())}


def _list_templates(_home: OpenHome, _message: Message, _client: str) -> dict[str, JSON]:
    return {"resourceTemplates": resources.TEMPLATES}


def _read_resource(home: OpenHome, message: Message, client: str) -> dict[str, JSON]:
    return {"contents": [resources.read(home(), message.text("uri"), client=client)]}


def _list_prompts(_home: OpenHome, _message: Message, _client: str) -> dict[str, JSON]:
    return {"prompts": resources.list_prompts()}


def _get_prompt(home: OpenHome, message: Message, client: str) -> dict[str, JSON]:
    return resources.fill_prompt(home(), message.text("name"), message.arguments(), client=client)


METHODS: Final[Mapping[str, Method]] = {
    "ping": _ping,
    "tools/list": _list_tools,
    "tools/call": _call_tool,
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
    "prompts/list": _list_prompts,
    "prompts/get": _get_prompt,
}
