"""Geometry of the charts: numbers in, shapes for inline SVG out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from wellkept.operations.sessions import LineageMap, Station

PALETTE = 6
"""How many colours the style sheet has for series; further series share the last one."""
HEAT_WEEKS = 26
_CELL, _GAP = 13, 3


class Bar(Struct, frozen=True):
    """A rectangle of a bar chart, with its label."""

    x: float
    y: float
    width: float
    height: float
    tone: int
    label: str


class BarChart(Struct, frozen=True):
    """Stacked bars over days, with a table of the same numbers for screen readers."""

    width: int
    height: int
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    """Positions and texts below the axis."""
    top: str
    series: tuple[str, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.bars


def stack_days(
    days: Mapping[str, Mapping[str, int]], series: Sequence[str], *, last: date, count: int, height: int = 120
) -> BarChart:
    """Return bars for the last `count` days up to `last`, one stack per day."""
    width = 720
    shown = [(last - timedelta(days=back)).isoformat() for back in range(count - 1, -1, -1)]
    values = [tuple(int(days.get(day, {}).get(name, 0)) for name in series) for day in shown]
    highest = max((sum(stack) for stack in values), default=0)
    step = width / max(1, count)
    bars = []
    for place, (day, each) in enumerate(zip(shown, values, strict=True)):
        top = float(height)
        for tone, (name, value) in enumerate(zip(series, each, strict=True)):
            if value:
                size = max(1.5, value / highest * (height - 6))
                top -= size
                label = f"{_name_day(day)}: {value:,} {name}"
                bars.append(Bar(place * step + step * 0.12, top, step * 0.76, size, min(tone, PALETTE - 1), label))
    rows = tuple((day, each) for day, each in zip(shown, values, strict=True) if any(each))
    return BarChart(width, height, tuple(bars), _mark_days(shown, step), f"{highest:,}", tuple(series), rows)


class LineChart(Struct, frozen=True):
    """A share from 0 to 100 percent over days, with marks on some of them."""

    width: int
    height: int
    path: str
    points: tuple[tuple[float, float, str], ...]
    marks: tuple[tuple[float, str], ...]
    ticks: tuple[tuple[float, str], ...]


def draw_line(shares: Mapping[str, float], *, last: date, count: int, marks: Mapping[str, str]) -> LineChart:
    """Return a line over the days that have a value; days without one are bridged."""
    width, height = 720, 120
    shown = [(last - timedelta(days=back)).isoformat() for back in range(count - 1, -1, -1)]
    step = width / max(1, count)
    places = {day: place * step + step / 2 for place, day in enumerate(shown)}
    points = tuple(
        (places[day], height - 4 - shares[day] * (height - 14), f"{_name_day(day)}: {shares[day]:.0%} from the cache")
        for day in shown
        if day in shares
    )
    path = " ".join(f"{'M' if not place else 'L'}{x:.1f} {y:.1f}" for place, (x, y, _) in enumerate(points))
    named = tuple((places[day], f"{_name_day(day)}: {why}") for day, why in marks.items() if day in places)
    return LineChart(width, height, path, points, named, _mark_days(shown, step))


def _mark_days(shown: Sequence[str], step: float) -> tuple[tuple[float, str], ...]:
    every = max(1, math.ceil(len(shown) / 6))
    return tuple(
        (place * step + step / 2, f"{date.fromisoformat(day):%-d %b}")
        for place, day in enumerate(shown)
        if (len(shown) - 1 - place) % every == 0
    )


def _name_day(day: str) -> str:
    return f"{date.fromisoformat(day):%-d %B}"


class HeatCell(Struct, frozen=True):
    """One day of the calendar."""

    x: int
    y: int
    day: str
    level: int
    """0 for nothing, up to 4."""
    label: str


class HeatMap(Struct, frozen=True):
    """A calendar: a column per week, a row per weekday."""

    width: int
    height: int
    cell: int
    cells: tuple[HeatCell, ...]
    months: tuple[tuple[int, str], ...]
    empty: str
    """One path for all days without a session: a hundred elements would be most of the page."""


def draw_calendar(counts: Mapping[str, int], *, last: date, weeks: int = HEAT_WEEKS) -> HeatMap:
    """Return the calendar of the last weeks; a day of the future has no cell."""
    size = _CELL + _GAP
    monday = last - timedelta(days=last.weekday()) - timedelta(weeks=weeks - 1)
    highest = max(counts.values(), default=0)
    cells, months = [], []
    for place in range((last - monday).days + 1):
        day = monday + timedelta(days=place)
        count = counts.get(day.isoformat(), 0)
        level = 0 if not count else max(1, math.ceil(count / highest * 4))
        what = f"{count} session{'' if count == 1 else 's'}" if count else "no session"
        cells.append(
            HeatCell(place // 7 * size, 18 + place % 7 * size, day.isoformat(), level, f"{day:%-d %B}: {what}")
        )
        if day.day <= 7 and day.weekday() == 0:
            months.append((place // 7 * size, f"{day:%b}"))
    empty = "".join(f"M{cell.x} {cell.y}h{_CELL}v{_CELL}h-{_CELL}z" for cell in cells if not cell.level)
    return HeatMap(weeks * size, 18 + 7 * size, _CELL, tuple(cells), tuple(months), empty)


class Dot(Struct, frozen=True):
    """A session on the line map."""

    x: int
    y: int
    station: Station
    is_current: bool
    tone: int


class LineMap(Struct, frozen=True):
    """Sessions as dots; lines connect parents and children."""

    width: int
    height: int
    dots: tuple[Dot, ...]
    lines: tuple[tuple[str, str], ...]
    """The path of each line and the kind of the link."""
    hidden: int


def draw_lineage(found: LineageMap, sources: Sequence[str]) -> LineMap:
    """Return the map of a conversation: time from left to right, side lines below the main one."""
    across, down, margin = 84, 44, 22
    dots, places = [], {}
    for station in found.stations:
        x, y = margin + station.column * across, margin + station.lane * down
        tone = min(sources.index(station.session.source), PALETTE - 1) if station.session.source in sources else 0
        places[station.session.id] = (x, y)
        dots.append(Dot(x, y, station, station.session.id == found.current, tone))
    lines = []
    for station in found.stations:
        if station.parent is not None and station.parent in places:
            (a, b), (c, d) = places[station.parent], places[station.session.id]
            middle = (a + c) / 2
            lines.append(
                (f"M{a} {b} C{middle} {b} {middle} {d} {c} {d}", station.link.value if station.link else "none")
            )
    width = max((dot.x for dot in dots), default=0) + margin
    height = max((dot.y for dot in dots), default=0) + margin
    return LineMap(width, height, tuple(dots), tuple(lines), found.hidden)


class Part(Struct, frozen=True):
    """A part of a score, as a bar from 0 to 100."""

    name: str
    value: float
    width: float
    x: float
    tone: int


def split_score(parts: Mapping[str, float]) -> tuple[Part, ...]:
    """Return the parts of a score side by side, the largest first; negative ones take no room."""
    total = sum(value for value in parts.values() if value > 0) or 1.0
    found, left = [], 0.0
    for tone, (name, value) in enumerate(sorted(parts.items(), key=lambda each: -each[1])):
        width = max(0.0, value) / total * 100
        found.append(Part(name, value, width, left, min(tone, PALETTE - 1)))
        left += width
    return tuple(found)


class Point(Struct, frozen=True):
    """A point of a scatter chart."""

    x: float
    y: float
    tone: int
    label: str
    key: str


class Scatter(Struct, frozen=True):
    """Points over two spans of days; both axes are logarithmic, because most entries are young."""

    width: int
    height: int
    points: tuple[Point, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


_MARKS = ((1, "1 day"), (7, "1 week"), (30, "1 month"), (90, "3 months"), (365, "1 year"))


def scatter_days(points: Sequence[tuple[float, float, int, str, str]], *, height: int = 240) -> Scatter:
    """Return points by two ages in days: each is x, y, tone, label and key."""
    width, left, low = 720, 64, 26
    highest = max((max(point[0], point[1]) for point in points), default=1.0)
    most = math.log1p(max(highest, 7.0) * 1.15)

    def across(days: float) -> float:
        return left + math.log1p(max(0.0, days)) / most * (width - left - 16)

    def up(days: float) -> float:
        return height - low - math.log1p(max(0.0, days)) / most * (height - low - 14)

    marks = [(days, name) for days, name in _MARKS if math.log1p(days) <= most]
    return Scatter(
        width,
        height,
        tuple(Point(across(x), up(y), min(tone, PALETTE - 1), label, key) for x, y, tone, label, key in points),
        tuple((across(days), name) for days, name in marks),
        tuple((up(days), name) for days, name in marks),
    )
