"""What came of the checks: findings that say how to mend what they found, and figures."""

from app.domain.values import FiniteNumber, Frozen


class Finding(Frozen):
    """One thing that is not as it must be."""

    task: str
    """Which one, as `train 3`; empty where it is no single task's matter."""
    expected: str
    came: str
    mend: str
    """What to do about it, most likely."""


class Checked(Frozen):
    """One check over one environment. `applied` is false where the environment has nothing that it looks at."""

    name: str
    asks: str
    applied: bool
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.findings


class Spread(Frozen):
    least: int
    median: int
    most: int


class Figures(Frozen):
    """Measured, not judged. Rates are per second of processor time of one core, of this process alone: what workers and
    programs take is only in `score_p99_ms_by_the_clock`."""

    tasks_per_second: FiniteNumber
    gold_scores_per_second: FiniteNumber | None
    """None where no right answer is known."""
    junk_scores_per_second: FiniteNumber
    score_p99_ms: FiniteNumber
    """Processor time of scoring one completion, 99 of 100 times less."""
    score_p99_ms_by_the_clock: FiniteNumber
    train_size: int | None
    """None for endless."""
    test_size: int | None
    looked_at: int
    """Tasks of the training split that the next figures are of."""
    distinct_prompts: int
    prompt_characters: Spread
    prompt_tokens: Spread
    """An estimate, without a tokenizer."""
    commonest_gold: FiniteNumber | None
    """The share of tasks with the most frequent right answer: what a constant reply earns at least."""
    strangers_paid: FiniteNumber | None
    """The share of tasks that are met by another's right answer; None where judges score."""
    chance: FiniteNumber
    """What the environment says that share is at most."""


class Report(Frozen):
    environment: str
    version: str
    source: str
    """The class, as `module.Name`."""
    passed: bool
    checks: tuple[Checked, ...]
    figures: Figures | None
    """None where the environment broke while it was measured, which is no pass."""
