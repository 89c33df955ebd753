"""The chart of the context benchmark, written as SVG by hand."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 900, 470
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 50, 60
COLOURS = ("#2563eb", "#059669", "#d97706", "#9ca3af")


def chart(
    lines: Mapping[str, Sequence[int]], notes: Mapping[str, str], *, turns: int, threshold: int, window: int
) -> str:
    """Return the prompt size by turn, one line per way of working, with a note beside each name."""
    most = window * 1.1
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(turn: float) -> float:
        return LEFT + wide * turn / turns

    def y(tokens: float) -> float:
        return TOP + high * (1 - min(tokens, most) / most)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="28" font-size="17" fill="#111827">Tokens of the prompt over {turns:,} turns</text>',
    ]
    for tokens, label in ((0, "0"), (threshold, f"threshold {threshold:,}"), (window, f"window {window:,}")):
        dash = "" if tokens == 0 else ' stroke-dasharray="4 4"'
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tokens):.1f}" y2="{y(tokens):.1f}" stroke="#d1d5db"{dash}/>'
        )
        out.append(f'<text x="{LEFT + 6}" y="{y(tokens) - 5:.1f}" font-size="11" fill="#6b7280">{label}</text>')
    base = HEIGHT - BOTTOM + 20
    out += [_label(x(turn), base, f"{turn:,}", "middle") for turn in range(0, turns + 1, max(1, turns // 5))]
    for place, (name, sizes) in enumerate(lines.items()):
        colour, top = COLOURS[place % len(COLOURS)], TOP + 14 + place * 74
        step = max(1, len(sizes) // 1_200)
        points = " ".join(f"{x(turn):.1f},{y(sizes[turn]):.1f}" for turn in range(0, len(sizes), step))
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.4" points="{points}"/>')
        out.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{top - 9}" width="12" height="4" fill="{colour}"/>')
        out.append(_label(WIDTH - RIGHT + 36, top - 3, name, size=13))
        notes_of = enumerate(notes[name].split("\n"))
        out += [_label(WIDTH - RIGHT + 36, top + 13 + row * 15, note) for row, note in notes_of]
    out.append(_label(LEFT + wide / 2, HEIGHT - 18, "turn", "middle", size=12))
    return "\n".join([*out, "</svg>\n"])


def _label(x: float, y: float, text: str, anchor: str = "start", *, size: int = 11) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} fill="#374151">{escape(text)}</text>'
