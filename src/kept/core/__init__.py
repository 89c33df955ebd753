"""Values, events, errors and ports: what every other folder speaks in."""
