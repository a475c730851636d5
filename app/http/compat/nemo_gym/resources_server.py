"""NeMo Gym's resources server, as `nemo_gym/base_resources_server.py` of 0.7.0 has it.

POST /compat/nemo_gym/{env}/verify
{"task_id": "task_…", "responses_create_params": {…}, "response": {"output": […], …}, "_ng_task_index": 0, …}
the same, and {"reward": 1.0, "mask_sample": false, …}
"""

import secrets
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import JsonValue

from app.domain.errors import InvalidRequest, NotFound
from app.domain.tasks import Completion
from app.http.compat.delivery import Delivery
from app.http.compat.kept_sessions import NOTED, OVER, KeptSessions
from app.http.compat.nemo_gym.path_options import PREFIX
from app.http.compat.nemo_gym.replies import StepReply, VerifyReply, describe_turn
from app.http.compat.nemo_gym.requests import (
    CloseReply,
    CloseRequest,
    MetricsReply,
    MetricsRequest,
    NemoGymOptions,
    NemoGymRow,
    ReverifyMode,
    SeedReply,
    SeedRequest,
    VerifyRequest,
    aggregate_metrics,
)
from app.http.compat.nemo_gym.responses import build_reply_completion, build_tool_transcript, read_reply
from app.http.compat.one_sample.held_samples import LabelledSample
from app.http.compat.one_sample.refusals import RefusingRoute, document_refusals
from app.http.compat.one_sample.reward_service import ReplyFormat, RewardService
from app.http.web.api_keys import CallerBounds, get_bounds

COOKIE: Final = "atropos_nemo_gym"
"""Of a session: the task, and a name of the session."""

Options = Annotated[NemoGymOptions, Query()]


class NemoGymServer:
    """The routes of all environments."""

    def __init__(self, reward_service: RewardService, sessions: KeptSessions) -> None:
        self._reward_service = reward_service
        self._strict_reward_service = replace(reward_service, unscored_reward=None, masks_groups=False)
        self._sessions = sessions
        self.router = APIRouter(prefix=f"{PREFIX}/{{env}}", tags=["nemo_gym"], route_class=RefusingRoute)
        self._add("POST", "/verify", self.verify, "Reward for NeMo Gym")
        self._add("POST", "/seed_session", self.seed_session, "Begin a rollout of NeMo Gym")
        self._add("POST", "/close_session", self.close_session, "End a rollout of NeMo Gym")
        self._add("POST", "/aggregate_metrics", self.aggregate, "Means over verified rows")
        self._add("GET", "/reverify_mode", self.tell_reverify_mode, "Whether a row can be verified again by itself")
        self._add("POST", "/reset", self.reset, "Begin an episode of NeMo Gym's gymnasium_agent")
        self._add("POST", "/step", self.step, "Play a turn of NeMo Gym's gymnasium_agent")
        self._add("POST", "/{tool}", self.call_tool, "Carry out a call of NeMo Gym's agents")

    def _add(self, method: str, path: str, answer: Callable[..., Any], summary: str) -> None:
        self.router.add_api_route(path, answer, methods=[method], summary=summary, responses=document_refusals())

    async def verify(self, env: str, request: Request, asked: VerifyRequest, options: Options) -> Response:
        """The row and its response as they came, with a reward. Where there is none, the whole group is masked."""
        self._reward_service.require_environment(env)
        if await self._is_single_reply(env, asked.task_id):
            completion = build_reply_completion(asked.response)
        elif asked.offers_tools:
            completion = build_tool_transcript(asked.response)
        else:
            detail = f"this task of {env} has turns of text: use gymnasium_agent, which calls /reset and /step"
            raise InvalidRequest(detail, field="task_id")
        reply = VerifyReply(asked, await request.body())
        return await self._score(
            self._reward_service, env, request, asked, options, completion, reply, masks_groups=True
        )

    async def seed_session(self, env: str, request: Request, asked: SeedRequest, options: Options) -> Response:
        """Begins a rollout. The cookie of the reply names its task and itself."""
        name = asked.resources_session_id
        reply = None if name is None else SeedReply(resources_session_id=name)
        content: dict[str, JsonValue] = {} if reply is None else reply.model_dump(mode="json")
        return await self._begin(env, request, asked.find_task(), options, name, content)

    async def close_session(self, env: str, asked: CloseRequest, options: Options, bounds: CallerBounds) -> CloseReply:
        """Ends a rollout; also one that is unknown or has ended."""
        self._reward_service.require_environment(env)
        bounds.require_run(options.run)
        if self._reward_service.catalogue.classes[env].multi_turn:
            await self._sessions.close(_name_session(env, asked.resources_session_id))
        return CloseReply(resources_session_id=asked.resources_session_id)

    async def aggregate(self, env: str, asked: MetricsRequest, options: Options, bounds: CallerBounds) -> MetricsReply:
        """Means over rows that were verified."""
        self._reward_service.require_environment(env)
        bounds.require_run(options.run)
        return aggregate_metrics(asked)

    async def tell_reverify_mode(self, env: str, options: Options, bounds: CallerBounds) -> ReverifyMode:
        """Whether a row alone says what it earns. What judges compare needs its group; what was stepped, its steps."""
        self._reward_service.require_environment(env)
        bounds.require_run(options.run)
        kind = self._reward_service.catalogue.classes[env]
        alone = (
            kind.rubric is None
            and not kind.multi_turn
            and not await self._reward_service.list_criteria(env, options.run)
        )
        return "stateless" if alone else "unsupported"

    async def reset(self, env: str, request: Request, asked: NemoGymRow, options: Options) -> Response:
        """Begins an episode. What the row shows already is not shown again."""
        return await self._begin(
            env, request, asked.task_id, options, None, {"observation": None, "info": {}}, keep=True
        )

    async def step(self, env: str, request: Request, asked: VerifyRequest, options: Options) -> Response:
        """Plays the model's last reply. The last one is answered with the reward of the episode in its group; without a
        score it is refused, since these agents cannot pass a mask on."""
        self._reward_service.require_environment(env)
        session = await self._find_session(env, request, options, asked.task_id)
        body, finish_reason = await request.body(), asked.response.finish_reason
        played = await self._sessions.step(
            env, session, read_reply(asked.response), finish_reason, sha256(body).hexdigest()
        )
        if not played.done:
            return JSONResponse(describe_turn(played.observed))
        completion = Completion(messages=played.after.messages, finish_reason=finish_reason)
        reply = StepReply(truncated=completion.truncated)
        return await self._score(
            self._strict_reward_service, env, request, asked, options, completion, reply, masks_groups=False
        )

    async def call_tool(self, env: str, tool: str, request: Request, options: Options) -> Response:
        """Carries out a call of the session's task. The body holds its arguments, the reply is its result."""
        self._reward_service.require_environment(env)
        session = await self._find_session(env, request, options)
        arguments = await request.json()
        if await self._is_single_reply(env, _read_cookie(request)[0]):
            return PlainTextResponse(NOTED)
        played = await self._sessions.call(env, session, tool, arguments)
        said = "\n".join(one.content or "" for one in played.observed)

        async def settle(taken: bool) -> None:
            if not taken:
                await self._sessions.take_back(session, played)

        return Delivery((said or OVER).encode(), {}, settle)

    async def _begin(
        self,
        env: str,
        request: Request,
        task_id: str,
        options: NemoGymOptions,
        name: str | None,
        content: dict[str, JsonValue],
        *,
        keep: bool = False,
    ) -> Response:
        self._reward_service.require_environment(env)
        await self._require_bounds(request, task_id, options)
        given = name or secrets.token_hex(16)
        if keep or not await self._is_single_reply(env, task_id):
            await self._sessions.begin(_name_session(env, given), task_id)
        response = JSONResponse(content)
        response.set_cookie(COOKIE, f"{task_id}.{_digest(given)}", path="/", httponly=True)
        return response

    async def _find_session(
        self, env: str, request: Request, options: NemoGymOptions, task_id: str | None = None
    ) -> str:
        """The name of the session that the cookie names."""
        named, session = _read_cookie(request)
        await self._require_bounds(request, named, options)
        if task_id is not None and task_id != named:
            raise InvalidRequest("the session plays another task", field="task_id")
        return f"{env}.{session}"

    async def _require_bounds(self, request: Request, task_id: str, options: NemoGymOptions) -> None:
        bounds = await get_bounds(request)
        bounds.require_run(options.run)
        await self._reward_service.bounds.require_tasks(bounds, [task_id], "task_id")

    async def _score(
        self,
        reward_service: RewardService,
        env: str,
        request: Request,
        asked: VerifyRequest,
        options: NemoGymOptions,
        completion: Completion,
        reply: ReplyFormat,
        *,
        masks_groups: bool,
    ) -> Response:
        sample = options.build_sample(env, asked.read_label(options), completion)
        name = asked.name_sample(sample.size, await request.body())
        held = [LabelledSample(replace(sample, name=name), "task_id")]
        await reward_service.check_bounds(request, held, options)
        return await reward_service.hold(request, held, options, reply, masks_groups=masks_groups)

    async def _is_single_reply(self, env: str, task_id: str) -> bool:
        try:
            return await self._reward_service.stepper.is_single_reply(env, task_id)
        except NotFound as error:
            raise NotFound(error.detail, field="task_id") from error


def _name_session(env: str, given: str) -> str:
    return f"{env}.{_digest(given)}"


def _digest(given: str) -> str:
    return sha256(given.encode()).hexdigest()[:32]


def _read_cookie(request: Request) -> tuple[str, str]:
    """The task and the session. NotFound."""
    task_id, _, session = request.cookies.get(COOKIE, "").partition(".")
    if not session:
        raise NotFound("there is no session: seed or reset first, and send its cookie")
    return task_id, session
