"""A game in one page: tell what happens, ask for a character's prompt, let the model answer in it.

python examples/game.py http://127.0.0.1:8000 http://127.0.0.1:9000/v1 the-trained-model

You will see each line of the player, the model's reply, and the ids of the events that the prompt told of.
"""

import sys

import httpx

WORLD, CHARACTER = "save-1", "hob_tarrant"
HAPPENS: list[dict[str, object]] = [
    {"id": "day1-rope", "time": "1312-04-03T09:15:00Z", "text": "The ferry's rope broke at Reedgate.", "importance": 7},
    {"id": "day1-spliced", "time": "1312-04-03T15:00:00Z", "text": "The rope holds again.", "supersedes": "day1-rope"},
]
SAYS = ["Can you take me across?", "What do you want for it?"]


def main(gateway_url: str, model_url: str, model: str) -> None:
    with httpx.Client(base_url=gateway_url, timeout=30) as gateway, httpx.Client(timeout=60) as policy:
        conversation: list[dict[str, str]] = []
        for event, line in zip(HAPPENS, SAYS, strict=True):
            # The id makes it safe to send the same events again after a failure.
            gateway.post(f"/worlds/{WORLD}/events", json={"events": [event]}).raise_for_status()
            conversation.append({"role": "user", "content": line})
            moment = {"character": CHARACTER, "conversation": conversation, "as_of": event["time"]}
            context = gateway.post(f"/worlds/{WORLD}/context", json=moment).raise_for_status().json()
            asked = policy.post(f"{model_url}/chat/completions", json={"model": model, "messages": context["messages"]})
            reply = asked.raise_for_status().json()["choices"][0]["message"]["content"]
            conversation.append({"role": "assistant", "content": reply})
            print(f"{line}\n  {reply}\n  told: {[passage['id'] for passage in context['passages']]}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
