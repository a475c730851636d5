"""OpenRLHF's remote reward: prompt and answer as one text, with a label that names the task.

POST /compat/openrlhf/{env}/get_reward?run=first&group_size=8
{"query": ["<|user|>2 + 2?<|assistant|>4</s>"], "prompts": ["<|user|>2 + 2?<|assistant|>"], "labels": ["task_…"]}
{"rewards": [1.0], "scores": [1.0], "extra_logs": {"absolute": [1.0], "gate": [1.0], …}}
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.domain.errors import InvalidRequest
from app.domain.values import FiniteJson, FiniteNumber, Frozen, ModelWords
from app.http.compat.one_sample import (
    GATHER_DESCRIPTION,
    WAIT_DESCRIPTION,
    RefusingRoute,
    RewardOptions,
    RewardService,
    SampleReward,
    build_completion,
    document_refusals,
    extract_response,
    name_criterion,
    read_label,
)
from app.http.web.api_keys import needs
from app.service.pending_groups import SampleToScore


class OpenRlhfOptions(RewardOptions):
    contract: ClassVar[str] = "openrlhf"

    gather_seconds: Annotated[float, Field(ge=0, le=150, allow_inf_nan=False, description=GATHER_DESCRIPTION)] = 60.0
    wait_seconds: Annotated[
        float, Field(gt=0, le=175, allow_inf_nan=False, description=WAIT_DESCRIPTION.format("180 seconds"))
    ] = 165.0


Texts = Annotated[list[str], Field(max_length=1024)]


class Queries(BaseModel):
    """Lists of equal length, or single values."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    query: Annotated[Texts | str, ModelWords()]
    prompts: Texts | str
    labels: FiniteJson = Field(default="", examples=[["task_…"]])
    """For each sample the task's id, or an object with `task_id`, `group` and `size`, also as JSON text."""


class Rewards(Frozen):
    """Lists or single values, as in the request."""

    rewards: tuple[FiniteNumber, ...] | FiniteNumber
    scores: tuple[FiniteNumber, ...] | FiniteNumber
    """gate x absolute, comparable across groups."""
    extra_logs: dict[str, tuple[FiniteNumber, ...] | FiniteNumber]
    """The same names in every response of an environment, because the trainer fails if one is missing."""


class _OpenRlhfFormat:
    def __init__(self, criteria: Sequence[str], single: bool) -> None:
        self._criteria = criteria
        self._single = single

    def format_rewards(self, rewards: Sequence[SampleReward]) -> bytes:
        logs = [_build_logs(reward, self._criteria) for reward in rewards]
        if self._single:
            (only,) = rewards
            answer = Rewards(rewards=only.number, scores=only.gated_absolute, extra_logs=logs[0])
        else:
            answer = Rewards(
                rewards=tuple(one.number for one in rewards),
                scores=tuple(one.gated_absolute for one in rewards),
                extra_logs={name: tuple(one[name] for one in logs) for name in logs[0]} if logs else {},
            )
        return answer.model_dump_json().encode()

    def format_refusal(self, count: int) -> dict[str, JsonValue]:
        nothing: JsonValue = None if self._single else [None] * count
        return {"rewards": nothing, "scores": nothing, "extra_logs": {}}


def _build_logs(reward: SampleReward, criteria: Sequence[str]) -> dict[str, float]:
    """Criteria without a value are 0, because a missing name would stop the training."""
    score = reward.score
    values = {criterion.name: criterion.value or 0.0 for criterion in score.criteria}
    return {
        "absolute": reward.gated_absolute,
        "gate": 1.0 if score.gate is None else score.gate,
        "flags": float(len(score.flags)),
        "unscored": float(reward.is_unscored),
        **{name_criterion(name): values.get(name, 0.0) for name in criteria},
    }


def create_openrlhf_router(reward_service: RewardService) -> APIRouter:
    """`POST /compat/openrlhf/{env}` and `POST /compat/openrlhf/{env}/get_reward`, the path of OpenRLHF's own server."""
    router = APIRouter(prefix="/compat/openrlhf", tags=["openrlhf"], route_class=RefusingRoute)

    @needs("train", "handler")
    async def get_reward(
        env: str, request: Request, queries: Queries, options: Annotated[OpenRlhfOptions, Query()]
    ) -> Response:
        reward_service.require_environment(env)
        reply_format = _OpenRlhfFormat(
            await reward_service.list_criteria(env, options.run), single=isinstance(queries.query, str)
        )
        return await reward_service.answer(request, _build_samples(env, queries, options), options, reply_format)

    responses: dict[int | str, dict[str, object]] = {200: {"model": Rewards}, **document_refusals()}
    for path, shown in (("/{env}/get_reward", True), ("/{env}", False)):
        router.add_api_route(
            path,
            get_reward,
            methods=["POST"],
            summary="Rewards for OpenRLHF",
            response_class=Response,
            responses=responses,
            include_in_schema=shown,
        )
    return router


def _build_samples(environment: str, queries: Queries, options: OpenRlhfOptions) -> list[SampleToScore]:
    texts, prompts = _to_list(queries.query), _to_list(queries.prompts)
    labels = queries.labels if isinstance(queries.query, list) else [queries.labels]
    if not isinstance(labels, list) or not len(texts) == len(prompts) == len(labels):
        raise InvalidRequest("query, prompts and labels must be lists of the same length", field="labels")
    samples = []
    for index, (text, prompt, label) in enumerate(zip(texts, prompts, labels, strict=True)):
        if label is None or label == "":
            raise InvalidRequest(
                "missing label: set --data.label_key to the column with the task", field=f"labels[{index}]"
            )
        response = extract_response(text, prompt, f"query[{index}]")
        completion = build_completion(response, prompt, options.eos)
        field = f"labels[{index}]"
        samples.append(options.build_sample(environment, read_label(label, field), completion, field))
    return samples


def _to_list(texts: list[str] | str) -> list[str]:
    return [texts] if isinstance(texts, str) else texts
