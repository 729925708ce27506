"""A small plot of series over time, written as SVG by hand. Called by the soak; it knows nothing of what it draws."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, PANEL, MARGIN, LEFT = 900, 150, 34, 60
COLOURS = ("#1f6feb", "#d1571b", "#2da44e")

#: Name -> (seconds, value) in order of time.
Series = Mapping[str, Sequence[tuple[float, float]]]


def svg(panels: Mapping[str, Series], marks: Sequence[tuple[float, str]], end_s: float) -> str:
    """One panel below the other over the same time; `marks` are lines with a name through all of them."""
    height = len(panels) * (PANEL + MARGIN) + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for seconds, name in marks:
        x = _x(seconds, end_s)
        parts.append(
            f'<line x1="{x:.1f}" y1="{MARGIN}" x2="{x:.1f}" y2="{height - MARGIN}" stroke="#ddd"/>'
            f'<text x="{x + 2:.1f}" y="{MARGIN - 14}" fill="#888" font-size="9"'
            f' transform="rotate(-12 {x + 2:.1f} {MARGIN - 14})">{escape(name)}</text>'
        )
    for index, (title, series) in enumerate(panels.items()):
        parts += _panel(title, series, MARGIN + 14 + index * (PANEL + MARGIN), end_s)
    parts.append(
        f'<text x="{LEFT}" y="{height - 8}" fill="#555">0 to {end_s / 60:.1f} minutes</text></svg>'
    )
    return "\n".join(parts) + "\n"


def _panel(title: str, series: Series, top: float, end_s: float) -> list[str]:
    highest = max((value for points in series.values() for _, value in points), default=0) or 1.0
    bottom = top + PANEL
    parts = [
        f'<text x="{LEFT}" y="{top - 4}" fill="#222">{escape(title)}</text>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - 10}" y2="{bottom}" stroke="#888"/>',
        f'<text x="4" y="{top + 10}" fill="#555">{highest:.4g}</text>',
        f'<text x="4" y="{bottom}" fill="#555">0</text>',
    ]
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = " ".join(
            f"{_x(seconds, end_s):.1f},{bottom - PANEL * value / highest:.1f}"
            for seconds, value in points
        )
        parts.append(
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
            f'<text x="{WIDTH - 100 - 110 * number}" y="{top - 4}" fill="{colour}">{escape(name)}</text>'
        )
    return parts


def _x(seconds: float, end_s: float) -> float:
    return LEFT + (WIDTH - LEFT - 10) * seconds / max(end_s, 1e-9)
