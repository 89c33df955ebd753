"""One module per command group: each parses, calls an operation and renders its result."""
