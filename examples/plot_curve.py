"""Draw the mean reward by training step as an SVG, from a gateway's export. It needs only the standard library.

atropos-envs export rollouts.jsonl --run my-run
python examples/plot_curve.py rollouts.jsonl curve.svg
"""

import html
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 720, 320, 52, 44, 16
INK, LINE, GRID = "#444", "#2458a6", "#ddd"


def means(lines: Path) -> list[tuple[int, float]]:
    """By step; what has no score is left out, and is not a zero."""
    rewards: dict[int, list[float]] = {}
    with lines.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            if row["reward"] is not None and row["step"] is not None:
                rewards.setdefault(row["step"], []).append(row["reward"])
    return [(step, sum(found) / len(found)) for step, found in sorted(rewards.items())]


def apart(last: int) -> int:
    """The least of 1, 2, 5, 10, 20 … that leaves at most eight numbers below an axis."""
    widths = (digit * int(10**power) for power in itertools.count() for digit in (1, 2, 5))
    return next(width for width in widths if last <= 8 * width)


def drawn(curve: Sequence[tuple[int, float]], title: str) -> str:
    last = max(1, curve[-1][0])

    def at(step: float, reward: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - EDGE) * step / last
        down = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 2 * EDGE) * reward
        return round(across, 1), round(down, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
    ]
    for tenth in range(0, 11, 2):
        (start, height), (end, _) = at(0, tenth / 10), at(last, 0)
        parts.append(f'<path d="M{start} {height}H{end}" stroke="{GRID}"/>')
        parts.append(f'<text x="{start - 8}" y="{height + 4}" text-anchor="end" fill="{INK}">{tenth / 10}</text>')
    for step in range(0, last + 1, apart(last)):
        across, height = at(step, 0)
        parts.append(f'<text x="{across}" y="{height + 18}" text-anchor="middle" fill="{INK}">{step}</text>')
    points = " ".join(f"{across},{height}" for across, height in (at(*one) for one in curve))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.8"/>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="{INK}">step</text>')
    parts.append(f'<text x="14" y="{HEIGHT / 2}" fill="{INK}" transform="rotate(-90 14 {HEIGHT / 2})">reward</text>')
    return "\n".join([*parts, "</svg>", ""])


def main(lines: str, picture: str, title: str = "Mean reward by step of training") -> None:
    curve = means(Path(lines))
    if not curve:
        sys.exit(f"{lines}: no row has both a reward and a step of training")
    Path(picture).write_text(drawn(curve, title), encoding="utf-8")
    print(f"{len(curve)} steps, from {curve[0][1]:.2f} to {curve[-1][1]:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
