"""Text that can leave the process: what UTF-8 can carry."""


def encodable(text: str) -> bool:
    """Whether `text` can be written as UTF-8; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
