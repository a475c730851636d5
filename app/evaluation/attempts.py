"""The data of an evaluation: its setup, and every attempt at every task."""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name, Split, Unit, WholeNumber

Count = Annotated[WholeNumber, Field(ge=0)]
Price = Annotated[FiniteNumber, Field(ge=0)]


class SamplingSettings(Frozen):
    """Sampling parameters for the model's server; null is the server's default."""

    temperature: FiniteNumber | None = None
    top_p: FiniteNumber | None = None
    max_tokens: Count | None = None
    extra: dict[str, FiniteJson] = {}
    """Other fields that were sent with each request."""


class Attempt(Frozen):
    """One completion for one task."""

    task_id: str
    place: Count
    """The task's cursor position in the split."""
    sample: Count
    """Which of the task's attempts, from 0."""
    outcome: Literal["scored", "unscored"]
    reason: str | None = None
    """Why it is unscored: the gateway's reason, or `policy_failed` if the model's server gave no answer."""
    reward: Unit | None = None
    """gate x absolute, limited by the rubric's caps: the gateway's reward with `purpose: eval`. Comparable across
    groups; never relative to a group."""
    calibrated: FiniteNumber | None = None
    """Where its group was drawn for that: quality on the scale of replies of known level."""
    calibrated_error: FiniteNumber | None = None
    """Its standard error."""
    criteria: dict[str, Unit | None] = {}
    """Null if a criterion did not apply."""
    label: str | None = None
    """The value that tables are broken down by, from the task's metadata, such as a character."""
    flags: tuple[str, ...] = ()
    rationale: str = ""
    judges: tuple[str, ...] = ()
    scoring_digest: str = ""
    group_id: str | None = None
    """The stored group with all details; null if nothing was sent for scoring."""
    prompt: str = ""
    """The end of the prompt, possibly shortened."""
    text: str = ""
    """The answer, possibly shortened. Untrusted text."""
    characters: Count = 0
    """The length of the whole answer."""
    turns: Count = 1
    """Number of the model's answers in this attempt."""
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    """Both are totals over all turns, as counted by the model's server."""
    finish_reason: str | None = None
    seconds: FiniteNumber | None = None
    """The model's time over all turns."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.outcome == "scored") != (self.reward is not None):
            raise ValueError("an attempt has a reward exactly when it is scored")
        if (self.outcome == "unscored") != (self.reason is not None):
            raise ValueError("an attempt has a reason exactly when it is unscored")
        return self


class EvaluationSetup(Frozen):
    """All settings of an evaluation, fixed before the first attempt."""

    environment: str
    version: str
    split: Split = "test"
    params: dict[str, FiniteJson] = {}
    first: Count = 0
    """Cursor position of the first task."""
    tasks: Annotated[Count, Field(ge=1)]
    """Number of requested tasks."""
    samples: Annotated[Count, Field(ge=1)]
    """Attempts at each task."""
    threshold: Unit = 1.0
    """The lowest reward that counts as passed."""
    seed: Count = 0
    """Seed for sampling, if the model's server accepts one, and for bootstrap and tests."""
    model: str
    step: Count | None = None
    """The policy's training step, stored with the groups."""
    sampling: SamplingSettings = SamplingSettings()
    run: Name
    """Run name that the groups are stored under."""
    label: str | None = None
    """The metadata key of `Attempt.label`."""
    criteria: tuple[str, ...] = ()
    """In the order of the environment's rubric; other criteria follow."""
    offline_judges: tuple[str, ...] = ()
    """Judges that are only for trying the system."""
    gateway: str = ""
    """The gateway's version."""
    gateway_url: Annotated[str, Field(pattern=r"^(https?://[^\s\"'<>]+)?$")] = ""
    """Where the gateway's pages are; empty if nobody said."""
    input_price: Price | None = None
    output_price: Price | None = None
    """US dollars per million tokens of the model."""
    started_at: AwareDatetime

    @property
    def checkpoint(self) -> str:
        """The model with its step, if it has one."""
        return self.model if self.step is None else f"{self.model}, step {self.step}"


class Evaluation(Frozen):
    setup: EvaluationSetup
    attempts: tuple[Attempt, ...]
    judging_usd: Price | None = None
    """The judges' cost, if known."""
    finished_at: AwareDatetime | None = None
    """Null while attempts are missing."""
