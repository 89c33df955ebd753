"""`kept mcp`: this memory as an MCP server for other agents."""

import sys

import typer

from wellkept.cli.terminal import note, open_caller


def register(program: typer.Typer) -> None:
    """Add the command."""
    program.command("mcp")(mcp)


def mcp() -> None:
    """Serve this memory to an agent over standard input and output (MCP); `kept connect` sets it up."""
    from wellkept.mcp_server.server import serve

    if sys.stdin.isatty():
        note("waiting for an MCP client on standard input; `kept connect` connects agents, Ctrl-C ends this")
    serve(open_caller)
