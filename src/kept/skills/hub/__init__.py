"""Where skills come from: sources, quarantine, the lock file and its audit."""
