"""Run names in paths: the Atropos protocol has no field for them."""

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


def parse_run_name(name: str | None) -> str:
    """Validates a run name; None is the default run. Raises InvalidRequest for an invalid name and for an
    endpoint's."""
    if name is None:
        return DEFAULT_RUN
    if name in _ENDPOINTS or not _NAME.fullmatch(name):
        raise InvalidRequest(
            "invalid run name: use lowercase letters, digits, - and _, and no endpoint's name", field="run"
        )
    return name
