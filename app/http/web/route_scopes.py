"""Which scope each route needs, and where the bounds of a key are held: tables of all routes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from app.domain.access import AccessScope


def _list_places(lines: str) -> list[str]:
    """`GET,PUT /runs/*` is two."""
    told = [line.split() for line in lines.strip().splitlines()]
    return [f"{method} {path}" for methods, path in told for method in methods.split(",")]


_SHARED: Final[Mapping[AccessScope, str]] = {
    "read": """
        GET /
        GET /characters
        GET /docs
        GET /docs/assets
        GET /docs/start.js
        GET /envs
        GET /envs/*
        GET /export
        GET /export/summary
        GET /favicon.svg
        GET /groups
        GET /groups/*
        GET /judges
        GET /judges/*/agreement
        GET /openapi.json
        GET /runs
        GET /runs/*
        GET /runs/*/health
        GET /stats
        GET /tasks/*
        GET /view/assets/*/*
        GET /view/atropos
        GET /view/characters
        GET /view/characters/*
        GET /view/compare
        GET /view/export
        GET /view/groups
        GET /view/groups/*
        GET /view/judges
        GET /view/runs
        GET /view/runs/*
        GET /view/stats
        GET /view/worlds
        GET /view/worlds/*
        GET /view/worlds/*/why
        GET /worlds
        GET /worlds/*
        GET /worlds/*/events
        GET /worlds/*/lorebooks
        GET /worlds/*/lorebooks/*
    """,
    "train": """
        GET,POST /envs/*/next-batch
        GET /quotas
        POST /envs/*/score
        POST /envs/*/step
        POST /groups/*/rescore
        POST /groups/*/rescore/estimate
        POST /next-batch
        POST /score
        PUT /runs/*
        POST /runs/*/release
    """,
    "label": """
        DELETE /labels/*
        GET /view/label
        POST /groups/*/labels
        POST /labels/next
        POST /labels/skip
        POST /rollouts/*/labels
        POST /view/label
    """,
    "play": """
        DELETE /play/v1/turns
        DELETE /play/v1/turns/*
        GET /play/v1/models
        GET /play/v1/turns/*
        GET /view/talk
        POST /play/v1/chat/completions
        POST /play/v1/turns/*/better
        POST /view/talk/*
        DELETE,PUT /worlds/*
        DELETE,PUT /worlds/*/events/*
        POST /worlds/*/context
        POST /worlds/*/events
    """,
    "author": """
        DELETE,PUT /characters/*
        DELETE,PUT /characters/*/scenes
        DELETE,PUT /worlds/*/lorebooks/*
        GET /characters/*/revisions
        GET /characters/*/revisions/*
        GET /characters/*/scenes/revisions
        GET /characters/*/scenes/revisions/*
        GET /characters/*/scenes/text
        GET /characters/*/text
        GET /view/author
        GET /view/worlds/*/write
        GET /worlds/*/events/*/revisions
        GET /worlds/*/events/*/revisions/*
        GET /worlds/*/lorebooks/*/revisions
        GET /worlds/*/lorebooks/*/revisions/*
        GET,POST /characters/archive
        GET,POST /view/characters/*/edit
        GET,POST /view/characters/*/scenes/edit
        GET,POST /view/worlds/*/events/*/edit
        GET,POST /view/worlds/*/lorebooks/*/edit
        POST /characters/*/check
        POST /characters/*/scenes/check
        POST /characters/import
        POST /play/v1/turns/*/judge
        POST /play/v1/turns/*/keep
        POST /view/talk/author/*
        POST /characters/reload
        POST /envs/*/try
        POST /labels/import
    """,
    "metrics": "GET /metrics",
    "admin": """
        GET /admin/audit
        GET,POST /admin/keys
        POST /admin/keys/*/revoke
        POST /admin/keys/*/rotate
        PUT /admin/keys/*/quotas
    """,
}
SCOPES: Final[Mapping[str, AccessScope]] = MappingProxyType(
    {place: scope for scope, lines in _SHARED.items() for place in _list_places(lines)}
)
"""By method and path, whose parameters and environments are `*`."""
BoundKind = Literal["shared", "handler", "run", "group", "rollout", "world"]
_BOUND: Final[Mapping[BoundKind, str]] = {
    "shared": """
        GET /characters
        GET /docs
        GET /docs/assets
        GET /docs/start.js
        GET /envs
        GET /envs/*
        GET /favicon.svg
        GET /openapi.json
        GET /quotas
        GET /view/assets/*/*
    """,
    "handler": """
        DELETE /play/v1/turns
        DELETE /play/v1/turns/*
        GET /play/v1/models
        GET /play/v1/turns/*
        GET /view/talk
        POST /play/v1/chat/completions
        POST /play/v1/turns/*/better
        POST /view/talk/*
        DELETE /labels/*
        GET /
        GET,POST /envs/*/next-batch
        GET /export
        GET /export/summary
        GET /groups
        GET /judges
        GET /judges/*/agreement
        GET /runs
        GET /stats
        GET /tasks/*
        GET /view/atropos
        GET /view/characters
        GET /view/characters/*
        GET /view/compare
        GET /view/export
        GET /view/groups
        GET /view/judges
        GET /view/label
        GET /view/runs
        GET /view/stats
        GET /view/worlds
        GET /worlds
        POST /envs/*/score
        POST /envs/*/step
        POST /labels/next
        POST /labels/skip
        POST /next-batch
        POST /score
        POST /view/label
    """,
    "run": """
        GET /runs/*
        GET /runs/*/health
        GET /view/runs/*
        POST /runs/*/release
        PUT /runs/*
    """,
    "group": """
        GET /groups/*
        GET /view/groups/*
        POST /groups/*/labels
        POST /groups/*/rescore
        POST /groups/*/rescore/estimate
    """,
    "rollout": "POST /rollouts/*/labels",
    "world": """
        DELETE,PUT /worlds/*
        DELETE,PUT /worlds/*/events/*
        DELETE,PUT /worlds/*/lorebooks/*
        GET /view/worlds/*
        GET,POST /view/worlds/*/events/*/edit
        GET,POST /view/worlds/*/lorebooks/*/edit
        GET /view/worlds/*/why
        GET /view/worlds/*/write
        GET /worlds/*
        GET /worlds/*/events
        GET /worlds/*/events/*/revisions
        GET /worlds/*/events/*/revisions/*
        GET /worlds/*/lorebooks
        GET /worlds/*/lorebooks/*
        GET /worlds/*/lorebooks/*/revisions
        GET /worlds/*/lorebooks/*/revisions/*
        POST /worlds/*/context
        POST /worlds/*/events
    """,
}
BOUND_BY: Final[Mapping[str, BoundKind]] = MappingProxyType(
    {place: kind for kind, lines in _BOUND.items() for place in _list_places(lines)}
)
"""Where a bound key is checked: in the path, or by the route's own handler. A route that is not here is closed to bound
keys."""
