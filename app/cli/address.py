"""Where commands look for a gateway when nobody says where."""

import typer

from app.settings import read_settings
from app.web.origins import is_loopback

_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not listened on


def own_address() -> str:
    """Of the gateway that these settings would serve on this machine."""
    try:
        settings = read_settings()
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    near = is_loopback(settings.host) or settings.host in _EVERYWHERE
    return f"http://{'127.0.0.1' if near else settings.host}:{settings.port}"
