"""The pace of a long task."""

from wellkept.core.clock import Pace


def test_the_time_left_follows_the_pace_of_the_task():
    """Nothing in the first seconds and at the end; a new task starts a new estimate."""
    moments = iter([0.0, 1.0, 10.0, 100.0, 101.0, 110.0])
    pace = Pace(lambda: next(moments))

    told = [pace.left("vectors", done, 1_000) for done in (100, 150, 200, 1_000)]
    other = [pace.left("index", done, 100) for done in (50, 60)]

    assert told == ["", "", ", 1 min 20 s left", ""]
    assert other == ["", ", 36 s left"]
