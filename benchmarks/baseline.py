"""A fixed piece of pure-Python work, so that numbers from different machines can be compared as ratios."""

import time

ROUNDS = 300_000


def reference_loop_seconds() -> float:
    """Return the best of three times that the reference loop takes here."""
    return min(_once() for _ in range(3))


def reference_loop_processor_seconds() -> float:
    """Return the best of three processor times of the reference loop, which other work on the machine moves less."""
    times = []
    for _ in range(3):
        start = time.process_time()
        _once()
        times.append(time.process_time() - start)
    return min(times)


def _once() -> float:
    start = time.perf_counter()
    words: dict[str, int] = {}
    for number in range(ROUNDS):
        word = f"word{number % 977}"
        words[word] = words.get(word, 0) + len(word)
    if len(words) != 977:
        raise AssertionError(len(words))
    return time.perf_counter() - start
