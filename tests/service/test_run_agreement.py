"""How often agreement with people is measured, and how often a run is warned."""

import asyncio
from collections.abc import Sequence

import pytest

from app.domain.labels import LabelledGroupRecord
from app.domain.runs import Run
from app.features.labels.service import AgreementCheck
from app.features.labels.store import SqlLabelStore
from app.judges.chat_judge import ScriptedJudge
from app.judges.panel import ConfiguredPanels
from tests.support.store_cases import START

RUN = Run(name="a", seed=1, min_agreement=0.7, created_at=START)


class CountedLabels(SqlLabelStore):
    def __init__(self) -> None:
        self.newest = 1
        self.reads = 0

    async def find_mark(self, environment: str) -> tuple[int, int]:
        return self.newest, self.newest

    async def list_labelled(
        self, judge: str, environments: Sequence[str], run: str | None
    ) -> list[LabelledGroupRecord]:
        self.reads += 1
        await asyncio.sleep(0)
        return []


async def test_labels_are_measured_once_for_all_who_ask_and_again_only_where_they_changed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.features.labels.service.KEPT_SECONDS", 0.0)
    labels = CountedLabels()
    panels = ConfiguredPanels({"judge": ScriptedJudge(lambda request, count: {})}, {}, fallback=("judge",))
    check = AgreementCheck(labels, panels, lambda records: (60.0 + labels.reads, 0.5))
    seen = []
    for newest in (1, 1, 2):
        labels.newest = newest
        await asyncio.gather(*(check.require(RUN, ["arena"]) for _ in range(8)))
        seen.append((labels.reads, len(caplog.records)))
    assert seen == [(1, 1), (1, 1), (2, 2)]
