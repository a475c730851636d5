"""Four small groups scored by two judges, and what that changes, computed by hand."""

from collections.abc import Mapping

from app.evaluation.comparison import FlipFigures, FlipReport, GroupFlips, RescoredGroup
from tests.support.tables import read_table

OTHER_JUDGE: Mapping[str, float] = read_table(__file__, "other_judge.yaml", dict[str, float])
"""What the second judge thinks of a text. The first one believes the number."""

Figures = tuple[str, int, int, int, int, float | None, float | None, float | None, float | None, float | None]


def _build(name: str, label: str, step: int, *texts: str) -> RescoredGroup:
    return RescoredGroup(
        name, tuple(map(float, texts)), tuple(OTHER_JUDGE[text] for text in texts), label=label, step=step
    )


GROUPS = (
    _build("a", "easy", 1, "0.9", "0.5", "0.1"),
    _build("b", "hard", 1, "0.8", "0.2"),
    _build("c", "easy", 2, "0.8", "0.7", "0.3"),
    _build("d", "hard", 2, "0.4", "0.3"),
)
# a: nothing changes, Spearman 1. b: its pair flips, and so do best and both signs; the mean goes from .5 to .45.
# c: (.8, .7, .3) is (.3, .7, .4) now: two of three pairs flip, another is best, one sign of three flips, the mean
# goes from .6 to 1.4 / 3, and Spearman is 1 - 6 (4 + 1 + 1) / (3 x 8) = -.5. d: (.4, .3) is (.4, .4) now.
BY_HAND: tuple[Figures, ...] = (
    ("all", 4, 8, 3, 1, round(5 / 12, 6), 0.5, round(1 / 3, 6), round((0 - 0.05 + 1.4 / 3 - 0.6 + 0.05) / 4, 6), 0.25),
    ("easy", 2, 6, 2, 0, round(1 / 3, 6), 0.5, round(1 / 6, 6), round((1.4 / 3 - 0.6) / 2, 6), 0.25),
    ("hard", 2, 2, 1, 1, 0.5, 0.5, 0.5, 0.0, None),
    ("1", 2, 4, 1, 0, 0.5, 0.5, 0.5, -0.025, 1.0),
    ("2", 2, 4, 2, 1, round(1 / 3, 6), 0.5, round(1 / 6, 6), round((1.4 / 3 - 0.6 + 0.05) / 2, 6), -0.5),
)
FLIPS = (
    GroupFlips(group_id="b", label="hard", step=1, pairs=((0, 1),), best=((0,), (1,)), signs=(0, 1)),
    GroupFlips(group_id="c", label="easy", step=2, pairs=((0, 1), (0, 2)), best=((0,), (1,)), signs=(0,)),
)


def figures_of(report: FlipReport) -> tuple[Figures, ...]:
    return tuple(_round_figures(row) for row in (report.overall, *report.labels, *report.steps))


def _round_figures(row: FlipFigures) -> Figures:
    means = (row.flipped_share, row.best_changed, row.signs_flipped, row.mean_shift, row.rank_correlation)
    rounded = [None if mean.value is None else round(mean.value, 6) + 0.0 for mean in means]
    return (row.name, row.groups, row.pairs, row.pairs_flipped, row.pairs_tied, *rounded)  # type: ignore[return-value]
