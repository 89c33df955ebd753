"""The guard: what the files of a skill would do to the machine and the agent that trust it."""
