"""How long `/livez` waits while valid bodies at the limit are scored: `python -m benchmarks.large_bodies [NAME …]`.

Each body is new to the service, and asked once: nothing is remembered of it, and nothing is tried again."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.livez_waits import measure_wait
from tests.support.serving import serving

BYTES = 47 * 2**19
"""Of text in one body, whose limit is 24 MiB."""
MOST_SECONDS = 0.2
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


def write_body(task: dict[str, Any], text: str, completions: int) -> bytes:
    share = BYTES // completions // (len(json.dumps(text, ensure_ascii=False).encode()) - 2)
    told = [
        [{"role": "assistant", "content": f"{place} {text * share}"}] if task["max_turns"] > 1 else None
        for place in range(completions)
    ]
    group = [{"messages": one} if one else {"text": f"{place} {text * share}"} for place, one in enumerate(told)]
    return json.dumps({"groups": [{"task_id": task["task_id"], "completions": group}]}, ensure_ascii=False).encode()


def measure(url: str, environment: str) -> Iterator[Row]:
    asked = httpx.post(f"{url}/envs/{environment}/next-batch", json={"batch_size": 1, "split": "train"}, timeout=60)
    if asked.status_code != 200:
        print(f"{environment}: no task: {asked.status_code}", file=sys.stderr)
        return
    (task,) = asked.json()["tasks"]
    for shape, text in SHAPES.items():
        for completions in (1, 16):
            body = write_body(task, text, completions)
            yield Row(environment, shape, completions, *measure_wait(url, f"/envs/{environment}/score", body))


def format_row(row: Row) -> str:
    mark = "  over" if row.seconds > MOST_SECONDS else ""
    return f"{row.environment:24}{row.shape:10}{row.completions:3}{row.status:5}{row.seconds * 1e3:7.0f} ms{mark}"


def main(wanted: Sequence[str]) -> int:
    """The number of bodies that kept others waiting too long."""
    over = 0
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as served:
        names = wanted or [one["name"] for one in httpx.get(f"{served.url}/envs", timeout=60).json()["environments"]]
        for name in names:
            for row in measure(served.url, name):
                over += row.seconds > MOST_SECONDS
                print(format_row(row), flush=True)
    print(f"{over} bodies kept /livez waiting for more than {MOST_SECONDS * 1e3:.0f} ms")
    return over


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
