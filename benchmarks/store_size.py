"""Bytes that a store takes for groups of 16 completions of 32,000 tokens, beside the bytes that were sent: on SQLite
and PostgreSQL, with and without token ids and logprobs.

Run with `python -m benchmarks.store_size`. Texts are words of this project's documents; ids are drawn as frequent and
rare words are, and half of the logprobs are nearly zero, as those of a trained model."""

import json
import random
import sys
import tempfile
import time
from pathlib import Path

import httpx
from pydantic import JsonValue

from app.store.database_size import measure_database
from tests.support.databases import MIGRATIONS, running_postgres
from tests.support.serving import ROOT, serving

TOKENS, GROUP_SIZE, GROUPS = 32_000, 16, 4
VOCABULARY = 150_000
TOKENS_PER_WORD = 1.75
WORDS = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8").split()


def make_completion(chance: random.Random, with_tokens: bool) -> dict[str, JsonValue]:
    text = " ".join(chance.choices(WORDS, k=int(TOKENS / TOKENS_PER_WORD)))
    if not with_tokens:
        return {"text": text}
    ids: list[JsonValue] = [min(int(chance.paretovariate(0.6)), VOCABULARY) for _ in range(TOKENS)]
    logprobs: list[JsonValue] = [
        -round(chance.expovariate(2), 6) if chance.random() < 0.5 else -round(chance.random() / 1000, 9)
        for _ in range(TOKENS)
    ]
    return {"text": text, "token_ids": ids, "logprobs": logprobs}


def measure(folder: Path, url: str, with_tokens: bool) -> tuple[float, float, float]:
    """Megabytes sent and stored for a group, and seconds that scoring one took, in a service of its own."""
    settings = {"ATROPOS_ENVS_DATABASE_URL": url, "ATROPOS_ENVS_MAX_BODY_BYTES": str(2**28)}
    chance = random.Random(1)
    with (
        serving(folder, settings=settings, migrated=False) as served,
        httpx.Client(base_url=served.url, timeout=600) as client,
    ):
        before = count_bytes(url)
        asked = {"batch_size": GROUPS, "cursor": 0}
        tasks = client.post("/envs/gsm8k/next-batch", json=asked).raise_for_status().json()["tasks"]
        sent, seconds = 0, 0.0
        for task in tasks:
            completions = [make_completion(chance, with_tokens) for _ in range(GROUP_SIZE)]
            group = {"task_id": task["task_id"], "completions": completions}
            body = json.dumps({"run": "whole" if with_tokens else "texts", "groups": [group]}).encode()
            began = time.monotonic()
            reply = client.post("/score", content=body, headers={"Content-Type": "application/json"})
            if not reply.is_success:
                raise RuntimeError(reply.text[:500])
            seconds += time.monotonic() - began
            sent += len(body)
        stored = count_bytes(url) - before
    return sent / GROUPS / 1e6, stored / GROUPS / 1e6, seconds / GROUPS


def count_bytes(url: str) -> int:
    """Of the tables, their long values and their indexes."""
    return sum(table.bytes for table in measure_database(url, MIGRATIONS, round(time.time() * 1e6)).tables)


def main() -> int:
    print(f"{GROUPS} groups of {GROUP_SIZE} completions of {TOKENS} tokens in each case\n")
    print("| store | ids and logprobs | sent, MB a group | stored, MB a group | seconds a group |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, running_postgres() as postgres:
        for with_tokens in (True, False):
            for name, url in (("SQLite", f"sqlite:///{folder}/{with_tokens}.db"), ("PostgreSQL", postgres)):
                sent, stored, seconds = measure(Path(folder), url, with_tokens)
                print(f"| {name} | {'yes' if with_tokens else 'no'} | {sent:.2f} | {stored:.2f} | {seconds:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
