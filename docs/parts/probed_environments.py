"""What environments paid and refused of the probes, as `python -m docs.probe_environments` has kept it."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.values import Frozen, Proportion
from app.toolkit.conformance.probes import HONEST, STRATEGIES
from app.toolkit.templates import read_packaged_data
from docs.markdown import code, table
from docs.parts.environments import environments

DATA: Final = Path(__file__).with_name("probes.yaml")


class ProbedEnvironment(Frozen):
    version: str
    judged: bool = False
    """Judged environments are probed by `judges check`."""
    tasks: int = 0
    groups: tuple[str, ...] = ()
    """Levels, splits and data sets that the tasks are of."""
    paid: Mapping[str, tuple[int, int]] = {}
    """By strategy: texts paid, and texts sent."""
    not_measured: tuple[str, ...] = ()
    """Strategies whose texts are right here, as the environment states."""
    refused: Mapping[str, tuple[int, int]] = {}
    """By kind of spelling: right answers refused, and sent. Kinds of which none was refused are left out."""
    right: int = 0
    """All right answers sent."""


@cache
def read_probed() -> Mapping[str, ProbedEnvironment]:
    return read_packaged_data(DATA, TypeAdapter(dict[str, ProbedEnvironment])) if DATA.is_file() else {}


def probes() -> str:
    return table(("probe", "sends"), [(code(name), sends) for name, sends in STRATEGIES.items()])


def paid_probes() -> str:
    names = [name for name in STRATEGIES if name not in HONEST and name != "foreign_value"]
    rows = [
        (code(environment), *(_word_paid(one, name) for name in names))
        for environment, one in read_probed().items()
        if not one.judged
    ]
    return table(("environment", *map(code, names)), rows)


def _word_paid(one: ProbedEnvironment, strategy: str) -> str:
    if strategy in one.not_measured:
        return "right here"
    return _word_share(*one.paid[strategy]) if strategy in one.paid else "none to send"


def _word_share(hits: int, trials: int) -> str:
    interval = Proportion(hits, trials).interval
    if interval is None:
        return ""
    low, high = interval
    return f"{hits:,} of {trials:,} ({low:.1%} to {high:.1%})" if hits else f"0 of {trials:,} (to {high:.1%})"


def refused_spellings() -> str:
    rows = [
        (code(name), f"{one.tasks:,}", ", ".join(one.groups), _word_share(*count_refused(name, one)))
        for name, one in read_probed().items()
        if not one.judged
    ]
    return table(("environment", "tasks", "of", "right replies refused"), rows)


def count_refused(name: str, one: ProbedEnvironment) -> tuple[int, int]:
    """Right replies refused and sent, without the spellings that the environment refuses on purpose."""
    argued = {kind for kind in one.refused if _find_reason(name, kind)}
    refused = sum(count for kind, (count, _) in one.refused.items() if kind not in argued)
    return refused, one.right - sum(one.refused[kind][1] for kind in argued)


def argued_refusals() -> str:
    rows = [
        (code(name), ", ".join(map(code, stated.kinds)), stated.because)
        for name, environment in environments().items()
        for stated in environment.refused_spellings
    ]
    return table(("environment", "refused", "why"), rows)


def _find_reason(name: str, kind: str) -> str:
    for stated in environments()[name].refused_spellings:
        if kind in stated.kinds or kind.partition(":")[0] in stated.kinds:
            return stated.because
    return ""
