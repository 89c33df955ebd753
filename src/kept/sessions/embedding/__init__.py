"""Models that turn texts into vectors on this machine, and how any is asked: calmly, in batches, in the background."""
