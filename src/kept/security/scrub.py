"""The scrubber: keeps recalled memory out of a streamed answer, wherever the stream is cut."""

from kept.security.fence import Tag, fence_tags, looks_fenced, may_become_tag, sanitize_context


def scrubbed(text: str) -> str:
    """Return a whole text as its stream would have been shown, without the note that may stand alone."""
    scrubber = StreamingContextScrubber()
    return sanitize_context(scrubber.feed(text) + scrubber.flush())


class StreamingContextScrubber:
    """Passes streamed text on without fenced spans and fence tags.

    What comes out depends on the text alone, never on how it was cut. At most 255 characters, a tag
    that is not yet complete, are held back. A span that is never closed is discarded, because
    leaking is worse than truncating.
    """

    def __init__(self) -> None:
        self._held = ""
        self._depth = 0

    def feed(self, text: str) -> str:
        """Take the next piece of the stream and return what may be shown."""
        if not self._held and not self._depth and "<" not in text:
            return text
        whole = self._held + text
        last = whole.rfind("<")
        complete = last if last >= 0 and may_become_tag(whole[last:]) else len(whole)
        self._held = whole[complete:]
        return self._shown(whole[:complete])

    def flush(self) -> str:
        """End the stream, return what was held back, and be ready for the next one."""
        rest = "" if self._depth else self._held
        self.reset()
        return rest

    def reset(self) -> None:
        """Forget the stream."""
        self._held = ""
        self._depth = 0

    def _shown(self, text: str) -> str:
        if not looks_fenced(text):
            return "" if self._depth else text
        pieces: list[str] = []
        end = 0
        for tag in fence_tags(text):
            if not self._depth:
                pieces.append(text[end : tag.start])
            self._step(tag)
            end = tag.end
        if self._depth:
            return "".join(pieces)
        return "".join((*pieces, text[end:])) if end else text

    def _step(self, tag: Tag) -> None:
        if tag.kind == "open":
            self._depth += 1
        elif tag.kind == "close":
            self._depth = max(0, self._depth - 1)
