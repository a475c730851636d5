"""Routes below `/play/v1`: an OpenAI-compatible API whose models are characters, and the turns that were kept.

POST /play/v1/chat/completions
{"model": "hob_tarrant/shore@policy-42", "messages": [{"role": "user", "content": "Is the ferry running?"}]}
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from app.characters.scenes import Scene
from app.domain.playing import PlayTurn
from app.domain.scores import Score
from app.domain.values import Frozen
from app.http.compat.play.chat_completions import ChatCompletions
from app.http.compat.play.chat_request import ChatRequest
from app.http.web.api_keys import CallerBounds, find_caller
from app.http.web.bodies import JsonRoute
from app.http.web.direct_routes import DirectRoute
from app.http.web.openapi import document_problems
from app.service.key_bounds import list_worlds_within
from app.service.play.play_service import PlayService
from app.service.play.play_turns import KeptAs, PlayCaller, PlayTurns
from app.service.play.played_models import MOST_LISTED
from app.service.world_service import WorldService

PlayUser = Annotated[str, Query(max_length=200, description="The `user` of the requests, where they named one.")]


class PlayModel(Frozen):
    id: str
    object: str = "model"
    created: int = 0
    owned_by: str = "atropos-environments"


class PlayModels(Frozen):
    object: str = "list"
    data: tuple[PlayModel, ...]


class BetterReply(Frozen):
    reply: str
    """Id of the reply that is better than the others of its turn."""
    consent: bool = False
    """Whether the choice may be used for training: it is a label then, and exported."""


class KeptMoment(Frozen):
    kept_as: KeptAs = Field(default="scene", alias="as")
    reply: str | None = None
    """Id of the reply; an example needs one."""


class KeptScene(Frozen):
    scene: Scene


class JudgedReplies(Frozen):
    scores: tuple[Score, ...]


class RemovedTurns(Frozen):
    removed: int


def create_play_router(service: PlayService, turns: PlayTurns, worlds: WorldService) -> APIRouter:
    router = APIRouter(prefix="/play/v1", tags=["play"], route_class=JsonRoute)
    router.routes.extend(_create_completions_router(ChatCompletions(service, turns)).routes)

    @router.get("/models", summary="Characters with each policy, and in each world", responses=_document(401))
    async def models(bounds: CallerBounds) -> PlayModels:
        """`model` may also name a moment: `character/world/1312-04-03T09:15:00Z@policy`."""
        named = await list_worlds_within(worlds, bounds, MOST_LISTED)
        listed = service.list_models([world.name for world in named])
        return PlayModels(data=tuple(PlayModel(id=name) for name in listed))

    @router.get("/turns/{turn_id}", summary="A turn of yours, with its replies", responses=_document(401, 403, 404))
    async def turn(turn_id: str, client: Request, user: PlayUser = "") -> PlayTurn:
        return await turns.get(await identify(turns, client, user), turn_id)

    @router.post(
        "/turns/{turn_id}/better",
        summary="Say which reply is the better one",
        responses=_document(400, 401, 403, 404, 408, 409, 413, 415),
    )
    async def better(turn_id: str, said: BetterReply, client: Request, user: PlayUser = "") -> PlayTurn:
        """An earlier label of the turn is withdrawn, also where this choice may not be used for training."""
        caller = await identify(turns, client, user)
        return await turns.mark_better(caller, turn_id, said.reply, consent=said.consent)

    @router.post(
        "/turns/{turn_id}/keep",
        summary="Keep the moment of a turn as a scene, with a reply as an example of a good one",
        responses=_document(400, 401, 403, 404, 408, 409, 413, 415),
    )
    async def keep(turn_id: str, said: KeptMoment, client: Request, user: PlayUser = "") -> KeptScene:
        caller = await identify(turns, client, user)
        return KeptScene(scene=await turns.keep(caller, turn_id, said.kept_as, said.reply))

    @router.post(
        "/turns/{turn_id}/judge", summary="Scores of a turn's replies", responses=_document(401, 403, 404, 409)
    )
    async def judge(turn_id: str, client: Request, user: PlayUser = "") -> JudgedReplies:
        """By the judges of training, as one group, in the order of the replies. Nothing is stored."""
        return JudgedReplies(scores=await turns.judge(await identify(turns, client, user), turn_id))

    @router.delete("/turns/{turn_id}", summary="Remove a turn of yours", responses=_document(401))
    async def remove(turn_id: str, client: Request, user: PlayUser = "") -> RemovedTurns:
        return RemovedTurns(removed=await turns.remove(await identify(turns, client, user), turn_id))

    @router.delete("/turns", summary="Remove all turns of yours", responses=_document(401))
    async def remove_all(client: Request, user: PlayUser = "") -> RemovedTurns:
        return RemovedTurns(removed=await turns.remove(await identify(turns, client, user)))

    return router


def _create_completions_router(completions: ChatCompletions) -> APIRouter:
    router = APIRouter(prefix="/play/v1", tags=["play"], route_class=DirectRoute)

    @router.post(
        "/chat/completions",
        summary="Talk to a character with the prompt of training",
        responses=_document(400, 401, 404, 408, 413, 415),
        response_model=None,
    )
    async def complete(request: ChatRequest, client: Request) -> Response:
        return await completions.answer(request, client)

    return router


async def identify(turns: PlayTurns, client: Request, user: str) -> PlayCaller:
    return await turns.identify(find_caller(client.scope), user)


def _document(*statuses: int) -> dict[int | str, dict[str, object]]:
    return document_problems(*{*statuses, 422, 503})
