"""The figures of a load as one SVG file: three histograms and the throughput over time."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

_width, _height = 960, 640
_ink, _soft, _bar, _line = "#1f2933", "#9aa5b1", "#3d7ea6", "#c2571a"
_left, _right, _top, _bottom = 56, 16, 46, 40  # around the drawing of a panel


def steps(high: float, wanted: int = 5) -> list[float]:
    """Round numbers from 0 to at most `high` (above 0), about `wanted` of them after the 0."""
    rough = high / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    return [i * step for i in range(math.floor(high / step * 1.001) + 1)]


def percentile(values: Sequence[float], part: float) -> float:
    """Between the nearest ranks of sorted values."""
    place = (len(values) - 1) * part
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


class _Panel:
    """One drawing with its axes, at a corner of the picture."""

    def __init__(self, x: float, y: float, width: float, height: float, title: str):
        self.parts: list[str] = []
        self.x0, self.x1 = x + _left, x + width - _right
        self.y0, self.y1 = y + height - _bottom, y + _top
        self.text(x + _left, y + 20, title, size=14, weight="600")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 11,
        anchor: str = "start",
        colour: str = _ink,
        weight: str = "400",
    ) -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}" fill="{colour}">{html.escape(words)}</text>'
        )

    def axes(self, right: float, top: float, label: str, ticks: int = 5) -> None:
        """Both begin at 0."""
        self._xs, self._ys = (right, top) if right > 0 and top > 0 else (1.0, 1.0)
        for value in steps(self._ys):
            y = self.py(value)
            self.parts.append(
                f'<line x1="{self.x0:.1f}" x2="{self.x1:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="{_soft}" stroke-opacity="0.35"/>'
            )
            self.text(self.x0 - 6, y + 4, f"{value:g}", anchor="end")
        for value in steps(self._xs, ticks):
            self.text(self.px(value), self.y0 + 15, f"{value:g}", anchor="middle")
        self.text((self.x0 + self.x1) / 2, self.y0 + 31, label, anchor="middle")

    def px(self, value: float) -> float:
        return self.x0 + (self.x1 - self.x0) * value / self._xs

    def py(self, value: float) -> float:
        return self.y0 - (self.y0 - self.y1) * value / self._ys


def _histogram(panel: _Panel, values: Sequence[float], unit: str) -> None:
    """Counts in equal bins up to the 99.5th percentile; the last bin has what lies beyond."""
    if not values:
        panel.text((panel.x0 + panel.x1) / 2, (panel.y0 + panel.y1) / 2, "nothing", anchor="middle")
        return
    ordered = sorted(values)
    right = percentile(ordered, 0.995) * 1.05 or 1.0
    bins = 40
    counts = [0] * bins
    for value in ordered:
        counts[min(int(value / right * bins), bins - 1)] += 1
    panel.axes(right, max(counts), unit)
    width = (panel.x1 - panel.x0) / bins
    for index, count in enumerate(counts):
        if count:
            y = panel.py(count)
            panel.parts.append(
                f'<rect x="{panel.x0 + index * width + 0.5:.1f}" y="{y:.1f}" width="{width - 1:.1f}" '
                f'height="{panel.y0 - y:.1f}" fill="{_bar}"/>'
            )
    names = []
    for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value = percentile(ordered, part)
        x = panel.px(min(value, right))
        panel.parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{panel.y0:.1f}" y2="{panel.y1:.1f}" '
            f'stroke="{_line}" stroke-dasharray="3 3"/>'
        )
        names.append(f"{name} {value:.4g}")
    panel.text(panel.x1, panel.y1 - 5, ", ".join(names), anchor="end", colour=_line)


def _over_time(panel: _Panel, seconds: Sequence[float], weights: Sequence[float], end: float) -> None:
    """Weights of each second, or of a longer bin, as a stepped line."""
    if not seconds or end <= 0:
        panel.text((panel.x0 + panel.x1) / 2, (panel.y0 + panel.y1) / 2, "nothing", anchor="middle")
        return
    count = max(1, min(120, math.ceil(end)))
    width = end / count
    sums = [0.0] * count
    for second, weight in zip(seconds, weights):
        sums[min(max(int(second / width), 0), count - 1)] += weight
    rates = [value / width for value in sums]
    panel.axes(end, max(rates), f"seconds since the first arrival (bins of {width:.2g} s)", 10)
    path = [f"M{panel.px(0):.1f} {panel.py(0):.1f}"]
    for index, rate in enumerate(rates):
        path.append(f"V{panel.py(rate):.1f}H{panel.px((index + 1) * width):.1f}")
    path.append(f"V{panel.py(0):.1f}Z")
    panel.parts.append(
        f'<path d="{"".join(path)}" fill="{_bar}" fill-opacity="0.25" stroke="{_bar}" '
        'stroke-width="1.5"/>'
    )


def draw(
    title: str,
    subtitle: str,
    ttft: Sequence[float],
    per_token: Sequence[float],
    whole: Sequence[float],
    seconds: Sequence[float],
    weights: Sequence[float],
    end: float,
) -> str:
    """The picture. ttft, per_token and whole in seconds; weights are tokens at `seconds`."""
    third = _width / 3
    panels = [
        _Panel(0, 60, third, 290, "Time to first token"),
        _Panel(third, 60, third, 290, "Time between tokens"),
        _Panel(2 * third, 60, third, 290, "End to end"),
        _Panel(0, 350, _width, 280, "Output tokens a second"),
    ]
    _histogram(panels[0], [value * 1e3 for value in ttft], "ms, requests")
    _histogram(panels[1], [value * 1e3 for value in per_token], "ms, mean of a request")
    _histogram(panels[2], whole, "s, requests")
    _over_time(panels[3], seconds, weights, end)
    head = (
        f'<text x="{_left}" y="28" font-size="17" font-weight="600" fill="{_ink}">'
        f"{html.escape(title)}</text>"
        f'<text x="{_left}" y="48" font-size="12" fill="{_ink}">{html.escape(subtitle)}</text>'
    )
    body = "\n".join(part for panel in panels for part in panel.parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_width} {_height}" '
        f'width="{_width}" height="{_height}" font-family="system-ui, sans-serif" role="img">\n'
        f"<title>{html.escape(title)}</title>\n"
        f'<rect width="{_width}" height="{_height}" fill="#ffffff"/>\n{head}\n{body}\n</svg>\n'
    )
