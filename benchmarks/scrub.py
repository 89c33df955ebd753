"""Prints how fast the scrubber passes text on, and how that compares with a fixed loop of this machine."""

import time

from benchmarks.baseline import reference_loop_seconds

from wellkept.security.fence import StreamingContextScrubber

FLOOR_MB_PER_SECOND = 20.0
TEXTS = {
    "prose": "The quick brown fox jumps over the lazy dog. " * 100_000,
    "html": "<p>hello <b>there</b>, <memory>not a fence</memory></p>\n" * 80_000,
    "fenced": ("answer " * 40 + "<memory-context>\nrecalled\n</memory-context>") * 14_000,
}


def megabytes_per_second(text: str, piece: int) -> float:
    scrubber = StreamingContextScrubber()
    pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
    start = time.perf_counter()
    for each in pieces:
        scrubber.feed(each)
    scrubber.flush()
    return len(text) / 1e6 / (time.perf_counter() - start)


def main() -> int:
    reference = reference_loop_seconds()
    worst = float("inf")
    for name, text in TEXTS.items():
        for piece in (64, 4096):
            speed = megabytes_per_second(text, piece)
            worst = min(worst, speed)
            print(f"{name:7} pieces of {piece:5}: {speed:8.1f} MB/s")
    per_loop = f"{worst * reference:.2f} MB per reference loop ({reference * 1000:.0f} ms)"
    print(f"slowest {worst:.1f} MB/s; {per_loop}")
    return 0 if worst >= FLOOR_MB_PER_SECOND else 1


if __name__ == "__main__":
    raise SystemExit(main())
