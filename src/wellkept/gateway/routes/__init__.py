"""The routes of the gateway, one module per group of operations."""
