"""Turns and scores of the episodes that are played over the Open Reward Standard."""

import asyncio
from dataclasses import replace
from hashlib import sha256
from typing import Any

from starlette.types import Message as AsgiMessage

from app.domain.errors import Conflict, InvalidRequest
from app.domain.groups import TaskRecord
from app.domain.parts import SampleName
from app.domain.runs import Policy
from app.domain.tasks import Completion, Message
from app.http.compat.kept_sessions import NOTED, KeptSessions, PlayedStep
from app.http.compat.one_sample.held_samples import HeldSamples, LabelledSample
from app.http.compat.one_sample.labels import SampleLabel
from app.http.compat.one_sample.reward_service import RewardService
from app.http.compat.ors.event_stream import StreamResult
from app.http.compat.ors.replies import (
    ANSWER,
    REPLY,
    CallError,
    CallReply,
    CandidateScore,
    GroupScores,
    TextBlock,
    ToolOutput,
    show_observation,
)
from app.http.compat.ors.requests import GroupRequest, OrsOptions, ToolCallRequest, read_call, read_candidate
from app.service.gateway import Gateway
from app.service.request_models import GroupProblem, GroupToScore, ScoreRequest
from app.service.sample_intake import SampleReply


class OrsEpisodes:
    def __init__(self, gateway: Gateway, sessions: KeptSessions, reward_service: RewardService) -> None:
        self._gateway = gateway
        self._sessions = sessions
        self._reward_service = reward_service

    async def play(self, record: TaskRecord, asked: ToolCallRequest, options: OrsOptions, session: str) -> StreamResult:
        try:
            said = read_call(asked)
            played = await self._take(record, asked, said, name_session(session))
        except InvalidRequest as error:
            return StreamResult(CallError(error=error.detail, reason="input_validation"))
        except Conflict as error:
            return StreamResult(CallError(error=error.detail, reason="episode_finished"))
        if not played.done:
            noted = not played.observed and asked.name not in {REPLY, ANSWER}
            blocks = (TextBlock(text=NOTED),) if noted else show_observation(played.observed)
            return StreamResult(CallReply(output=ToolOutput(blocks=blocks)))
        completion = Completion(messages=_merge_calls(played.after.messages), finish_reason="stop")
        return await self._score(record, completion, options, f"{name_session(session)}.{asked.task_id}", played)

    async def _take(self, record: TaskRecord, asked: ToolCallRequest, said: Message, session: str) -> PlayedStep:
        env, fingerprint = record.key.environment, asked.task_id or ""
        single = await self._reward_service.stepper.is_single_reply(env, record.task_id)
        if asked.name == ANSWER or (single and asked.name == REPLY):
            return await self._sessions.end(session, said, fingerprint)
        if single:
            return await self._sessions.note(session, said, fingerprint)
        return await self._sessions.step(env, session, said, "stop", fingerprint)

    async def _score(
        self, record: TaskRecord, completion: Completion, options: OrsOptions, fingerprint: str, played: PlayedStep
    ) -> StreamResult:
        label = SampleLabel(task_id=record.task_id, purpose="eval" if record.key.split == "test" else "train")
        sample = options.build_sample(record.key.environment, label, completion)
        named = replace(sample, name=SampleName(fingerprint=sha256(fingerprint.encode()).hexdigest()))
        held = HeldSamples(
            self._reward_service.parts,
            [LabelledSample(named, "X-Session-ID")],
            min(options.gather_seconds, options.wait_seconds),
            options.wait_seconds,
        )
        (reply,) = await held.await_replies(_never_receive)
        if reply.score.reward is None:
            self._reward_service.unscored("ors", record.key.environment, reply.score.reason or "pending", "null")
        output = ToolOutput(
            blocks=show_observation(played.observed),
            reward=reply.score.reward,
            finished=True,
            metadata=_describe(reply),
        )
        return StreamResult(CallReply(output=output), held.settle)

    async def score_candidates(self, record: TaskRecord, asked: GroupRequest, options: OrsOptions) -> StreamResult:
        env = record.key.environment
        single = await self._reward_service.stepper.is_single_reply(env, record.task_id)
        group = GroupToScore(
            task_id=record.task_id, completions=tuple(read_candidate(one, single) for one in asked.candidates)
        )
        wanted = ScoreRequest(
            groups=(group,),
            run=options.run,
            policy=None if options.model is None else Policy(model=options.model),
            purpose="eval" if record.key.split == "test" else "train",
            wait_seconds=min(options.wait_seconds, 600.0),
        )
        (scored,) = (await self._gateway.scoring.score(wanted, env)).groups
        if isinstance(scored, GroupProblem):
            raise InvalidRequest(scored.detail, field=scored.field)
        return StreamResult(
            GroupScores(
                scores=tuple(
                    CandidateScore(
                        reward=score.reward,
                        metadata={
                            "group_id": scored.group_id,
                            "reason": score.reason,
                            "rationale": score.rationale,
                            "flags": list(score.flags),
                        },
                    )
                    for score in scored.scores
                )
            )
        )


def name_session(session: str) -> str:
    return f"ors.{sha256(session.encode()).hexdigest()[:32]}"


def _merge_calls(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Calls that were noted and what was said at last are one message of the model."""
    if len(messages) < 2 or any(one.role != "assistant" for one in messages):
        return messages
    calls = tuple(call for one in messages for call in one.tool_calls)
    return (messages[-1].model_copy(update={"tool_calls": calls}),)


def _describe(reply: SampleReply) -> dict[str, Any]:
    score = reply.score
    return {
        "group_id": reply.group_id,
        "reason": score.reason,
        "absolute": score.absolute,
        "criteria": {one.name: one.value for one in score.criteria},
        "flags": list(dict.fromkeys((*score.flags, *reply.flags))),
        "rationale": score.rationale,
    }


async def _never_receive() -> AsgiMessage:
    """The stream itself notices that its client left."""
    left: asyncio.Future[AsgiMessage] = asyncio.get_running_loop().create_future()
    return await left
