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
from app.domain.values import FiniteJson, FiniteNumber, Frozen, Unit
from app.http.compat.one_sample.desk import Reward, RewardDesk
from app.http.compat.one_sample.holding import Asked
from app.http.compat.one_sample.labels import read_label
from app.http.compat.one_sample.options import GATHERING, WAITING, Options
from app.http.compat.one_sample.refusals import RefusingRoute, refusal_responses
from app.http.compat.one_sample.texts import completion_of


class SlimeOptions(Options):
    contract: ClassVar[str] = "slime"

    reply: Annotated[
        Literal["number", "object"], Field(description="`object` has more details; needs `--reward-key reward`.")
    ] = "number"
    gather_seconds: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False, description=GATHERING)] = 40.0
    wait_seconds: Annotated[
        float, Field(gt=0, le=115, allow_inf_nan=False, description=WAITING.format("120 seconds"))
    ] = 105.0


class SlimeSample(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    prompt: str | FiniteJson = ""
    """Text, or messages if the trainer applies no template."""
    response: str
    label: FiniteJson = Field(default=None, examples=[{"task_id": "task_…"}])
    """The task's id, or an object with `task_id`, `group` and `size`, also as JSON text."""


class Explained(Frozen):
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


class _Words:
    def __init__(self, reply: Literal["number", "object"]) -> None:
        self._reply = reply

    def told(self, rewards: Sequence[Reward]) -> bytes:
        (reward,) = rewards
        return str(reward.number).encode() if self._reply == "number" else _explained(reward).model_dump_json().encode()

    def beside_refusal(self, count: int) -> dict[str, JsonValue]:
        return {"reward": None}


def _explained(reward: Reward) -> Explained:
    score, reply = reward.score, reward.reply
    return Explained(
        reward=reward.number,
        score=reward.absolute,
        outcome=score.outcome,
        reason=score.reason,
        criteria={criterion.name: criterion.value for criterion in score.criteria},
        flags=tuple(dict.fromkeys((*score.flags, *reply.flags))),
        rationale=score.rationale,
        group_id=reply.group_id,
    )


def slime_router(desk: RewardDesk) -> APIRouter:
    """`POST /compat/slime/{env}`."""
    router = APIRouter(prefix="/compat/slime", tags=["slime"], route_class=RefusingRoute)

    @router.post(
        "/{env}",
        summary="Reward for slime",
        response_class=Response,
        responses={200: {"model": FiniteNumber | Explained}, **refusal_responses()},
    )
    async def reward(
        env: str, request: Request, sample: SlimeSample, options: Annotated[SlimeOptions, Query()]
    ) -> Response:
        desk.require(env)
        if sample.label is None or sample.label == "":
            raise InvalidRequest("missing label: set --label-key to the column with the task", field="label")
        prompt = sample.prompt if isinstance(sample.prompt, str) else ""
        completion = completion_of(sample.response, prompt, options.eos)
        held = options.sample(env, read_label(sample.label, "label"), completion)
        return await desk.answer(request, [Asked(held, "label")], options, _Words(options.reply))

    return router
