"""A trainer in one page: take tasks, let the policy answer, send the answers back, learn from the advantages.

python examples/loop.py http://127.0.0.1:8000

You will see a line for each of twelve groups: step, group, rewards, advantages. One reply breaks character: it earns 0.
"""

import sys

import httpx

ENVIRONMENT, RUN, STEPS = "npc_arena", "loop", 3


def answers(messages: list[dict[str, str]]) -> list[str]:
    """Your model goes here: several completions for one prompt."""
    heard = messages[-1]["content"]
    return [
        "As an AI language model, I am happy to help you with that!",
        "Hm. I could not say.",
        f'"{heard[:40]}" No. Sit down, and tell me first who sent you.',
    ]


def main(url: str) -> None:
    with httpx.Client(base_url=url, timeout=600, transport=httpx.HTTPTransport(retries=5)) as gateway:
        for step in range(STEPS):
            asked = gateway.post(f"/envs/{ENVIRONMENT}/next-batch", json={"run": RUN, "batch_size": 4})
            groups = [
                {
                    "task_id": task["task_id"],
                    "lease_id": task["lease_id"],
                    "completions": [{"text": text, "finish_reason": "stop"} for text in answers(task["messages"])],
                }
                for task in asked.raise_for_status().json()["tasks"]
            ]
            body = {"run": RUN, "policy": {"model": "scripted", "step": step}, "groups": groups}
            scored = gateway.post(f"/envs/{ENVIRONMENT}/score", json=body)
            for group in scored.raise_for_status().json()["groups"]:
                # Here the policy learns: a completion whose advantage is null was not scored and teaches nothing.
                print(step, group["group_id"][:14], group["rewards"], group["advantages"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000")
