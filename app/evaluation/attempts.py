"""What an evaluation consists of: how it was set up, and every attempt at every task."""

from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from app.domain.values import FiniteJson, FiniteNumber, Frozen, Name, Split, Unit, WholeNumber

Count = Annotated[WholeNumber, Field(ge=0)]
Price = Annotated[FiniteNumber, Field(ge=0)]


class Sampling(Frozen):
    """What the model's server was asked for; null is what it does by itself."""

    temperature: FiniteNumber | None = None
    top_p: FiniteNumber | None = None
    max_tokens: Count | None = None
    extra: dict[str, FiniteJson] = {}
    """Whatever else was sent with each request."""


class Attempt(Frozen):
    """One completion for one task."""

    task_id: str
    place: Count
    """The task's cursor position in the split."""
    sample: Count
    """Which of the task's attempts, from 0."""
    outcome: Literal["scored", "unscored"]
    reason: str | None = None
    """Why it is unscored: the gateway's reason, or `policy_failed` when the model's server gave no answer."""
    reward: Unit | None = None
    """gate x absolute as far as the rubric's caps allow: what the gateway pays with `purpose: eval`, comparable across
    groups. Never the standing within a group."""
    criteria: dict[str, Unit | None] = {}
    """Null where a criterion did not apply."""
    label: str | None = None
    """What tables break down by: the value of the environment's label in the task's metadata, such as a character."""
    flags: tuple[str, ...] = ()
    rationale: str = ""
    judges: tuple[str, ...] = ()
    scoring_digest: str = ""
    group_id: str | None = None
    """Of the stored group that has all the rest; null where nothing was sent for scoring."""
    prompt: str = ""
    """The end of what was asked, possibly shortened."""
    text: str = ""
    """The answer, possibly shortened. A stranger wrote it."""
    characters: Count = 0
    """The length of the whole answer."""
    turns: Count = 1
    """Answers of the model in this attempt."""
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    """Both over all turns, as the model's server counted them."""
    finish_reason: str | None = None
    seconds: FiniteNumber | None = None
    """How long the model took, over all turns."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.outcome == "scored") != (self.reward is not None):
            raise ValueError("an attempt has a reward exactly when it is scored")
        if (self.outcome == "unscored") != (self.reason is not None):
            raise ValueError("an attempt has a reason exactly when it is unscored")
        return self


class EvaluationSetup(Frozen):
    """Everything that was decided before the first attempt."""

    environment: str
    version: str
    split: Split = "test"
    params: dict[str, FiniteJson] = {}
    first: Count = 0
    """Cursor position of the first task."""
    tasks: Annotated[Count, Field(ge=1)]
    """How many were asked for."""
    samples: Annotated[Count, Field(ge=1)]
    """Attempts at each task."""
    threshold: Unit = 1.0
    """The least reward that counts as passed."""
    seed: Count = 0
    """Of the sampling, where the model's server takes one, and of the resampling behind intervals and tests."""
    model: str
    step: Count | None = None
    """The policy's training step, as groups are stored under."""
    sampling: Sampling = Sampling()
    run: Name
    """Under which the gateway stored the groups."""
    label: str | None = None
    """The metadata key that `Attempt.label` is the value of."""
    criteria: tuple[str, ...] = ()
    """In the order of the environment's rubric; others that turn up follow."""
    offline_judges: tuple[str, ...] = ()
    """Judges among those that score here that are not meant for more than trying the system."""
    gateway: str = ""
    """Its version."""
    input_price: Price | None = None
    output_price: Price | None = None
    """US dollars for a million tokens of the model."""
    started_at: AwareDatetime


class Evaluation(Frozen):
    setup: EvaluationSetup
    attempts: tuple[Attempt, ...]
    judging_usd: Price | None = None
    """What the judges took, where that is known."""
    finished_at: AwareDatetime | None = None
    """Null while attempts are missing."""
