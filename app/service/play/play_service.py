"""Puts a moment of a game before a policy, with the prompt of training."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from pydantic import JsonValue

from app.domain.playing import PlayReply
from app.domain.runs import ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Passage
from app.ports.judges import Panel
from app.ports.playing import ChatBody, PolicyServer
from app.ports.runtime import Clock
from app.ports.sandbox import NoPrograms, NoWorkers
from app.service.judging import score_completions
from app.service.play.played_models import PlayedModel, PlayFields, list_model_names, read_model
from app.service.play.thoughts import split_thoughts
from app.service.world_requests import Moment
from app.service.world_service import PlacedMoment, WorldService


@dataclass(frozen=True)
class PreparedTurn:
    """A moment with its prompt."""

    played: PlayedModel
    moment: Moment
    task: PlacedMoment

    @property
    def messages(self) -> list[JsonValue]:
        """Byte for byte those of `POST /worlds/{world}/context`."""
        return [message.model_dump(mode="json") for message in self.task.placed.task.messages]

    @property
    def as_of(self) -> datetime | None:
        """Game time of what was retrieved."""
        return self.task.placed.context.as_of

    @property
    def passages(self) -> tuple[Passage, ...]:
        return self.task.placed.context.passages

    @property
    def retrieval_failure(self) -> str | None:
        """Why nothing was retrieved, where the settings let that pass."""
        return self.task.placed.context.failure


@dataclass(frozen=True)
class PolicyAnswer:
    """What a policy said, before anything is known of it."""

    text: str
    finish_reason: str | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class GateReading:
    """`unchecked` says why the gates could not read the reply; None where they did."""

    flags: tuple[str, ...] = ()
    unchecked: str | None = None


class PlayService:
    """`list_names` gives what served characters are called, by id. `gates` is a panel without judges."""

    def __init__(
        self,
        *,
        policies: Mapping[str, PolicyServer],
        worlds: WorldService,
        list_names: Callable[[], Mapping[str, str]],
        gates: Panel,
        clock: Clock,
    ) -> None:
        self.policies = policies
        self.list_names = list_names
        self._worlds = worlds
        self._gates = gates
        self._clock = clock

    def list_models(self, worlds: Sequence[str]) -> list[str]:
        return list_model_names([*self.list_names()], [*self.policies], worlds)

    def read_model(self, name: str, fields: PlayFields) -> PlayedModel:
        return read_model(name, fields, [*self.policies], [*self.list_names()])

    async def prepare(self, played: PlayedModel, moment: Moment) -> PreparedTurn:
        """NotFound without the world, InvalidRequest for what the moment lacks, RetrieverFailed."""
        return PreparedTurn(played, moment, await self._worlds.place_moment(played.world, moment))

    async def check(self, turn: PreparedTurn, reply: PolicyAnswer) -> GateReading:
        """What the gates of training notice. A reply is not lost where they break."""
        task = turn.task
        judged = await score_completions(
            task.made.environment,
            task.placed.task,
            [Completion(text=reply.text)],
            ScoringOptions(),
            self._gates,
            NoWorkers(),
            NoPrograms(),
            what="play",
        )
        return read_gates(judged.scores, reply.finish_reason)

    async def make_reply(self, turn: PreparedTurn, said: PolicyAnswer) -> PlayReply:
        """With what the gates of training notice."""
        policy, noticed = turn.played.policy, await self.check(turn, said)
        return PlayReply(
            reply_id=f"reply_{uuid4().hex}",
            policy=policy,
            model=self.policies[policy].model,
            text=said.text,
            finish_reason=said.finish_reason,
            flags=noticed.flags,
            unchecked=noticed.unchecked,
            retrieval_failure=turn.retrieval_failure,
            seconds=said.seconds,
            as_of=turn.as_of,
            created_at=self._clock(),
        )

    def get_policy(self, name: str) -> PolicyServer:
        return self.policies[name]

    async def ask(self, turn: PreparedTurn, sampling: ChatBody) -> PolicyAnswer:
        """One whole reply."""
        began = asyncio.get_running_loop().time()
        answer = await self.policies[turn.played.policy].ask({**sampling, "messages": turn.messages})
        choices = answer["choices"]
        first = choices[0] if isinstance(choices, list) and choices else None
        return read_choice(first, asyncio.get_running_loop().time() - began)


def read_gates(scores: Sequence[Score], finish_reason: str | None) -> GateReading:
    """Of the only score. Without judges one that the gates pass is unscored too, but names its candidate."""
    score = scores[0] if scores else Score.unscored("internal", "the environment gave no score")
    broke = score.outcome == "unscored" and not score.candidate
    cut = ["truncated"] if finish_reason == "length" and "truncated" not in score.flags else []
    return GateReading((*score.flags, *cut), (score.rationale or str(score.reason)) if broke else None)


def read_choice(choice: JsonValue, seconds: float | None) -> PolicyAnswer:
    """What a choice of a chat completion says, without its thoughts; empty where it has nothing."""
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    return PolicyAnswer(
        split_thoughts(content)[1] if isinstance(content, str) else "",
        reason if isinstance(reason, str) else None,
        seconds,
    )
