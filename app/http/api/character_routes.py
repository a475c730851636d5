"""The characters of NPC Arena, and the reloading of edited sheets."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter

from app.characters.views import CharacterCard
from app.http.api.models import CharacterList, ReloadedCharacters
from app.http.web.bodies import ApiRoute
from app.http.web.openapi import document_problems


def create_characters_router(
    characters: Callable[[], tuple[CharacterCard, ...]], reload: Callable[[], Awaitable[None]]
) -> APIRouter:
    router = APIRouter(tags=["catalogue"], route_class=ApiRoute)

    @router.get("/characters", summary="Summaries of the character sheets", responses=document_problems(401))
    async def character_list() -> CharacterList:
        return CharacterList(characters=characters())

    @router.post(
        "/characters/reload",
        summary="Reload the character sheets; tasks that were handed out keep their sheets",
        responses=document_problems(401, 404, 422, 503),
    )
    async def reload_characters() -> ReloadedCharacters:
        before = characters()
        await reload()
        return ReloadedCharacters.from_reload(before, characters())

    return router
