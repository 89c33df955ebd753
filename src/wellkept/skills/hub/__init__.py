"""Skills from other sources: fetching, quarantine, installation, the lock file and its audit."""
