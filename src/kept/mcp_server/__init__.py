"""kept as an MCP server: `protocol` frames messages, `server` reads and answers them, `tools` and `resources` offer.

The protocol is written here and not taken from the `mcp` package, because importing that package takes longer than
the whole start may take, and every connected agent needs this server. The tests drive it with that package's client.
"""
