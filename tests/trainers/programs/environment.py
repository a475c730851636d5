"""A small environment of the released package: `environment.py serve --env.rollout_server_url …`.

Runs in the trainers' Python. What it makes is written to the file `--env.record` before it is sent."""

import json
from pathlib import Path
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig

Group = dict[str, Any]


class LettersConfig(BaseEnvConfig):  # type: ignore[misc]
    groups: int = 4
    """So many are made; then it goes on asking where it stands, and makes none."""
    record: str = "made.jsonl"


class Letters(BaseEnv):  # type: ignore[misc]
    name = "letters"
    env_config_cls = LettersConfig

    @classmethod
    def config_init(cls) -> tuple[LettersConfig, list[APIServerConfig]]:
        config = LettersConfig(use_wandb=False, steps_per_eval=0, max_num_workers=1, ensure_scores_are_not_same=False)
        return config, [APIServerConfig(server_type="vllm", health_check=False, api_key="x")]

    async def setup(self) -> None:
        self.asked = 0

    async def evaluate(self, *args: object, **kwargs: object) -> None:
        pass

    async def get_next_item(self) -> int | None:
        if self.asked == self.config.groups:
            return None
        self.asked += 1
        return int(self.asked)

    async def collect_trajectories(self, item: int) -> tuple[Group, list[int]]:
        messages = [{"role": "user", "content": f"{self.config.wandb_name} {item}"}]
        size = self.config.group_size
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            replies = await managed.chat_completion(messages=messages, n=size, max_tokens=32, temperature=0.7)
            nodes = managed.get_state()["nodes"]
        texts = [choice.message.content for choice in replies.choices]
        group = {
            "tokens": [node.tokens for node in nodes],
            "masks": [node.masked_tokens for node in nodes],
            "scores": [item + number / 8 for number in range(size)],
            "advantages": [[number / 4] * len(node.tokens) for number, node in enumerate(nodes)],
            "ref_logprobs": [[-0.5] * len(node.tokens) for node in nodes],
            "messages": [[*messages, {"role": "assistant", "content": text, "reward": item}] for text in texts],
            "generation_params": {"temperature": 0.75},
            "inference_logprobs": [node.logprobs for node in nodes],
            "overrides": [{"set_advantage_to_zero": number == 1} for number in range(size)],
            "group_overrides": {"group_size": size},
            "images": [f"image {item}"],
            "distill_token_ids": [[[token, token + 1] for token in node.tokens] for node in nodes],
            "distill_logprobs": [[[-0.25, -1.5] for _ in node.tokens] for node in nodes],
        }
        self.note(group)
        return group, []

    def note(self, group: Group) -> None:
        with Path(self.config.record).open("a", encoding="utf-8") as record:
            record.write(json.dumps(group) + "\n")


if __name__ == "__main__":
    Letters.cli()
