"""The mark that every database of ours carries in its header."""

APPLICATION_MARK = b"KEPT"
APPLICATION_ID = int.from_bytes(APPLICATION_MARK, "big")
