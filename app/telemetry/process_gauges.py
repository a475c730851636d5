"""Gauges where several processes share their metrics."""

from typing import Literal

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

Joining = Literal["livesum", "livemax", "livemin", "livemostrecent"]
"""What is shown of the values of several processes, those that live."""


class ProcessGauges:
    """What `ProcessCollector` tells of one process, under its names, labelled with the id of the process. Without the
    one that looks after the others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collector = ProcessCollector(registry=None)
        self._gauges = {
            sample.name: Gauge(sample.name, family.documentation, registry=registry, multiprocess_mode="liveall")
            for family in self._collector.collect()
            for sample in family.samples
        }
        self.refresh()

    def refresh(self) -> None:
        for family in self._collector.collect():
            for sample in family.samples:
                self._gauges[sample.name].set(sample.value)
