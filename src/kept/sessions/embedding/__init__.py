"""Models that turn texts into vectors on this machine, and the calm with which a search asks them."""
