"""A tally reads like the library's own histogram of the same values."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from app.telemetry.tallies import Tallies

BOUNDS = (0.0, 0.5, 1.0)
VALUES = (0.0, 0.25, 0.5, 0.75, 1.0, 2.0)


def _lines(registry: CollectorRegistry) -> list[str]:
    return sorted(line for line in generate_latest(registry).decode().splitlines() if "_created" not in line)


def test_it_shows_what_the_library_shows() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    Tallies("reward", "Rewards.", BOUNDS, ("env",), ours).add(("gsm8k",), VALUES)
    histogram = Histogram("reward", "Rewards.", ("env",), registry=theirs, buckets=BOUNDS)
    for value in VALUES:
        histogram.labels("gsm8k").observe(value)
    assert _lines(ours) == _lines(theirs)


def test_what_was_never_told_is_not_shown() -> None:
    registry = CollectorRegistry()
    Tallies("reward", "Rewards.", BOUNDS, ("env",), registry)
    assert [line for line in _lines(registry) if not line.startswith("#")] == []
