"""An environment of several turns for TRL's GRPOTrainer: each move of a game is a tool call, answered by the gateway.

python examples/trl_environment.py http://127.0.0.1:8000 Qwen/Qwen3-0.6B
"""

import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import httpx
from trl import GRPOConfig, GRPOTrainer
from trl_grpo import connect, prompts, scores_of, send

ENVIRONMENT = "mastermind"


class Mastermind:
    """One game at a time. TRL offers the public methods to the model, but for `reset`, and keeps one of these for each
    sample that it draws."""

    def __init__(self, gateway: httpx.Client) -> None:
        self._gateway = gateway
        self._task_id = ""
        self._over = self._lost = False
        self._transcript: list[dict[str, str]] = []

    def reset(self, task_id: str, **_: object) -> None:
        self._task_id, self._over, self._lost, self._transcript = task_id, False, False, []

    def guess(self, code: str) -> str:
        """Guesses the hidden code.

        Args:
            code: The letters of the guess, without spaces.

        Returns:
            How many letters stand where they should, and how many others belong to another place.
        """
        if self._over or self._lost:
            return "The game is over."
        self._transcript.append({"role": "assistant", "content": f"<answer>{code}</answer>"})
        self._lost = True  # TRL would give an error to the model, as if it were its own
        body = {"task_id": self._task_id, "messages": self._transcript}
        turn = send(self._gateway, f"/envs/{ENVIRONMENT}/step", body)
        self._lost, self._over = False, turn["done"]
        self._transcript += turn["messages"]
        return "\n".join(message["content"] for message in turn["messages"]) or "The game is over."

    def _played(self, completion: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """What is sent to be scored: the game, or what was said where no guess was made. None when the gateway failed
        on the way, which is not the model's doing."""
        if self._lost:
            return None
        return {"messages": self._transcript} if self._transcript else {"text": completion[-1]["content"]}


def game_reward(gateway: httpx.Client, run: str, model: str) -> Callable[..., list[float | None]]:
    """Scores the games of a prompt as one group. `get_reward` of an environment would see one game alone."""

    def reward(
        environments: Sequence[Mastermind],
        completions: Sequence[Any],
        task_id: Sequence[str],
        purpose: Sequence[str],
        trainer_state: Any,
        log_extra: Callable[[str, list[Any]], None],
        **_: object,
    ) -> list[float | None]:
        played = [game._played(said) for game, said in zip(environments, completions, strict=True)]
        groups = [
            {"task_id": task, "completions": [sample for _, sample in members]}
            for task, members in itertools.groupby(
                ((task, sample) for task, sample in zip(task_id, played, strict=True) if sample), lambda pair: pair[0]
            )
        ]
        policy = {"model": model, "step": trainer_state.global_step}
        body = {"run": run, "policy": policy, "purpose": purpose[0], "groups": groups}
        scored = send(gateway, f"/envs/{ENVIRONMENT}/score", body)["groups"] if groups else []
        scores = iter([score for group, sent in zip(scored, groups, strict=True) for score in scores_of(group, sent)])
        away: dict[str, Any] = {"reward": None, "rationale": "the gateway was away"}
        whole = [next(scores) if sample else away for sample in played]
        log_extra("rationale", [score["rationale"] for score in whole])
        rewards: list[float | None] = [score["reward"] for score in whole]
        return rewards

    reward.__name__ = ENVIRONMENT
    return reward


def main(url: str, model: str, run: str = "trl-mastermind") -> None:
    gateway = connect(url)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=game_reward(gateway, run, model),
        environment_factory=partial(Mastermind, gateway),
        train_dataset=prompts(gateway, ENVIRONMENT, run, count=1000, params={"level": "easy"}),
        args=GRPOConfig(output_dir=run, per_device_train_batch_size=8, num_generations=8, max_completion_length=1024),
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
