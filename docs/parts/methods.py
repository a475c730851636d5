"""Drawings of docs/npc_finetuning_report.md, made of the tables on that page."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

REPORT: Final = Path(__file__).resolve().parents[1] / "npc_finetuning_report.md"

GRADES: Final[Mapping[str, int]] = {"++": 2, "+": 1, "0": 0, "-": -1}
EFFECTS: Final = ("voice", "knowledge limits", "many characters", "events")
"""The columns of the comparison that are added up: what a player notices."""
SERVERS: Final = "several GPUs"
COSTS: Final[Mapping[str, str]] = {
    "none": "no hardware",
    "a small GPU": "a small GPU",
    "a GPU": "a GPU",
    "a GPU or two": "a GPU or two",
    "GPUs for training and sampling": SERVERS,
    "as its trainer": SERVERS,
    "a node": "a node",
}
"""The column *hardware to train* from cheap to dear, as the drawing's columns are named."""

WIDTH: Final = 900
LEFT: Final = 44
TOP: Final = 34
LINE: Final = 15
CHECK_LEFT: Final = 220
CHECK_RIGHT: Final = 60
CHECK_ROW: Final = 34


def read_rows(heading: str, first: str) -> list[dict[str, str]]:
    """The rows of the first table below a heading whose first column is named `first`."""
    section = REPORT.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = section.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"| {first} |"))
    end = next((at for at in range(start, len(lines)) if not lines[at].startswith("|")), len(lines))
    head, _, *rows = (_split_cells(line) for line in lines[start:end])
    return [dict(zip(head, row, strict=True)) for row in rows]


def _split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def add_grades(row: Mapping[str, str]) -> int:
    return sum(GRADES[row[effect]] for effect in EFFECTS)


def methods_picture() -> str:
    """Each method at its hardware (across) and the sum of its grades (upwards), from the table *Compared*."""
    rows = read_rows("Compared", "method")
    columns = list(dict.fromkeys(COSTS.values()))
    places = sorted((add_grades(row), columns.index(COSTS[row["hardware to train"]]), row["method"]) for row in rows)
    levels = {
        level: [(column, method) for _, column, method in same] for level, same in groupby(places, lambda one: one[0])
    }
    heights = {level: LINE * _count_most([column for column, _ in levels[level]]) + 12 for level in levels}
    height = TOP + sum(heights.values()) + 10
    title = "Methods by the hardware that they need and by the sum of their grades"
    return _wrap_picture(height, title, [*_draw_columns(columns, height), *_draw_levels(levels, heights, len(columns))])


def _count_most(columns: Sequence[int]) -> int:
    return max(columns.count(column) for column in columns)


def _draw_columns(columns: Sequence[str], height: int) -> Iterator[str]:
    wide = (WIDTH - LEFT) / len(columns)
    for position, name in enumerate(columns):
        x = LEFT + position * wide
        if position % 2 == 0:
            yield f'<rect x="{x:.1f}" y="0" width="{wide:.1f}" height="{height}" fill="#f2f5f5"/>'
        yield _write(x + wide / 2, 20, name, 'text-anchor="middle" font-weight="bold"')


def _draw_levels(
    levels: Mapping[int, Sequence[tuple[int, str]]], heights: Mapping[int, int], columns: int
) -> Iterator[str]:
    """The highest sum first. Methods of one sum and one column stand below each other."""
    wide, top = (WIDTH - LEFT) / columns, TOP
    for level in sorted(levels, reverse=True):
        yield f'<path d="M{LEFT} {top}H{WIDTH}" stroke="#cfd8d8"/>'
        yield _write(LEFT - 10, top + 19, f"{level:+d}" if level else "0", 'text-anchor="end" fill="#0d6f68"')
        for column, members in groupby(levels[level], lambda one: one[0]):
            for line, (_, method) in enumerate(members):
                x, y = LEFT + (column + 0.5) * wide, top + 19 + line * LINE
                yield _write(x, y, method, 'text-anchor="middle"')
        top += heights[level]


def check_picture() -> str:
    """Figures of the offline judge with interval and target, from the table *Measured with this project*."""
    rows = read_rows("Measured with this project", "figure")
    height = 30 + CHECK_ROW * len(rows)
    lines = [line for place, row in enumerate(rows) for line in _draw_check(row, 30 + place * CHECK_ROW)]
    marks = [_write(_find_x(value), 18, f"{value:g}", 'text-anchor="middle" fill="#555"') for value in (0, 0.5, 1)]
    return _wrap_picture(height, "The offline judge: each figure, its 95 % interval and its target", [*marks, *lines])


def _draw_check(row: Mapping[str, str], top: int) -> Iterator[str]:
    low, high = (float(end) for end in row["95 % interval"].split(" to "))
    relation, target = row["target"].split()
    value, bound = float(row["value"]), float(target)
    met = value >= bound if relation == ">=" else value <= bound
    middle, colour = top + CHECK_ROW / 2 - 4, "#0d8f85" if met else "#b3261e"
    yield _write(CHECK_LEFT - 14, middle + 4, row["figure"], 'text-anchor="end"')
    yield f'<path d="M{_find_x(0)} {middle}H{_find_x(1)}" stroke="#e3e9e9"/>'
    yield f'<path d="M{_find_x(low)} {middle}H{_find_x(high)}" stroke="{colour}" stroke-width="4"/>'
    yield f'<circle cx="{_find_x(value)}" cy="{middle}" r="6" fill="{colour}"/>'
    yield f'<path d="M{_find_x(bound)} {middle - 10}v20" stroke="#222" stroke-width="2"/>'
    yield _write(WIDTH - CHECK_RIGHT + 14, middle + 4, "met" if met else "missed", f'fill="{colour}"')


def _find_x(value: float) -> float:
    return round(CHECK_LEFT + value * (WIDTH - CHECK_LEFT - CHECK_RIGHT), 1)


def _write(x: float, y: float, text: str, attributes: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'


def _wrap_picture(height: int, title: str, lines: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            'font-size="12" fill="#222">',
            f"<title>{title}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *lines,
            "</svg>\n",
        ]
    )
