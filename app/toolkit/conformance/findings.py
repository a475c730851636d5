"""Results of conformance checks: findings with suggested fixes, and measurements."""

from app.domain.values import FiniteNumber, Frozen, Unit


class ConformanceFinding(Frozen):
    """A violation found by a check."""

    task: str
    """The task, such as `train 3`; empty if no single task is affected."""
    expected: str
    came: str
    mend: str
    """The most likely fix."""


class CheckResult(Frozen):
    """Result of one check. `applied` is false where the check does not apply."""

    name: str
    asks: str
    applied: bool
    findings: tuple[ConformanceFinding, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.findings


class Spread(Frozen):
    least: int
    median: int
    most: int


class StrategyFigure(Frozen):
    """What a strategy earns on tasks that it has not learnt from."""

    strategy: str
    variant: str
    """The one of its variants that earned most on the tasks that it has learnt from."""
    group: str
    """`all`, a level, or a value of the environment's `stats_label`."""
    tasks: int
    paid: Unit
    """Mean reward."""
    low: Unit
    """Wilson's interval of 99 %, with `high`: there are dozens of figures."""
    high: Unit
    allowed: Unit
    """What the environment states."""


class ConformanceFigures(Frozen):
    """Measurements. Rates are per second of processor time of this process on one core; time in workers and programs
    counts only in `score_p99_ms_by_the_clock`."""

    tasks_per_second: FiniteNumber
    gold_scores_per_second: FiniteNumber | None
    """None if no right answer is known."""
    junk_scores_per_second: FiniteNumber
    score_p99_ms: FiniteNumber
    """Processor time of scoring one completion, 99th percentile."""
    score_p99_ms_by_the_clock: FiniteNumber
    train_size: int | None
    """None for endless."""
    test_size: int | None
    looked_at: int
    """Number of training tasks behind the next figures."""
    distinct_prompts: int
    prompt_characters: Spread
    prompt_tokens: Spread
    """An estimate, without a tokenizer."""
    commonest_gold: FiniteNumber | None
    """Share of tasks with the most frequent right answer, which a constant reply would earn."""
    strangers_paid: FiniteNumber | None
    """Share of tasks solved by another task's right answer; None for judged environments."""
    chance: FiniteNumber
    """The declared maximum of that share."""
    strategies: tuple[StrategyFigure, ...]
    """Empty for judged environments."""


class ConformanceReport(Frozen):
    environment: str
    version: str
    source: str
    """The class, as `module.Name`."""
    passed: bool
    checks: tuple[CheckResult, ...]
    figures: ConformanceFigures | None
    """None if the environment raised during measurement, which counts as failed."""
