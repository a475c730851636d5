"""Reward models behind servers: one number for a conversation, and what becomes of the numbers of a group.

The routes by which servers give that number:

    vllm_classify    POST /classify      messages or text    raw, as `use_activation` is false
    vllm_pooling     POST /pooling       messages or text    as the model's pooler gives it
    sglang_classify  POST /classify      text                raw
    tei_predict      POST /predict       text                raw, as `raw_scores` is true
    openrlhf         POST /get_reward    text                raw, or normalised by the server

A reward model sees the conversation and one reply: no rubric, no sheet, no other reply. The sigmoid of its number is
the absolute score. A standing is the share of a normal distribution below the number, by the group's mean and
deviation, so that neither a shift nor a scale of the numbers changes it.
"""

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from pydantic import JsonValue

from app.domain.judging import REWARD_CRITERION, Candidate, JudgeRequest, Rubric, RubricCriterion, Verdict
from app.domain.making import NEUTRAL
from app.domain.tasks import Message
from app.domain.values import digest, digest_of_text
from app.inference.tokens import ChatTemplate
from app.judges.aggregation import (
    CandidateGroup,
    GroupResult,
    GroupSample,
    JudgeView,
    UsableJudgement,
    build_failed_result,
    build_result,
)
from app.judges.chat_judge import ChatJudge
from app.judges.configuration import CallFailed, ChatJudgeConfig, Deadline, ReadingCost, ReadingFailed, TokenUsage
from app.judges.gate_wordings import replace_surrogates
from app.judges.judge_client import ChatResponse, PromptMessage, ServerCall
from app.judges.modes import Question, ask_questions, list_judgements
from app.judges.prompts import JudgePrompt, JudgeQuestion
from app.judges.verdicts import JudgeAnswer
from app.ports.judges import Judge, JudgeCache
from app.toolkit.thoughts import strip_leading_thoughts

# Routes: what is sent, and where the number is in what comes back.

RewardRouteName = Literal["vllm_classify", "vllm_pooling", "sglang_classify", "tei_predict", "openrlhf"]


@dataclass(frozen=True)
class _RewardQuestion:
    """A conversation that ends with the reply. `text` is None where the server applies the chat template; else it is
    the conversation as the model reads it, and `opening` the part before the reply."""

    model: str
    messages: tuple[Mapping[str, JsonValue], ...]
    text: str | None = None
    opening: str = ""


@dataclass(frozen=True)
class RewardRoute:
    path: str
    build_body: Callable[[_RewardQuestion], dict[str, JsonValue]]
    find_reward: Callable[[object], object]
    """Where the number is in the answer. KeyError, IndexError or TypeError for another form."""


def _parse_reward(route: RewardRoute, body: bytes) -> ChatResponse:
    """The number as text. CallFailed when there is not exactly one finite number."""
    try:
        value: object = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise CallFailed("the reward model's server sent something that is not JSON", status=200) from None
    try:
        reward = _unwrap(route.find_reward(value))
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error, struct.error) as error:
        words = f": {error}" if isinstance(error, ValueError) and not isinstance(error, binascii.Error) else ""
        raise CallFailed(f"the reward model's server sent an answer of another form{words}", status=200) from None
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise CallFailed("the reward model's server sent something that is no number", status=200)
    return ChatResponse(
        text=repr(float(reward)), cut_off=False, refused=False, usage=TokenUsage(_count_tokens(value), 0)
    )


def _unwrap(value: object) -> object:
    """The one number in nested lists. ValueError when there are several."""
    while isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"{len(value)} values, and a reward model gives one")
        value = value[0]
    return value


def _count_tokens(value: object) -> int | None:
    usage = value.get("usage") if isinstance(value, dict) else None
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def _get(value: object, *path: str | int) -> object:
    for step in path:
        value = value[step]  # type: ignore[index]
    return value


def _build_vllm_body(question: _RewardQuestion) -> dict[str, JsonValue]:
    if question.text is None:
        return {"model": question.model, "messages": [dict(message) for message in question.messages]}
    return {"model": question.model, "input": question.text}


def _build_classify_body(question: _RewardQuestion) -> dict[str, JsonValue]:
    return {**_build_vllm_body(question), "use_activation": False}


def _find_pooled(value: object) -> object:
    """A list, a list of lists, or 32-bit numbers as base64 text."""
    data = _get(_require_one(_get(value, "data")), "data")
    if isinstance(data, str):
        packed = base64.b64decode(data, validate=True)
        return list(struct.unpack(f"<{len(packed) // 4}f", packed))
    return data


def _require_one(value: object) -> object:
    """ValueError unless there is one answer to the one conversation."""
    if not isinstance(value, list) or len(value) != 1:
        raise ValueError("not one answer to one conversation")
    return value[0]


def _find_embedding(value: object) -> object:
    return _get(_require_one(value) if isinstance(value, list) else value, "embedding")


def _find_score(value: object) -> object:
    """TEI has one entry for each class."""
    entry = _require_one(value)
    return _get(_require_one(entry) if isinstance(entry, list) else entry, "score")


def _build_openrlhf_body(question: _RewardQuestion) -> dict[str, JsonValue]:
    return {"query": [question.text], "prompts": [question.opening], "labels": [""]}


_ROUTES: Final[Mapping[RewardRouteName, RewardRoute]] = {
    "vllm_classify": RewardRoute(
        "/classify", _build_classify_body, lambda value: _get(_require_one(_get(value, "data")), "probs")
    ),
    "vllm_pooling": RewardRoute("/pooling", _build_vllm_body, _find_pooled),
    "sglang_classify": RewardRoute("/classify", lambda question: {"text": question.text}, _find_embedding),
    "tei_predict": RewardRoute("/predict", lambda question: {"inputs": question.text, "raw_scores": True}, _find_score),
    "openrlhf": RewardRoute("/get_reward", _build_openrlhf_body, lambda value: _get(value, "rewards")),
}


# The judge.

VERSION: Final = 1
"""Increase this when the same answers of a server would give other verdicts, or other questions are asked."""

REWARD_RUBRIC: Final = Rubric(
    name=REWARD_CRITERION,
    version="1",
    instructions="",
    criteria=(RubricCriterion(name=REWARD_CRITERION, weight=1.0, description="", anchors={}),),
)
"""Of a panel of reward models alone, which read no rubric."""


@dataclass(frozen=True)
class RewardModelConfig:
    server: ChatJudgeConfig
    """The server, its limits, prices and budget. `base_url` excludes the route."""
    route: RewardRouteName
    template: ChatTemplate | None = None
    """None: the server applies the chat template."""
    center: float = 0.0
    """The reward that is worth 0.5."""
    scale: float = 1.0
    """The difference in reward at which one reply is preferred to another in 73 % of all cases."""


class RewardModelJudge(ChatJudge):
    """Asked like a chat judge, under the same limits, but for a number. It sees the conversation and the reply alone:
    no rubric, no sheet, no other reply."""

    def __init__(self, config: RewardModelConfig, memory: JudgeCache | None = None) -> None:
        super().__init__(config.server, memory)
        self._reward = config
        self._route = _ROUTES[config.route]
        self.digest = digest(
            {
                "model": config.server.model,
                "route": config.route,
                "template": None if config.template is None else config.template.digest,
                "center": config.center,
                "scale": config.scale,
                "version": VERSION,
            }
        )

    @property
    def repeats_itself(self) -> bool:
        return True

    @property
    def gives_rewards(self) -> bool:
        return True

    def build_question(self, request: JudgeRequest) -> JudgeQuestion:
        """`prompt_text` has the messages of every candidate."""
        listed = [_list_messages(request, candidate) for candidate in request.candidates]
        prompt_text = json.dumps(listed, ensure_ascii=False)
        prompt_digest = digest_of_text(f"{self.digest} {prompt_text}")
        reading = digest([self.name, self._config.base_url, "reward", prompt_digest])
        return JudgeQuestion(request, JudgePrompt(system="", user=""), prompt_text, prompt_digest, reading)

    async def _ask_with_correction(
        self, request: JudgeRequest, messages: list[PromptMessage], deadline: Deadline, spent: ReadingCost
    ) -> JudgeAnswer:
        if not request.conversation:
            words = "this environment gives no conversation, and a reward model reads nothing else"
            raise ReadingFailed(words, "unusable")
        rewards: dict[str, float] = {}
        for candidate in request.candidates:
            call = self._build_call(request, candidate)
            rewards[candidate.id] = float((await self._client.ask_route(call, deadline, spent)).text)
        spent.raw = json.dumps(rewards)
        return JudgeAnswer(
            verdicts=tuple(self._build_verdict(name, reward) for name, reward in rewards.items()),
            ranking=tuple(
                tuple(name for name, reward in rewards.items() if reward == tier)
                for tier in sorted(set(rewards.values()), reverse=True)
            ),
        )

    def _build_call(self, request: JudgeRequest, candidate: Candidate) -> ServerCall:
        question = self._build_reward_question(request, candidate)
        texts = [str(message.get("content")) for message in question.messages]
        return ServerCall(
            self._route.path,
            self._route.build_body(question),
            texts if question.text is None else [question.text],
            partial(_parse_reward, self._route),
        )

    def _build_reward_question(self, request: JudgeRequest, candidate: Candidate) -> _RewardQuestion:
        """ReadingFailed when the template rejects the conversation."""
        messages = _list_messages(request, candidate)
        model, template = self.model, self._reward.template
        if template is None:
            return _RewardQuestion(model, tuple(messages))
        try:
            text = template.render_messages(messages, opened=False)
            opening = template.render_messages(messages[: len(request.conversation)], opened=True)
        except ValueError as error:
            raise ReadingFailed(str(error), "unusable") from None
        return _RewardQuestion(model, tuple(messages), text, opening)

    def _build_verdict(self, candidate: str, reward: float) -> Verdict:
        """The absolute score is the chance to be preferred to a reply of the central reward, by Bradley and Terry."""
        distance = (reward - self._reward.center) / self._reward.scale
        return Verdict(
            candidate=candidate,
            scores={REWARD_CRITERION: _compute_sigmoid(distance)},
            note=f"reward {reward:.4g}",
            reward=reward,
        )


def _list_messages(request: JudgeRequest, candidate: Candidate) -> list[dict[str, JsonValue]]:
    """As chat templates take them, without thoughts, which no other judge sees either."""
    reply = candidate.messages or (Message(role="assistant", content=candidate.text),)
    return [
        {"role": message.role, "content": replace_surrogates(_extract_content(message))}
        for message in (*request.conversation, *reply)
    ]


def _extract_content(message: Message) -> str:
    content = message.content or ""
    return strip_leading_thoughts(content) if message.role == "assistant" else content


def _compute_sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value)) if value >= 0 else math.exp(value) / (1.0 + math.exp(value))


# Groups.


async def read_rewards(judge: Judge, group: CandidateGroup) -> GroupResult:
    """One question for each text. A text without an answer leaves the group without a result."""
    parts = [group.select_texts((text,)) for text in group.texts]
    questions = [Question(part, part.build_request(part.texts, "pointwise")) for part in parts]
    answers = await ask_questions(judge, questions)
    readings = [answer.reading for answer in answers if answer.reading is not None]
    asked = list_judgements(answers)
    rewards = [reward for reading in readings if (reward := reading.verdicts[0].reward) is not None]
    if len(rewards) < len(parts):
        return build_failed_result(judge, asked)
    return build_result(judge, [made for _, made in asked], _build_view(judge.name, readings, rewards))


def _build_view(judge: str, readings: Sequence[UsableJudgement], rewards: Sequence[float]) -> JudgeView:
    verdicts = [reading.verdicts[0] for reading in readings]
    absolutes = tuple(verdict.scores[REWARD_CRITERION] or 0.0 for verdict in verdicts)
    standings = normalise_rewards(rewards) if len(rewards) > 1 else None
    sample = None if standings is None else GroupSample(standings, absolutes, (0.0,) * len(rewards), judge)
    return JudgeView(
        verdicts=tuple((verdict,) for verdict in verdicts),
        sources=tuple((reading.judgement,) for reading in readings),
        values=tuple(verdict.scores for verdict in verdicts),
        absolutes=absolutes,
        standings=standings,
        samples=() if sample is None else (sample,),
        follows_rubric=False,
    )


def normalise_rewards(rewards: Sequence[float]) -> tuple[float, ...]:
    """The share of a normal distribution below each reward, by the group's mean and standard deviation; 0.5 where all
    are equal. Neither a shift nor a scale of the rewards changes it, since training fixes neither (arXiv:2402.03300,
    section 4.1.2, standardises the rewards of a group in the same way)."""
    middle = math.fsum(reward / len(rewards) for reward in rewards)
    largest = max(abs(reward - middle) for reward in rewards)  # squares of immense rewards would be infinite
    if min(rewards) == max(rewards) or largest == 0:
        return (NEUTRAL,) * len(rewards)
    distances = [(reward - middle) / largest for reward in rewards]
    spread = math.sqrt(math.fsum(distance**2 for distance in distances) / (len(rewards) - 1))
    return tuple(0.5 * math.erfc(-distance / spread / math.sqrt(2)) for distance in distances)
