"""The rooms of `app/` and their layers, from the import contract in pyproject.toml and the rooms' docstrings."""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

from docs.markdown import code, table

ROOT: Final = Path(__file__).resolve().parents[2]
APP: Final = ROOT / "app"
CONTRACT: Final = "Imports point down"

WIDTH: Final = 860
MARGIN: Final = 16
LAYER_HEIGHT: Final = 56
BOX_HEIGHT: Final = 42
GAP: Final = 8
SMALL_LETTER: Final = 5.6
"""Mean width of a letter of the small text."""


Layer = tuple[str, ...]
"""Rooms at one height, which import nothing from one another."""


@cache
def read_layers() -> tuple[Layer, ...]:
    """From the top down, as the contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [one for one in contracts if one["name"] == CONTRACT]
    return tuple(tuple(room.strip() for room in line.split("|")) for line in contract["layers"])


def describe_room(room: str) -> str:
    """The first paragraph of its docstring."""
    path = APP / room / "__init__.py"
    source = path if path.exists() else APP / f"{room}.py"
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def rooms_table() -> str:
    """Every room with its height and what it is for."""
    rows = [
        (str(height), code(f"app/{room}"), describe_room(room))
        for height, layer in zip(range(len(read_layers()), 0, -1), read_layers(), strict=True)
        for room in layer
    ]
    return table(("layer", "room", "holds"), rows)


def rooms_picture() -> str:
    """An SVG: one band a layer, one box a room."""
    height = 2 * MARGIN + LAYER_HEIGHT * len(read_layers())
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            'font-family="sans-serif" font-size="14">',
            "<title>The rooms of app/ in layers: imports point down only</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *_draw_arrow(height),
            *(line for position, layer in enumerate(read_layers()) for line in _draw_layer(position, layer)),
            "</svg>\n",
        ]
    )


def _draw_arrow(height: int) -> Iterator[str]:
    """Down the left side: the direction of imports."""
    x, low = MARGIN + 4, height - MARGIN - 8
    yield f'<path d="M{x} {MARGIN}V{low}m-5 -9l5 9l5 -9" fill="none" stroke="#444" stroke-width="1.5"/>'
    middle = height // 2
    yield (
        f'<text x="{x + 16}" y="{middle}" transform="rotate(-90 {x + 16} {middle})" text-anchor="middle" fill="#444" '
        'font-size="12">imports point down</text>'
    )


def _draw_layer(position: int, layer: Layer) -> Iterator[str]:
    left, top = MARGIN + 32, MARGIN + position * LAYER_HEIGHT
    room_width = WIDTH - left - MARGIN
    yield f'<rect x="{left}" y="{top}" width="{room_width}" height="{LAYER_HEIGHT - 6}" rx="6" fill="#f2f5f5"/>'
    box = (room_width - GAP * (len(layer) + 1)) / len(layer)
    for place, room in enumerate(layer):
        x, y = left + GAP + place * (box + GAP), top + (LAYER_HEIGHT - 6 - BOX_HEIGHT) / 2
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{box:.1f}" height="{BOX_HEIGHT}" rx="4" '
            'fill="#fff" stroke="#0d8f85"/>'
        )
        yield from _write_in_box(room, x + box / 2, y, box)


def _write_in_box(room: str, middle: float, top: float, width: float) -> Iterator[str]:
    """The room's name, and below it the first sentence of what it holds where that fits."""
    said = describe_room(room).replace("`", "").split(". ")[0].rstrip(".")
    fits = len(said) * SMALL_LETTER < width
    yield f'<text x="{middle:.1f}" y="{top + (18 if fits else 25):.1f}" text-anchor="middle" fill="#222">{room}</text>'
    if fits:
        yield (
            f'<text x="{middle:.1f}" y="{top + 34:.1f}" text-anchor="middle" fill="#666" font-size="11">'
            f"{escape(said)}</text>"
        )
