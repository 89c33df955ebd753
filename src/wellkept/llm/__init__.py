"""Model endpoints: adapters, retries, choice, tokens and prices."""
