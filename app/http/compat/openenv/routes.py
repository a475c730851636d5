"""`/compat/openenv/{env}`: one base URL per environment for OpenEnv's clients."""

from collections.abc import Callable

from fastapi import APIRouter

from app.http.compat.openenv.conversing import Conversations
from app.http.compat.openenv.plain_http import PlainHttp
from app.ports.environment import Environment

PREFIX = "/compat/openenv/{env}"


def openenv_router(conversations: Conversations, describe: Callable[[type[Environment]], str]) -> APIRouter:
    """The web socket at `{env}/ws` and the HTTP routes. These have their own OpenAPI document and are not in the
    service's."""
    plain = PlainHttp(PREFIX, conversations.playing, describe)
    router = APIRouter()
    router.add_api_websocket_route(f"{PREFIX}/ws", conversations.hold)
    router.include_router(plain.router, include_in_schema=False)
    return router
