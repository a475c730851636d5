"""`/compat/openenv/{env}`: one base URL per environment for OpenEnv's clients."""

from collections.abc import Callable

from fastapi import APIRouter

from app.http.compat.openenv.plain_http import PlainHttpRoutes
from app.http.compat.openenv.session_server import SessionServer
from app.ports.environment import Environment

PREFIX = "/compat/openenv/{env}"


def create_openenv_router(conversations: SessionServer, describe: Callable[[type[Environment]], str]) -> APIRouter:
    """The web socket at `{env}/ws` and the HTTP routes. These have their own OpenAPI document and are not in the
    service's."""
    plain = PlainHttpRoutes(PREFIX, conversations.playing, describe)
    router = APIRouter()
    router.add_api_websocket_route(f"{PREFIX}/ws", conversations.serve_socket)
    router.routes.extend(plain.router.routes)
    return router
