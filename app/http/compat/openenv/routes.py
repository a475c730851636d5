"""`/compat/openenv/{env}`: a base URL for OpenEnv's clients, one for every environment."""

from collections.abc import Callable

from fastapi import APIRouter

from app.http.compat.openenv.conversing import Conversations
from app.http.compat.openenv.plain_http import PlainHttp
from app.ports.environment import Environment

PREFIX = "/compat/openenv/{env}"


def openenv_router(conversations: Conversations, describe: Callable[[type[Environment]], str]) -> APIRouter:
    """The web socket at `{env}/ws`, and beside it what is said over plain HTTP, which describes itself and is left out
    of the service's own description."""
    plain = PlainHttp(PREFIX, conversations.playing, describe)
    router = APIRouter()
    router.add_api_websocket_route(f"{PREFIX}/ws", conversations.hold)
    router.include_router(plain.router, include_in_schema=False)
    return router
