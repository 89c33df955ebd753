"""One function for each thing that a person or an agent can do; every surface calls these.

An operation takes a `Caller` and typed arguments. It returns a dataclass with one JSON form (`as_json`), or `Refused`
where the caller can react. Other failures raise a `KeptError`. Progress is reported to the caller's sink.
"""
