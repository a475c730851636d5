"""What run health may spend on judges, and when it asks them."""

from dataclasses import dataclass
from typing import Final

from app.domain.anchors import Leniency
from app.domain.health_records import HealthTokens, ReadingKind

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
