"""Where the runs are: in the path, since the wire has no word for them."""

import re

from app.domain.errors import InvalidRequest

PREFIX = "/compat/atropos"
DEFAULT_RUN = "default"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_ENDPOINTS = frozenset(
    {
        *("register", "register-env", "disconnect-env", "wandb_info", "info", "batch", "latest_example"),
        *("scored_data", "scored_data_list", "status", "status-env", "reset_data", "why"),
    }
)


def run_named(name: str | None) -> str:
    """None names the usual one. InvalidRequest for a name that is none, and for an endpoint's."""
    if name is None:
        return DEFAULT_RUN
    if name in _ENDPOINTS or not _NAME.fullmatch(name):
        raise InvalidRequest("a run is named by small letters, digits, - and _, and not as an endpoint is", field="run")
    return name
