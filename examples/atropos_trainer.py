"""Atropos in one page: an environment that posts scored groups, and a trainer that takes them as batches.

python examples/atropos_trainer.py http://127.0.0.1:8000/compat/atropos/example

You will see one line for each of three batches: its step, its sequences and their scores. The calls are those of
Atropos 0.4.0's `run-api`, so your own trainer and environments need only this address.
"""

import sys
import time

import httpx

STEPS, BATCH, GROUP = 3, 8, 4


def post_group(client: httpx.Client, env_id: int, number: int) -> None:
    """What an environment does after it has scored the answers to one prompt. Your tokens go here."""
    tokens = [[number, place, 7, 9] for place in range(GROUP)]
    group = {
        "env_id": env_id,
        "tokens": tokens,
        "masks": [[-100, -100, *row[2:]] for row in tokens],
        "scores": [float(place == number % GROUP) for place in range(GROUP)],
    }
    client.post("/scored_data", json=group).raise_for_status()


def main(url: str) -> None:
    with httpx.Client(base_url=url, timeout=60) as client:
        trainer = {
            "wandb_group": "example",
            "wandb_project": "example",
            "batch_size": BATCH,
            "max_token_len": 512,
            "checkpoint_dir": "checkpoints",
            "save_checkpoint_interval": 0,
            "starting_step": 0,
            "num_steps": STEPS,
        }
        client.post("/register", json=trainer).raise_for_status()
        client.get("/batch").raise_for_status()  # environments may register once the trainer has asked
        env = {"max_token_length": 512, "desired_name": "example", "weight": 1.0, "group_size": GROUP}
        env_id = client.post("/register-env", json=env).raise_for_status().json()["env_id"]
        for number in range(STEPS * BATCH // GROUP):
            post_group(client, env_id, number)
        step = 0
        while step < STEPS:
            batch = client.get("/batch").raise_for_status().json()["batch"]
            if batch is None:
                time.sleep(0.1)
                continue
            step += 1
            scores = [score for group in batch for score in group["scores"]]
            print(f"batch {step}: {len(scores)} sequences, scores {scores}")


if __name__ == "__main__":
    main(sys.argv[1])
