"""A training step as a trainer sees it: 128 groups of 8 samples, of 500 and of 8,000 tokens, all sent at once.

The ideal is the judge's time alone, or that of the same programs when this process grades them. Processor time is that
of the service until it is idle again, without programs that have ended. `python -m benchmarks.step [GRADER …]
[--record]` takes some 10 minutes.
"""

import asyncio
import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion, Task
from app.envs.code_exec.environment import CodeExec
from app.envs.gsm8k.environment import Gsm8k
from app.envs.npc_arena.environment import NpcArena
from app.ports.environment import Environment, Tools
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import choose_size
from app.service.judging import NoPanel
from benchmarks.judging import CONCURRENCY, WORDS, judge_server, write_completions
from benchmarks.load import post, send_all
from benchmarks.results import BenchmarkFigure, read_arguments, run, tell_progress
from benchmarks.servers import read_processor_seconds, serving_gateway
from benchmarks.slow_judge import SECONDS
from tests.support.atropos import TRAINER, large_group
from tests.support.nemo_gym import build_response, build_row, say
from tests.support.serving import Served, free_port

SIZE: Final = 8
SAMPLES: Final = 128 * SIZE
TOKENS: Final = (500, 8_000)
GRADERS: Final[Mapping[str, Environment]] = {
    one.name: one.open(ConfiguredDatasets({})) for one in (Gsm8k, CodeExec, NpcArena)
}
USED: Final = "processor time of 1,000 samples"
PAGES: Final = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"

Sample = dict[str, Any]
"""As `score` takes completions: `text`, `token_ids` and `logprobs`."""


Step = tuple[float, float, int]
"""Seconds by the clock, processor seconds, and bytes of the store."""


def measure(graders: Iterable[str] = GRADERS) -> list[BenchmarkFigure]:
    found: list[BenchmarkFigure] = []
    with judge_server() as judge:
        slow = {"slow": {"base_url": judge, "model": "slow", "max_concurrency": CONCURRENCY}}
        settings = {"JUDGES": json.dumps(slow), "ENVIRONMENTS__NPC_ARENA__JUDGES": '["slow"]'}
        settings["ATROPOS_PORT"] = str(port := free_port())
        with serving_gateway({f"ATROPOS_ENVS_{name}": value for name, value in settings.items()}) as gateway:
            for grader, wire, tokens in product(graders, (WHOLE_GROUPS, *SINGLE_SAMPLES), TOKENS):
                tell_progress(what := name_step(wire, grader, tokens))
                found += _list_figures(what, tokens, *_grade(gateway, grader, wire, tokens))
            for tokens in TOKENS:
                step = _pass_on(gateway, f"http://127.0.0.1:{port}", tokens)
                found += _list_figures(name_step("/scored_data", "", tokens), tokens, step)
    return found


def name_step(wire: str, grader: str, tokens: int) -> str:
    return f"`{wire.partition('?')[0].format(grader)}`, {tokens:,} tokens"


def _grade(gateway: Served, grader: str, wire: str, tokens: int) -> tuple[Step, float]:
    """With the ideal seconds; none where neither judges nor programs decide."""
    asks = [post(f"/envs/{grader}/next-batch", {"batch_size": 1, "cursor": at}) for at in range(SAMPLES // SIZE)]
    handed = [json.loads(answer)["tasks"][0]["task_id"] for answer in send_all(gateway.url, asks, 1).answers]
    environment, chance = GRADERS[grader], random.Random(f"{wire} {tokens}")
    tasks = [environment.task("train", index, environment.Params()) for index in range(len(handed))]
    groups = [list(_write_samples(environment, task, tokens, chance)) for task in tasks]
    bodies = [
        body for task_id, group in zip(handed, groups, strict=True) for body in _build_bodies(wire, task_id, group)
    ]
    judged = _ask_store(gateway, "SELECT count(*) FROM judge_cache")
    step = _take(gateway, gateway.url, [post(wire.format(grader), body) for body in bodies])
    calls = _ask_store(gateway, "SELECT count(*) FROM judge_cache") - judged
    alone = asyncio.run(_run_alone(environment, tasks, groups)) if grader == "code_exec" else 0.0
    return step, alone + calls / CONCURRENCY * SECONDS


def _write_samples(environment: Environment, task: Task, tokens: int, chance: random.Random) -> Iterator[Sample]:
    """No two programs and no two replies are the same; thinking makes them long."""
    gold = None if environment.name == "npc_arena" else environment.gold(task)
    for place, reply in enumerate(write_completions(chance.getrandbits(64))):
        said = (gold or reply).text or ""
        thought = " ".join(chance.choices(WORDS.split(), k=tokens * 3 // 4))
        yield {
            "text": f"<think>{thought}</think>\n" + said.replace("\n```", f"\n# {place}\n```"),
            "token_ids": [chance.randrange(150_000) for _ in range(tokens)],
            "logprobs": [-chance.expovariate(1) for _ in range(tokens)],
        }


def _pass_on(gateway: Served, url: str, tokens: int) -> Step:
    send_all(url, [post("/register", {**TRAINER, "batch_size": SAMPLES})], 1)
    posts = [post("/scored_data", large_group(number, SIZE, tokens)) for number in range(SAMPLES // SIZE)]
    return _take(gateway, url, posts, [b"GET /batch HTTP/1.1\r\nHost: localhost\r\n\r\n"])


def _take(gateway: Served, url: str, *parts: Sequence[bytes]) -> Step:
    """The requests of each part at once, one part after the other."""
    used, kept, began = _settle(gateway.process.pid), _ask_store(gateway, PAGES), time.perf_counter()
    for part in parts:
        send_all(url, part, len(part))
    seconds = time.perf_counter() - began
    return seconds, _settle(gateway.process.pid) - used, _ask_store(gateway, PAGES) - kept


def _settle(pid: int) -> float:
    """Processor seconds, after a second in which the service took hardly any."""
    before = read_processor_seconds(pid)
    time.sleep(1)
    used = read_processor_seconds(pid)
    return used if used - before < 0.03 else _settle(pid)


def _ask_store(gateway: Served, query: str) -> int:
    with contextlib.closing(sqlite3.connect(gateway.database)) as connection:
        return int(connection.execute(query).fetchone()[0])


async def _run_alone(environment: Environment, tasks: Sequence[Task], groups: Sequence[Sequence[Sample]]) -> float:
    tools = Tools(panel=NoPanel(), programs=(programs := JailedPrograms(choose_size())))
    answers = [[Completion(text=one["text"]) for one in group] for group in groups]
    began = time.perf_counter()
    await asyncio.gather(*(environment.score(*one, tools) for one in zip(tasks, answers, strict=True)))
    seconds = time.perf_counter() - began
    await programs.close()
    return seconds


def _list_figures(what: str, tokens: int, step: Step, ideal: float = 0.0) -> Iterator[BenchmarkFigure]:
    seconds, used, kept = step
    yield BenchmarkFigure.of(what, [seconds], "s", column="wall time")
    if ideal:
        yield BenchmarkFigure.of(what, [seconds / ideal], at_most=1.03, column="over the ideal")
    most = None if ideal or tokens != min(TOKENS) else 1.5
    yield BenchmarkFigure.of(what, [used / SAMPLES * 1e3], "s", at_most=most, column=USED)
    yield BenchmarkFigure.of(what, [kept / SAMPLES / 1e3], "kB", column="kept of a sample")


def _build_bodies(wire: str, task_id: str, group: Sequence[Sample]) -> list[Any]:
    if wire == WHOLE_GROUPS:
        return [{"run": "bench", "policy": {"model": "bench"}, "groups": [{"task_id": task_id, "completions": group}]}]
    return [SINGLE_SAMPLES[wire](task_id, place, one) for place, one in enumerate(group)]


def _build_verification(task_id: str, place: int, one: Sample) -> dict[str, Any]:
    tokens = {"generation_token_ids": one["token_ids"], "generation_log_probs": one["logprobs"]}
    response = build_response(say(one["text"], prompt_token_ids=[], **tokens))
    return {**build_row(task_id, 0, place), "response": response}


QUERY: Final = f"?run=bench&model=bench&group_size={SIZE}"
ALIKE: Final = {"run": "bench", "group_size": SIZE}
WHOLE_GROUPS: Final = "/envs/{}/score"
SINGLE_SAMPLES: Final[Mapping[str, Callable[[str, int, Sample], dict[str, Any]]]] = {
    f"/compat/slime/{{}}{QUERY}": lambda task, _, one: {"prompt": "", "response": one["text"], "label": task},
    f"/compat/openrlhf/{{}}/get_reward{QUERY}": lambda task, _, one: {
        "query": [one["text"]],
        "prompts": [""],
        "labels": [task],
    },
    f"/compat/nemo_gym/{{}}/verify{QUERY}": _build_verification,
    "/compat/openenv/{}/step": lambda task, _, one: {**ALIKE, "task_id": task, "action": {"text": one["text"]}},
}
"""The body of a sample's request, by path."""

if __name__ == "__main__":
    words = read_arguments()
    given = [word for word in words if word in GRADERS]
    run("step", lambda: measure(given or GRADERS), words, " ".join(given))
