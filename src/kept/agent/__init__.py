"""The loop that uses the tiers: recall, assemble, think and act, settle."""
