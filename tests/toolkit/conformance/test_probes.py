"""What is sent beside a right reply; and what of it is left out, since it says what a right one says."""

import pytest

from app.domain.values import Frozen
from app.toolkit.conformance.probes import HONEST, STRATEGIES, ProbedRow, build_probes
from tests.support.tables import read_table


class ProbedCase(Frozen):
    row: ProbedRow
    sent: dict[str, dict[str, str]]


CASES = read_table(__file__, "probes.yaml", dict[str, ProbedCase])


@pytest.mark.parametrize("name", CASES)
def test_probes_follow_from_the_kind_of_value(name: str) -> None:
    case = CASES[name]
    sent: dict[str, dict[str, str]] = {}
    for probe in build_probes(case.row, seed=0):
        sent.setdefault(probe.strategy, {})[probe.kind] = probe.text
    assert {strategy: sent.get(strategy, {}) for strategy in case.sent} == case.sent


@pytest.mark.parametrize("name", CASES)
def test_each_text_is_sent_once_and_no_right_one_as_a_wrong_one(name: str) -> None:
    probes = [*build_probes(CASES[name].row, seed=0)]
    texts = [probe.text for probe in probes]
    assert (len(set(texts)), CASES[name].row.right in texts) == (len(texts), False)
    assert {(probe.expected == "full", probe.strategy in HONEST) for probe in probes} == {(True, True), (False, False)}


def test_wrong_values_that_are_right_are_not_sent() -> None:
    """`7.0`, `+7` and `14/2` are 7."""
    row = ProbedRow("Which?\nB. four", "<answer>B</answer>", "B", "<answer>{answer}</answer>", ("b ", "B. four"))
    wrong = [probe.text for probe in build_probes(row, seed=0) if probe.strategy == "foreign_value"]
    number = ProbedRow("How many?", "7", "7", "{answer}", ("7.0", "+7", "14/2"))
    assert (wrong, [probe.text for probe in build_probes(number, 0) if probe.strategy == "foreign_value"]) == (
        ["I am quite certain that the answer is B. four."],
        [],
    )


def test_every_strategy_is_sent_for_some_value() -> None:
    assert {probe.strategy for case in CASES.values() for probe in build_probes(case.row, 0)} == set(STRATEGIES)
