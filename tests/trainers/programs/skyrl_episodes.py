"""examples/skyrl_env.py as SkyRL's generator plays it, with scripted actions.

Runs in its own Python: file with rows, actions by row, and seconds of patience; file to write."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import skyrl_env
import skyrl_gym
from job_files import answer


def play(row: dict[str, Any], actions: list[str]) -> dict[str, Any]:
    env = skyrl_gym.make("gateway", env_config={}, extras=row)
    env.init(row["prompt"])
    told: dict[str, Any] = {}
    total = 0.0
    try:
        for turn in range(row["max_turns"]):
            told = dict(env.step(actions[min(turn, len(actions) - 1)]))
            total += told["reward"]
            if told["done"]:
                break
    except RuntimeError as error:
        return {"error": str(error)}
    finally:
        env.close()
    return {**told, "reward": total, "said": env.said, "metrics": env.get_metrics()}


def main(job: dict[str, Any]) -> list[dict[str, Any]]:
    skyrl_env.PATIENCE_SECONDS = job["patience"]
    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(play, job["rows"], job["actions"]))


if __name__ == "__main__":
    answer(main)
