"""The page and the picture of what simulated judges cost and tell."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from benchmarks.judging_cells import BUDGETS, Cell
from benchmarks.judging_tokens import measure_tokens
from benchmarks.simulated_judges import JUDGES
from docs.markdown import table

PICTURE: Final = "pictures/judging_tradeoff.svg"
TARGETS: Final[Sequence[tuple[str, str, int, float]]] = (
    ("mild", "ours, at most 4 readings", 2, 0.72),
    ("mild", "ours, at most 4 readings", 4, 0.88),
    ("mild", "ours, at most 4 readings", 8, 0.90),
    ("mild", "ours, at most 4 readings", 16, 0.92),
    ("mild, 2 % false reports", "ours, at most 4 readings", 8, 0.88),
)
_ONE_CALL: Final = "one call, fixed order (RULER's idea)"
_NOISY: Final = "the same, its number as noisy as one of our criteria"
_ONE_CALL_EXPLAINED: Final = (
    "With one call a fixed order is as good on average as a turned one, since places favour no quality. The simulated "
    "judge writes RULER's one number without noise, in steps of 0.05. It writes each of our six criteria as a whole "
    "number with noise. The last column has a number that is as noisy as one of our criteria:"
)
_FOLDER: Final = Path(__file__).parent


def write_page(cells: Sequence[Cell], docs: Path) -> None:
    found = {(cell.judge, cell.idea, cell.size): cell for cell in cells}
    (docs / PICTURE).write_text(_draw([cell for cell in cells if (cell.judge, cell.size) == ("mild", 8)]), "utf-8")
    parts = [
        _write_head(),
        f"![Correlation by tokens, groups of 8, mild judge; simulated]({PICTURE})",
        "## What is wanted",
        _build_targets(found),
        _ONE_CALL_EXPLAINED,
        _build_one_call(found),
        "## At equal tokens",
        "RULER's idea asks one judge, as often as the budget buys. Beside it stands the best of the panel's settings "
        "that costs no more on average. Some of these have several judges.",
        _build_budgets(cells),
        *(part for size in sorted({cell.size for cell in cells}) for part in _build_size(cells, size)),
        "## The judges",
        _build_judges(),
        "## Defaults that rest on this, and what checks them",
        (_FOLDER / "judging_tradeoff_defaults.md").read_text("utf-8"),
    ]
    (docs / "judging_tradeoff.md").write_text("\n\n".join(part.strip() for part in parts) + "\n", "utf-8")


def _write_head() -> str:
    counted: dict[str, str] = {form: tokens.tell() for form, tokens in measure_tokens().items()}
    return (_FOLDER / "judging_tradeoff_head.md").read_text("utf-8").format(**counted)


def _build_targets(found: Mapping[tuple[str, str, int], Cell]) -> str:
    rows = [
        (judge, idea, str(size), f"at least {wanted:.2f}", *_tell(cell), "met" if cell.r >= wanted else "**missed**")
        for judge, idea, size, wanted in TARGETS
        if (cell := found.get((judge, idea, size)))
    ]
    for size in sorted({size for _, _, size in found}):
        cell, fixed = found.get(("mild", "ours, 1 reading", size)), found.get(("mild", _ONE_CALL, size))
        if cell and fixed:
            close = "no difference told apart" if cell.interval[1] >= fixed.r else "**missed**"
            told = "met" if cell.r >= fixed.r else close
            rows.append(
                ("mild", "ours, 1 reading", str(size), f"at least {fixed.r:.3f}, RULER's idea", *_tell(cell), told)
            )
    return table(("judge", "way", "replies", "wanted", "r", "interval", "calls", "at most", ""), rows)


def _build_one_call(found: Mapping[tuple[str, str, int], Cell]) -> str:
    ideas = ("ours, 1 reading", _ONE_CALL, _NOISY)
    rows = [
        (str(size), *("" if cell is None else f"{cell.r:.3f} ± {1.96 * cell.error:.3f}" for cell in cells))
        for size in sorted({size for _, _, size in found})
        if any(cells := [found.get(("mild", idea, size)) for idea in ideas])
    ]
    return table(("replies", ideas[0], ideas[1], ideas[2]), rows)


def _build_budgets(cells: Sequence[Cell]) -> str:
    rows = []
    for size in sorted({cell.size for cell in cells}):
        for judge in ("mild", "weak"):
            own = [cell for cell in cells if (cell.judge, cell.size) == (judge, size)]
            once = next((cell for cell in own if cell.idea == _ONE_CALL), None)
            for budget in () if once is None else BUDGETS:
                theirs = next((cell for cell in own if cell.idea == f"RULER's idea for {budget:,} tokens"), None)
                ours = [cell for cell in own if cell.is_ours and cell.tokens <= budget]
                best = max(ours, key=lambda cell: cell.r, default=None)
                if theirs or (once is not None and once.tokens > budget):
                    told = _tell_budget(theirs), _tell_budget(best), "" if best is None else best.idea
                    rows.append((str(size), judge, f"{budget:,}", *told))
    return table(("replies", "judge", "tokens", "RULER's idea: r", "ours: r", "way"), rows)


def _tell_budget(cell: Cell | None) -> str:
    return "none fits" if cell is None else f"{cell.r:.3f} ± {1.96 * cell.error:.3f} ({cell.calls:.1f} calls)"


def _build_size(cells: Sequence[Cell], size: int) -> tuple[str, str]:
    own = [cell for cell in cells if cell.size == size and " tokens" not in cell.idea]
    rows = [(cell.judge, cell.idea, *_tell(cell), f"{cell.tokens:,.0f}") for cell in own]
    heads = ("judge", "way", "r", "interval", "calls", "at most", "tokens")
    groups = dict.fromkeys((cell.judge.partition(",")[0], cell.groups) for cell in own)
    mild = max((count for judge, count in groups if judge == "mild"), default=0)
    others = max((count for judge, count in groups if judge != "mild"), default=0)
    counts = f"{mild:,} each" + (f", {others:,} before judges other than the mild one" if others != mild else "")
    return f"## Groups of {size}: {counts}", table(heads, rows)


def _build_judges() -> str:
    names = ("taste", "noise", "drift", "lean", "edges", "length", "slope", "tie")
    return table(("judge", *names), [(name, *(f"{getattr(f, one):g}" for one in names)) for name, f in JUDGES.items()])


def _tell(cell: Cell) -> tuple[str, str, str, str]:
    low, high = cell.interval
    return f"{cell.r:.3f}", f"{low:.3f} to {high:.3f}", f"{cell.calls:.2f}", str(cell.most_calls)


_WIDE: Final = 860
_TALL: Final = 460
_LEFT: Final = 60
_BOTTOM: Final = 410


def _draw(cells: Sequence[Cell]) -> str:
    shown = [cell for cell in cells if " tokens" not in cell.idea]
    low = math.floor(min(cell.interval[0] for cell in shown) * 20) / 20
    least, most = (math.log10(edge) for edge in (1000, 10 ** math.ceil(math.log10(max(c.tokens for c in shown)))))

    def across(tokens: float) -> float:
        return _LEFT + (math.log10(tokens) - least) / (most - least) * (_WIDE - _LEFT - 240)

    def down(r: float) -> float:
        return _BOTTOM - (r - low) / (1.0 - low) * (_BOTTOM - 40)

    marks = []
    for step in range(round((1.0 - low) * 20) + 1):
        y = down(low + step / 20)
        marks.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDE - 10}" stroke="#ddd"/>')
        marks.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#444">{low + step / 20:.2f}</text>'
        )
    for power in range(round(least), round(most) + 1):
        x = across(10**power)
        marks.append(f'<text x="{x:.1f}" y="{_BOTTOM + 20}" text-anchor="middle" fill="#444">{10**power:,}</text>')
    marks.append(f'<text x="{_LEFT}" y="{_BOTTOM + 40}" fill="#444">tokens of a group, prompts and answers</text>')
    lowest_label = 0.0
    for cell in sorted(shown, key=lambda cell: -cell.r):
        x, y = across(cell.tokens), down(cell.r)
        top, bottom = down(cell.interval[1]), down(cell.interval[0])
        label = max(y, lowest_label + 14)
        lowest_label = label
        colour = "#1a5fb4" if cell.is_ours else "#a51d2d"
        marks.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}"/>')
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        marks.append(
            f'<path d="M{x + 6:.1f} {y:.1f}L{_WIDE - 236} {label:.1f}" stroke="{colour}" stroke-opacity="0.25"/>'
        )
        marks.append(
            f'<text x="{_WIDE - 232}" y="{label + 4:.1f}" fill="{colour}">{escape(cell.idea.replace("`", ""))}</text>'
        )
    title = "Simulated: correlation of reward and quality by tokens, groups of 8, mild judge"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_TALL}" '
            'font-family="sans-serif" font-size="12">',
            f"<title>{title}</title>",
            f'<rect width="{_WIDE}" height="{_TALL}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="20" font-size="14" fill="#222">{title}</text>',
            *marks,
            "</svg>\n",
        )
    )
