"""How long `/livez` waits while valid bodies at the limit are scored: `python -m benchmarks.large_bodies [NAME …]`.

A second gateway beside it, which gets no bodies, says how long `/livez` waits in the same seconds because of what else
the machine does. A body after which a wait was long is sent again, each time with another text: nothing is remembered
of it."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx

from benchmarks.results import read_arguments
from tests.support.livez_waits import asking_livez, post
from tests.support.serving import serving

BYTES = 47 * 2**19
"""Of text in one body, whose limit is 24 MiB."""
MOST_SECONDS = 0.2
ASKS = 4
"""Of a body after which the first wait was long."""
SHAPES = {
    "words": "The innkeeper looked at the stranger, and said nothing at all. ",
    "answers": "The answer is \\boxed{12}. #### 12\n",
    "brackets": "[{(<",
    "tags": "<answer>12</answer>\n<tool_call>{}</tool_call>\n",
    "quotes": "\"Yes,\" *he nods* (quietly) 'no'. ",
    "fences": "```python\nx = 1\n```\n",
    "Japanese": "旅人は宿の主人に言った。",
    "spaces": " \n",
}


@dataclass(frozen=True)
class Row:
    environment: str
    shape: str
    completions: int
    status: int
    seconds: float
    without: float
    """Of the gateway that got no body. Both are means of the longest wait of each ask."""
    asks: int


@dataclass(frozen=True)
class Gateways:
    url: str
    idle: str

    def measure(self, environment: str, body: bytes) -> tuple[int, float, float]:
        with asking_livez(self.idle) as without, asking_livez(self.url) as waits:
            status = post(self.url, f"/envs/{environment}/score", body)
        return status, waits.longest, without.longest


def write_body(task: dict[str, Any], text: str, completions: int, ask: int) -> bytes:
    share = BYTES // completions // (len(json.dumps(text, ensure_ascii=False).encode()) - 2)
    replies = [f"{place} {ask} {text * share}" for place in range(completions)]
    episode = task["max_turns"] > 1
    group = [
        {"messages": [{"role": "assistant", "content": reply}]} if episode else {"text": reply} for reply in replies
    ]
    return json.dumps({"groups": [{"task_id": task["task_id"], "completions": group}]}, ensure_ascii=False).encode()


def measure(gateways: Gateways, environment: str) -> Iterator[Row]:
    asked = httpx.post(
        f"{gateways.url}/envs/{environment}/next-batch", json={"batch_size": 1, "split": "train"}, timeout=60
    )
    if asked.status_code != 200:
        print(f"{environment}: no task: {asked.status_code}", file=sys.stderr)
        return
    (task,) = asked.json()["tasks"]
    for shape, text in SHAPES.items():
        for completions in (1, 16):
            found = [gateways.measure(environment, write_body(task, text, completions, 0))]
            if found[0][1] > MOST_SECONDS:
                found += [
                    gateways.measure(environment, write_body(task, text, completions, ask)) for ask in range(1, ASKS)
                ]
            statuses, waits, without = zip(*found, strict=True)
            yield Row(environment, shape, completions, max(statuses), fmean(waits), fmean(without), len(found))


def format_row(row: Row) -> str:
    mark = "  over" if row.seconds > MOST_SECONDS else ""
    waits = f"{row.seconds * 1e3:7.0f} ms, without {row.without * 1e3:5.0f} ms, asks {row.asks}"
    return f"{row.environment:24}{row.shape:10}{row.completions:3}{row.status:5}{waits}{mark}"


def main(wanted: Sequence[str]) -> int:
    """The number of bodies that kept others waiting too long."""
    over = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as other,
        serving(Path(folder), python=sys.executable) as served,
        serving(Path(other), python=sys.executable) as idle,
    ):
        names = wanted or [one["name"] for one in httpx.get(f"{served.url}/envs", timeout=60).json()["environments"]]
        for name in names:
            for row in measure(Gateways(served.url, idle.url), name):
                over += row.seconds > MOST_SECONDS
                print(format_row(row), flush=True)
    print(f"{over} bodies kept /livez waiting for more than {MOST_SECONDS * 1e3:.0f} ms")
    return over


if __name__ == "__main__":
    sys.exit(bool(main(read_arguments())))
