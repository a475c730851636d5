"""The characters that NPC Arena plays, and how edited sheets come in."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter

from app.characters.views import CharacterCard
from app.http.api.models import CharacterList, ReloadedCharacters
from app.http.web.problems import problem_responses


def characters_router(
    characters: Callable[[], tuple[CharacterCard, ...]], reload: Callable[[], Awaitable[None]]
) -> APIRouter:
    router = APIRouter(tags=["catalogue"])

    @router.get("/characters", summary="The character sheets, in short", responses=problem_responses(401))
    async def character_list() -> CharacterList:
        return CharacterList(characters=characters())

    @router.post(
        "/characters/reload",
        summary="Read the sheets again; what was handed out keeps the ones it was made from",
        responses=problem_responses(401, 404, 422, 503),
    )
    async def reload_characters() -> ReloadedCharacters:
        before = characters()
        await reload()
        return ReloadedCharacters.of(before, characters())

    return router
