"""Histograms that take many values at once: one look-up per group instead of a lock per value."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


@dataclass
class _Tally:
    counts: list[int]
    """One more than there are bounds: the last count is for values above all bounds."""
    total: float = 0.0


@dataclass(eq=False)
class Tallies(Collector):
    """Filled and read on the event loop. Exposed as an ordinary Prometheus histogram."""

    name: str
    documentation: str
    bounds: Sequence[float]
    labels: Labels
    registry: CollectorRegistry
    _tallies: dict[Labels, _Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry.register(self)

    def add(self, labels: Labels, values: Iterable[float]) -> None:
        tally = self._tallies.get(labels)
        if tally is None:
            tally = self._tallies[labels] = _Tally([0] * (len(self.bounds) + 1))
        for value in values:
            tally.counts[bisect_left(self.bounds, value)] += 1
            tally.total += value

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield HistogramMetricFamily(self.name, self.documentation, labels=self.labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self.name, self.documentation, labels=self.labels)
        names = [*map(floatToGoString, self.bounds), "+Inf"]
        for labels, tally in self._tallies.items():
            family.add_metric(labels, list(zip(names, _cumulative(tally.counts), strict=True)), tally.total)
        yield family


def _cumulative(counts: Sequence[int]) -> Iterator[float]:
    total = 0
    for count in counts:
        total += count
        yield float(total)
