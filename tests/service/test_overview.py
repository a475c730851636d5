"""What needs an operator's attention, and what does not."""

from dataclasses import replace

import pytest

from app.domain.judging import JudgeReport
from app.domain.tasks import Isolation, Protection
from app.judges.panel import ConfiguredPanels
from app.service.gateway import EnvironmentEntry, JudgeEntry, ServiceState, list_environments, list_warnings
from tests.service.test_catalogue import Bare, Broken, Toy, opened
from tests.support.tables import read_table

REPORT = read_table(__file__, "judge_report.yaml", JudgeReport)
WELL = ServiceState((EnvironmentEntry("toy", "1", "serving", "", ()),), (), "offline")
WEAK = Isolation(protections=(Protection(against="network", held=False, by="no namespaces"),))
STRONG = Isolation(protections=(Protection(against="network", held=True, by="namespaces"),))


def judged(environments: tuple[str, ...] = ("toy",), name: str = "careful", **report: object) -> ServiceState:
    return replace(WELL, judges=(JudgeEntry(name, "m", environments, REPORT.model_copy(update=report)),))


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (WELL, []),
        (judged(), []),
        (judged(name="offline"), [("offline_judge", "toy")]),
        (judged((), name="offline"), []),
        (judged(health="out"), [("judge", "careful")]),
        (judged(budget_left_usd=2.0), [("budget", "careful")]),
        (judged(budget_left_usd=2.01), []),
        (judged(budget_left_tokens=250), [("budget", "careful")]),
        (judged(budget_left_tokens=251), []),
        (replace(WELL, isolation=WEAK), [("isolation", "programs")]),
        (replace(WELL, isolation=STRONG, free_bytes=2e9), []),
        (replace(WELL, free_bytes=1.9e9), [("disk", "disk")]),
        (
            replace(WELL, environments=(EnvironmentEntry("toy", "1", "unavailable", "no rows", ()),)),
            [("environment", "toy")],
        ),
        (replace(WELL, environments=(EnvironmentEntry("toy", "1", "starting", "reading", ()),)), []),
        (replace(WELL, environments=(EnvironmentEntry("toy", "1", "not_installed", "pip install it", ()),)), []),
    ],
)
def test_what_needs_attention_is_told(state: ServiceState, told: list[tuple[str, str]]) -> None:
    assert [(warning.code, warning.about) for warning in list_warnings(state)] == told


def test_a_package_that_nobody_asked_for_may_be_missing() -> None:
    panels = ConfiguredPanels({}, {})
    listed = [
        {one.name: one.state for one in list_environments(opened(Toy, Bare, Broken, named=named), panels)}
        for named in ((), ("bare",))
    ]
    assert listed == [
        {"bare": "not_installed", "broken": "unavailable", "toy": "serving"},
        {"bare": "unavailable", "broken": "unavailable", "toy": "serving"},
    ]
