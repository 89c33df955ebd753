"""kept as an MCP server: `protocol` frames messages, `server` answers them with `tools` and `resources`.

The protocol is implemented here instead of using the `mcp` package, because importing that package takes longer than
the whole start may take, and every connected agent starts this server. The tests use that package's client.
"""
