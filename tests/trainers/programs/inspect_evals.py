"""examples/inspect_eval.py in released Inspect, with a scripted model.

Runs in its own Python: file with the eval's arguments, the replies by task and attempt, and seconds of patience; file
to write."""

import json
from collections import Counter
from typing import Any

import inspect_eval
from inspect_ai import eval as evaluate
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.tool import ToolCall
from job_files import answer

SEEN: "Counter[str]" = Counter()


def say(replies: list[list[dict[str, Any]]], messages: list[Any]) -> ModelOutput:
    """The next reply to a prompt that asks for this one. Without `usage` a tokenizer would be downloaded."""
    turn = sum(one.role == "assistant" for one in messages)
    asked = json.dumps([one.text for one in messages if one.role != "assistant"][:2])
    place = len(SEEN) if asked not in SEEN else list(SEEN).index(asked)
    SEEN[asked] += 1
    script = replies[place % len(replies)]
    said = script[min(turn, len(script) - 1)]
    output = ModelOutput.from_content("mockllm/model", said.get("content") or "", said.get("stop", "stop"))
    output.message.tool_calls = [
        ToolCall(id=one["id"], function=one["function"]["name"], arguments=one["function"]["arguments"])
        for one in said.get("tool_calls", ())
    ] or None
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


def main(job: dict[str, Any]) -> list[dict[str, Any]]:
    inspect_eval.PATIENCE_SECONDS = job["patience"]
    model = get_model("mockllm/model", custom_outputs=lambda messages, *_: say(job["replies"], messages))
    evals = [inspect_eval.gateway(**arguments) for arguments in job["evals"]]
    logs = [evaluate(one, model=model, display="none", log_dir="logs", epochs=job["epochs"])[0] for one in evals]
    return [
        {
            "status": log.status,
            "scored": log.results.scores[0].scored_samples if log.results else 0,
            "unscored": log.results.scores[0].unscored_samples if log.results else 0,
            "metrics": {name: one.value for name, one in log.results.scores[0].metrics.items()} if log.results else {},
            "samples": [
                {
                    "task_id": sample.id,
                    "said": sample.store["said"],
                    "stop": sample.output.stop_reason,
                    "score": {name: one.model_dump(mode="json") for name, one in (sample.scores or {}).items()}[
                        "score"
                    ],
                }
                for sample in log.samples or []
            ],
        }
        for log in logs
    ]


if __name__ == "__main__":
    answer(main)
