"""`kept chat` and `kept run`: a conversation in a terminal."""
