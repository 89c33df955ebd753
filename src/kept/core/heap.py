"""How a process that lives long keeps its heap small."""

_M_ARENA_MAX = -8  # of glibc's malloc.h


def share_one_heap() -> bool:
    """Let all threads allocate from one heap; returns whether the C library knows how.

    The work of a turn hops between threads, and glibc gives threads heaps of their own: what one frees another does
    not get, so that a chat of days grows without holding anything. Threads that take turns lose nothing by sharing.
    """
    import ctypes  # 5 ms that a command of one answer does not need

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # Windows, macOS, musl
        return False
    return bool(mallopt(_M_ARENA_MAX, 1))
