"""slime's remote reward: one sample; the response is a number, or an object for `--reward-key`.

POST /compat/slime/{env}?run=first&group_size=8
{"prompt": "<|im_start|>user…", "response": "4<|im_end|>", "label": {"task_id": "task_…"}}
1.0
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.errors import InvalidRequest
from app.domain.scores import Outcome, Reason
from app.domain.values import FiniteJson, FiniteNumber, Frozen, ModelWords, Unit
from app.http.compat.one_sample import (
    GATHER_DESCRIPTION,
    WAIT_DESCRIPTION,
    RefusingRoute,
    RewardOptions,
    RewardService,
    SampleReward,
    build_completion,
    document_refusals,
    list_flags,
    read_label,
)
from app.http.web.api_keys import needs


class SlimeOptions(RewardOptions):
    contract: ClassVar[str] = "slime"

    reply: Annotated[
        Literal["number", "object"], Field(description="`object` has more details; needs `--reward-key reward`.")
    ] = "number"
    gather_seconds: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False, description=GATHER_DESCRIPTION)] = 40.0
    wait_seconds: Annotated[
        float, Field(gt=0, le=115, allow_inf_nan=False, description=WAIT_DESCRIPTION.format("120 seconds"))
    ] = 105.0


class SlimeSample(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    prompt: str | FiniteJson = ""
    """Text, or messages if the trainer applies no template."""
    response: Annotated[str, ModelWords()]
    label: FiniteJson = Field(default=None, examples=[{"task_id": "task_…"}])
    """The task's id, or an object with `task_id`, `group` and `size`, also as JSON text."""


class ExplainedReward(Frozen):
    """A reward with its details."""

    reward: FiniteNumber
    score: FiniteNumber
    """gate x absolute, comparable across groups."""
    outcome: Outcome
    reason: Reason | None
    criteria: dict[str, Unit | None]
    flags: tuple[str, ...]
    """Flags of the answer and of its group."""
    rationale: str
    group_id: str


class _SlimeFormat:
    def __init__(self, reply: Literal["number", "object"]) -> None:
        self._reply = reply

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes:
        (reward,) = rewards
        return (
            str(reward.number).encode()
            if self._reply == "number"
            else _explain_reward(reward).model_dump_json().encode()
        )

    def format_refusal(self, count: int) -> dict[str, JsonValue]:
        return {"reward": None}


def _explain_reward(reward: SampleReward) -> ExplainedReward:
    score, reply = reward.score, reward.reply
    return ExplainedReward(
        reward=reward.number,
        score=reward.gated_absolute,
        outcome="unscored" if reward.is_unscored else score.outcome,
        reason=score.reason,
        criteria={criterion.name: criterion.value for criterion in score.criteria},
        flags=list_flags(reply),
        rationale=score.rationale,
        group_id=reply.group_id,
    )


def create_slime_router(reward_service: RewardService) -> APIRouter:
    """`POST /compat/slime/{env}`."""
    router = APIRouter(prefix="/compat/slime", tags=["slime"], route_class=RefusingRoute)

    @router.post(
        "/{env}",
        summary="Reward for slime",
        response_class=Response,
        responses={200: {"model": FiniteNumber | ExplainedReward}, **document_refusals()},
    )
    @needs("train", "handler")
    async def reward(
        env: str, request: Request, sample: SlimeSample, options: Annotated[SlimeOptions, Query()]
    ) -> Response:
        reward_service.require_environment(env)
        if sample.label is None or sample.label == "":
            raise InvalidRequest("missing label: set --label-key to the column with the task", field="label")
        prompt = sample.prompt if isinstance(sample.prompt, str) else ""
        completion = build_completion(sample.response, prompt, options.eos)
        held = options.build_sample(env, read_label(sample.label, "label"), completion, "label")
        return await reward_service.answer(request, [held], options, _SlimeFormat(options.reply))

    return router
