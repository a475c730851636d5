"""Tinker cookbook's own rollouts play examples/tinker_group.py, with a model that says what it is told.

Runs in the loops' Python: a file with the job, a file for what Tinker was given. A group that raises is left out, as
its trainer leaves it out.
"""

import asyncio
import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import tinker_group
from job_files import answer, in_turns
from tinker_cookbook import tokenizer_utils
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.rollouts import do_group_rollout
from tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
CUT = "<cut>"


class Scripted(TokenCompleter):
    """Says each sample's replies in turn; a sample is known by its task of the event loop."""

    def __init__(self, replies: list[list[str]]) -> None:
        self._waiting = iter(replies)
        self._players: dict[asyncio.Task[Any] | None, Iterator[str]] = {}

    async def __call__(self, model_input: Any, stop: Any, *, max_tokens: int | None = None) -> TokensWithLogprobs:
        player = asyncio.current_task()
        if player not in self._players:
            self._players[player] = iter(next(self._waiting))
        reply = next(self._players[player])
        ids = TOKENIZER.encode(reply.removesuffix(CUT) + "<|im_end|>" * (not reply.endswith(CUT)))
        return TokensWithLogprobs(ids, [-0.5] * len(ids), "length" if reply.endswith(CUT) else "stop")


async def play(builder: tinker_group.GatewayGroup, replies: list[list[str]]) -> dict[str, Any]:
    sent = pickle.loads(pickle.dumps(builder))  # noqa: S301 -- as Tinker sends it to other processes
    try:
        played = await do_group_rollout(sent, Scripted(replies))
    except RuntimeError as error:
        return {"error": str(error)}
    (advantages,) = compute_advantages([played])
    data, _ = assemble_training_data([played], [advantages])
    kept = [transition.ac.tokens for one in played.trajectories_G for transition in one.transitions]
    return {
        "task_id": json.loads(builder.task)["task_id"],
        "rewards": played.get_total_rewards(),
        "advantages": advantages.tolist(),
        "sampled": [[TOKENIZER.decode(step.ac.tokens) for step in one.transitions] for one in played.trajectories_G],
        "asked": [TOKENIZER.decode(one.transitions[-1].ob.to_ints()) for one in played.trajectories_G],
        "trained": sum(int(sum(datum.loss_fn_inputs["mask"].data)) for datum in data) == sum(map(len, kept)),
        "metrics": played.metrics_G,
        "logged": compute_trajectory_metrics([played], [builder.logging_tags()]),
    }


async def play_all(job: dict[str, Any]) -> list[dict[str, Any]]:
    logging.basicConfig(level=logging.INFO)  # as Tinker's own `setup_logging`
    tokenizer_utils.register_tokenizer("tiny", tiny_tokenizer)
    tinker_group.PATIENCE_SECONDS = job["patience_seconds"]
    builder = tinker_group.GatewayDatasetBuilder(**job["options"])
    train, held_out = await builder()
    data = held_out if job["held_out"] and held_out else train
    builders = [one for index in range(len(data)) for one in data.get_batch(index)]
    return await in_turns(lambda one: play(*one), zip(builders, job["replies"], strict=True))


if __name__ == "__main__":
    answer(play_all)
