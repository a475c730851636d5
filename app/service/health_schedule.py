"""What run health may spend on judges, and when it asks them."""

from dataclasses import dataclass
from typing import Final

from app.domain.anchors import AnchorReading, Leniency, follow_anchors
from app.domain.groups import Group
from app.domain.health_records import HealthReading, HealthSpending, HealthTokens, ReadingKind
from app.domain.run_health import HealthOptions

ANCHORS: Final = 8
"""With 3 % of the tokens of groups that are read 2.5 times on average an anchor is read every 18 groups: after 300
groups each of eight has been read twice, and three readings can show a shift of .3 standard deviations within 50
groups. More anchors would still be read for the first time."""
ANCHOR_SHARE: Final = 0.75
"""Of the tokens that a run may spend on its health, for anchors by schedule. The rest is for anchors at a change of a
judge and after an odd reading."""
SHADOW_ANCHOR_SHARE: Final = 0.5
"""The same beside a shadow judge."""
SHADOW_SHARE: Final = 0.3


@dataclass(frozen=True)
class HealthBudget:
    """`share` is the run's. Everything that health has spent counts, and never exceeds it by a reading that is
    expected."""

    share: float
    tokens: HealthTokens
    has_shadow: bool

    def admits_anchor(self, *, hurried: bool) -> bool:
        """`hurried`: after an odd reading, or when a judge has changed."""
        usual = SHADOW_ANCHOR_SHARE if self.has_shadow else ANCHOR_SHARE
        spent = self.tokens.anchor if not hurried else self.tokens.spent
        return self._admits("anchor", spent, self.share if hurried else self.share * usual)

    def admits_shadow(self) -> bool:
        return self.has_shadow and self._admits("shadow", self.tokens.shadow, self.share * SHADOW_SHARE)

    def _admits(self, kind: ReadingKind, spent: int, share: float) -> bool:
        expected = self.tokens.expect(kind)
        whole = self.tokens.spent + expected <= self.share * self.tokens.run
        return expected > 0 and whole and spent + expected <= share * self.tokens.run


def is_hurried(leniency: Leniency, rush: int) -> bool:
    return rush > 0 or leniency.is_suspicious


def follow_readings(readings: list[HealthReading]) -> Leniency:
    return follow_anchors(AnchorReading(each.group_id, each.at_group, each.values) for each in readings)


def choose_anchor(anchors: tuple[Group, ...], readings: list[HealthReading], failures: int) -> Group:
    """The one that was not read for the longest; after failures the next ones."""
    last = {reading.group_id: reading.sequence for reading in readings}
    ordered = sorted(anchors, key=lambda group: last.get(group.group_id, 0))
    return ordered[failures % len(ordered)]


def describe_spending(tokens: HealthTokens, options: HealthOptions) -> HealthSpending:
    return HealthSpending(
        anchors=tokens.anchor,
        anchor_readings=tokens.anchor_readings,
        shadow=tokens.shadow,
        shadow_readings=tokens.shadow_readings,
        tokens=tokens.spent,
        run_tokens=tokens.run,
        share=tokens.spent / tokens.run if tokens.run else None,
        most_share=options.share,
    )
