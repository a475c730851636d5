"""`/compat/openenv/{env}`: a base URL for OpenEnv's clients, one for every environment."""

from collections.abc import Callable

from fastapi import APIRouter

from app.compat.openenv.conversing import Conversations
from app.compat.openenv.plain_http import plain_router
from app.ports import Environment

PREFIX = "/compat/openenv"


def openenv_router(conversations: Conversations, describe: Callable[[type[Environment]], str]) -> APIRouter:
    """The web socket at `{env}/ws`, and beside it what is said over plain HTTP, which describes itself and is left out
    of the service's own description."""
    router = APIRouter()
    router.add_api_websocket_route(PREFIX + "/{env}/ws", conversations.hold)
    playing = conversations.playing
    for name, environment in playing.gateway.catalogue.classes.items():
        plain = plain_router(environment, describe(environment), playing)
        router.include_router(plain, prefix=f"{PREFIX}/{name}", include_in_schema=False)
    return router
