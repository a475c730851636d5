"""Query parameters of reward endpoints. These trainers can be configured only by a URL."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from app.domain.runs import Policy
from app.domain.tasks import Completion
from app.domain.values import Name
from app.http.compat.one_sample.labels import MAX_GROUP, SampleLabel
from app.service.sample_intake import SampleToScore

EndToken = Annotated[str, Field(max_length=100, pattern=r"\S")]


class SampleOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    contract: ClassVar[str]

    run: Annotated[Name | None, Field(description="Run name to store results under.")] = None
    group_size: Annotated[
        int, Field(ge=1, le=MAX_GROUP, description="Answers per prompt. A group is scored when all have arrived.")
    ] = 1
    model: Annotated[str | None, Field(min_length=1, max_length=200, description="Name of the policy.")] = None
    gather_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    wait_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    def build_sample(self, environment: str, label: SampleLabel, completion: Completion) -> SampleToScore:
        """Builds the sample. Samples of an evaluation are groups of one, which are not compared."""
        return SampleToScore(
            environment=environment,
            task_id=label.task_id,
            completion=completion,
            run=self.run,
            key=label.group,
            size=1 if label.purpose == "eval" else label.size or self.group_size,
            policy=None if self.model is None else Policy(model=self.model),
            purpose=label.purpose,
            needs_reward=True,
        )


class RewardOptions(SampleOptions):
    """For trainers that send bare texts."""

    eos: Annotated[
        tuple[EndToken, ...],
        Field(max_length=8, description="End-of-sequence tokens. An answer without one counts as truncated."),
    ] = ()


GATHER_DESCRIPTION = "Seconds to wait for the rest of a group. After that, the answers that have arrived are scored."
WAIT_DESCRIPTION = "Maximum seconds until the response. The trainer's own timeout is {}."
