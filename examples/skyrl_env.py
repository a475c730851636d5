"""SkyRL's environment over a gateway: episodes of several turns, scored by it. skyrl-gym 0.4.0.

atropos-envs tasks train.parquet --env mastermind --for verl_agent --count 5000
ATROPOS_ENVS_URL=http://127.0.0.1:8000 ATROPOS_ENVS_RUN=my-run PYTHONPATH=examples python train.py

`train.py` imports this module, which registers `gateway`, and starts SkyRL with `environment.env_class=gateway`. The
key comes from `ATROPOS_ENVS_API_KEY`. The rows' `tools` are not read: take tasks that write theirs into the prompt (in
`tool_agent`: `--params '{"tool_format": "hermes"}'`).

Groups      An environment does not know the other samples of its prompt: each is scored alone. Verifiers pay the same,
            a judge that compares pays by what it finds in the one.
Ranks       Each sample asks for itself, so it makes no difference where it is played.
Retries     A lost reply is asked for again with the same body: what is sent twice is scored once.
Turns       SkyRL adds up the rewards of steps. In a run with `turn_rewards` a step gives what its turn adds, and the
            last one the rest.
Truncation  SkyRL does not say that a reply was cut off. An episode that it ends itself, by its length or `max_turns`,
            never comes to its end here and has what its steps gave, or 0: let both be at least those of the tasks.
No score    After PATIENCE_SECONDS it raises, which ends SkyRL's `generate`: SkyRL has no word for it.
Evaluation  Rows of `--split test` are scored on what is comparable, and are in no training figure.
Logs        `get_metrics`: criteria, `absolute`, `flagged` (the mean is a share), `judge_usd`. SkyRL takes numbers
            alone, so the group's page is in `metadata` of the last step and in the log.
"""

import logging
import os
import time
from typing import Any

import httpx
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.envs.registration import register, registry

PATIENCE_SECONDS = 900.0
"""For a gateway that is restarted, or whose judge is down."""
FINAL = {
    "stale",
    "version_changed",
    "self_judge",
    "language_unknown",
    "player_failed",
    "reward_missing",
    "replay_diverged",
}
"""Reasons of no score that asking again does not mend."""
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")
"""Tokens at the end of an action that the model did not say."""

Json = dict[str, Any]
log = logging.getLogger(__name__)


class GatewayEnv(BaseTextEnv):
    """One sample's. `extras` are the row's columns."""

    def __init__(self, env_config: Any, extras: Json) -> None:
        super().__init__()
        self.row, self.max_turns = extras, extras["max_turns"]
        self.said: list[Json] = []
        self.given = 0.0
        self.run = os.environ.get("ATROPOS_ENVS_RUN", "skyrl")
        self.figures: dict[str, float] = {}
        key = os.environ.get("ATROPOS_ENVS_API_KEY")
        self.url = os.environ["ATROPOS_ENVS_URL"].rstrip("/")
        self.gateway = httpx.Client(
            base_url=self.url, timeout=600, headers={"Authorization": f"Bearer {key}"} if key else {}
        )

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        for end in ENDS:
            action = action.removesuffix(end)
        self.said.append({"role": "assistant", "content": action.encode(errors="replace").decode()})
        if self.turns < self.row["max_turns"]:
            body = {"task_id": self.row["task_id"], "messages": self.said, "run": self.run}
            turn = self.post(f"/envs/{self.row['data_source']}/step", body)
            self.said += turn["messages"]
            if not turn["done"]:
                heard = [{"role": "user", "content": one["content"]} for one in turn["messages"]]
                part = turn.get("reward") or 0.0
                self.given += part
                return BaseTextEnvStepOutput(observations=heard, reward=part, done=False, metadata={})
        score, page = self.score()
        about = {"group": page, "rationale": score["rationale"], "flags": score["flags"]}
        log.info("%s: %s", page, score["reward"])
        rest = score["reward"] - self.given
        return BaseTextEnvStepOutput(observations=[], reward=rest, done=True, metadata=about)

    def get_metrics(self) -> dict[str, float]:
        return self.figures

    def close(self) -> None:
        self.gateway.close()

    def score(self) -> tuple[Json, str]:
        """The score and the page of its group. RuntimeError when there is none."""
        body = {"run": self.run, "purpose": self.row["purpose"]}
        body |= {"groups": [{"task_id": self.row["task_id"], "completions": [{"messages": self.said}]}]}
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            (group,) = self.post(f"/envs/{self.row['data_source']}/score", body)["groups"]
            if "scores" not in group:
                raise RuntimeError(f"the group was refused: {group['detail']}")
            (score,) = group["scores"]
            if score["reward"] is not None:
                break
            if score["reason"] in FINAL or time.monotonic() >= end:
                raise RuntimeError(f"no score: {score['reason']}")
            time.sleep(2)
        stored = self.post(f"/groups/{group['group_id']}", None)
        values = {f"criterion_{one['name']}": one["value"] for one in score["criteria"] if one["value"] is not None}
        absolute = score["reward"] if score["absolute"] is None else score["absolute"]
        usd = sum(one["cost_usd"] or 0.0 for one in stored["judgements"])
        self.figures = {**values, "absolute": absolute, "flagged": float(bool(score["flags"])), "judge_usd": usd}
        return score, f"{self.url}/view/groups/{group['group_id']}"

    def post(self, path: str, body: Json | None) -> Json:
        """Again while the gateway is away, for PATIENCE_SECONDS. A GET without a body."""
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                reply = self.gateway.get(path) if body is None else self.gateway.post(path, json=body)
                if reply.status_code < 500 and reply.status_code != 429:
                    return dict(reply.raise_for_status().json())
                said = f"{path} answers {reply.status_code}: {reply.text}"
            except httpx.TransportError as error:
                said = f"{path} does not answer: {error!r}"
            if time.monotonic() >= end:
                raise RuntimeError(said)
            time.sleep(2)


if "gateway" not in registry:
    register(id="gateway", entry_point="skyrl_env:GatewayEnv")
