"""Label replies on a terminal: the service hands out items, and you say which reply is better, without seeing a score.

python examples/loop.py http://127.0.0.1:8000          # something to label
python examples/labels.py http://127.0.0.1:8000 ada
ATROPOS_ENVS_API_KEY=... python examples/labels.py http://127.0.0.1:8000 ada    # the key labels, on behalf of ada

You will see a prompt, then its replies by number. Type numbers from best to worst, with `=` between equals: `2 1=3`. An
empty line skips the item, and `q` ends. `atropos-envs judges agreement NAME` then tells how often a judge agrees.
"""

import os
import sys
import time

import httpx


def order_replies(line: str, replies: list[str]) -> list[list[str]]:
    """The ids as the typed line orders them. ValueError if it names a reply that is not there, or not all of them."""
    order = [[int(number) for number in tied.split("=")] for tied in line.split()]
    if sorted(number for tied in order for number in tied) != list(range(1, len(replies) + 1)):
        raise ValueError(line)
    return [[replies[number - 1] for number in tied] for tied in order]


def printable(text: str | None) -> str:
    """A model wrote it, so nothing of it may steer the terminal."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text or ""
    )


def main(url: str, person: str) -> None:
    key = os.environ.get("ATROPOS_ENVS_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    who = {"on_behalf_of" if key else "labeller": person}
    with httpx.Client(base_url=url, timeout=60, headers=headers) as gateway:
        while True:
            answer = gateway.post("/labels/next", json=who).raise_for_status().json()
            item = answer["item"]
            if item is None:
                print(answer["reason"])
                return
            print(f"\n--- {item['environment']} ---")
            for message in item["messages"][-2:]:
                print(f"{message['role']}: {printable(message['content'])[-800:]}")
            for number, reply in enumerate(item["replies"], 1):
                print(f"\n[{number}] {printable(reply['messages'][-1]['content'])}")
            begun = time.monotonic()
            line = input("\nbest to worst, such as 2 1=3: ").strip()
            lease = {**who, "lease_id": item["lease_id"]}
            if line == "q":
                return
            if not line:
                gateway.post("/labels/skip", json=lease).raise_for_status()
                continue
            try:
                order = order_replies(line, [reply["rollout_id"] for reply in item["replies"]])
            except ValueError:
                print("Name each reply once.")
                continue  # the same person gets the same item again
            label = {**lease, "order": order, "seconds": round(time.monotonic() - begun, 1)}
            gateway.post(f"/groups/{item['group_id']}/labels", json=label).raise_for_status()
            print("Thank you: stored.")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
