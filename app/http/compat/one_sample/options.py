"""What the address of a reward endpoint says, since an address is all that these trainers can be given."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from app.domain.runs import Policy
from app.domain.tasks import Completion
from app.domain.values import Name
from app.http.compat.one_sample.labels import MAX_GROUP, Label
from app.service.parts import Sample

End = Annotated[str, Field(max_length=100, pattern=r"\S")]


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    contract: ClassVar[str]

    run: Annotated[Name | None, Field(description="Your job's name, under which everything is kept.")] = None
    group_size: Annotated[
        int, Field(ge=1, le=MAX_GROUP, description="Answers to one prompt; they are compared once all are here.")
    ] = 1
    eos: Annotated[
        tuple[End, ...],
        Field(max_length=8, description="Tokens that end the policy's answers; one without any was cut off."),
    ] = ()
    model: Annotated[str | None, Field(min_length=1, max_length=200, description="The policy's name.")] = None
    gather_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    wait_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    def sample(self, environment: str, label: Label, completion: Completion) -> Sample:
        """An evaluation's stands by itself: nothing is compared."""
        return Sample(
            environment=environment,
            task_id=label.task_id,
            completion=completion,
            run=self.run,
            key=label.group,
            size=1 if label.purpose == "eval" else label.size or self.group_size,
            policy=None if self.model is None else Policy(model=self.model),
            purpose=label.purpose,
        )


GATHERING = "How long a group waits for its last answers; then those are compared that came."
WAITING = "The answer comes after so many seconds at the latest; the trainer itself waits for {}."
