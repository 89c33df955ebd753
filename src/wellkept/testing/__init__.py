"""Contract suites and test doubles for kept and its plugins."""
