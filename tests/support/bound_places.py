"""Routes that need names of one's own, and those that tell everybody the same."""

from typing import Any

SAME_FOR_ALL = {
    ("POST", "/envs/mastermind/step"),
    ("GET", "/view/characters/{character}"),
    ("POST", "/view/label"),
}
"""A generated task is of no run: whoever knows its id is handed it too, and a step stores nothing. Sheets are too. A
form without fields names nobody's."""
ORS_BODIES: dict[str, dict[str, Any]] = {
    "create": {"split": "train", "index": 0},
    "call": {"name": "reply", "input": {"text": "4"}},
    "score_group": {"candidates": [{"messages": [{"role": "assistant", "blocks": []}]}]},
    **{key: {"split": "test"} for key in ("num_tasks", "tasks", "task_range")},
    "task": {"split": "test", "index": 0},
}
RUN_QUERIES = [
    f"{interface}/{path}"
    for interface, paths in {
        "POST /compat/openrlhf": "* */get_reward",
        "POST /compat/slime": "*",
        "GET /compat/nemo_gym/*": "reverify_mode",
        "POST /compat/nemo_gym/*": "* verify seed_session close_session reset step aggregate_metrics",
        "GET /compat/ors/*": "task_tools prompt messages */task_tools */prompt */messages",
        "POST /compat/ors/*": "create ping delete call score_group */call */score_group",
    }.items()
    for path in paths.split()
]
"""Whose queries name the run."""
LISTS = frozenset(["/", "/judges", "/runs", "/stats", "/worlds"]) | {
    f"/view/{name}" for name in ("atropos", "characters", "groups", "judges", "runs", "stats", "talk", "worlds")
}
LISTS |= {"/play/v1/models"}
TURNS = frozenset(["/play/v1/turns", "/play/v1/turns/{turn_id}"])
"""Of whoever talks: another removes none."""
FACTS = (
    "/health",
    "/metadata",
    "/schema",
    "/mcp",
    "/state",
    "/openapi.json",
    "/list_environments",
    "/splits",
    "/num_tasks",
    "/tasks",
    "/task",
    "/task_range",
    "/version",
    "/tools",
    "/create_session",
    "/delete_session",
)
"""What every caller is told of an environment over OpenEnv's interface and the Open Reward Standard."""
