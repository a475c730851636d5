"""No text of a model loses the worker that reads it, by which a policy could do without a score."""
# ruff: noqa: S608  # queries made of parts are what is tested

import asyncio
from typing import Any

import pytest

from app.domain.tasks import Completion
from app.envs.math.environment import Math
from app.envs.text_to_sql.environment import TextToSql
from app.ports.environment import Environment, Tools
from app.sandbox.workers import ProcessWorkers
from app.service.judging import NoPanel

pytestmark = pytest.mark.slow

ROWS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
QUERIES = (
    f"{ROWS} SELECT n FROM r",
    f"{ROWS} SELECT count(*) FROM r a, r b, r c",
    f"{ROWS} SELECT group_concat(n) FROM r",
    f"{ROWS} SELECT printf('%10000d', n) FROM r ORDER BY 1",
    f"{ROWS} SELECT DISTINCT n, n * 2, n * 3 FROM r ORDER BY 3 DESC",
    "SELECT zeroblob(2000000000)",
    "SELECT randomblob(1000000000)",
    "SELECT printf('%.*c', 2000000000, 'x')",
    "SELECT replace(hex(zeroblob(9000)), '0', hex(zeroblob(9000)))",
    "SELECT " + "(" * 4900 + "1" + ")" * 4900,
    "SELECT " + "NOT " * 2400 + "1",
    "SELECT 1" + " UNION ALL SELECT 1" * 500,
    "SELECT " + ", ".join(["1"] * 3000),
    "SELECT 'a' LIKE '" + "%a" * 4000 + "'",
    "SELECT load_extension('x')",
    "PRAGMA cache_size = 1000000000",
    "ATTACH '/dev/zero' AS z",
    "SELECT -9223372036854775808 / -1, 1e999, abs(-9223372036854775808)",
    "SELECT sum(9223372036854775807) FROM (SELECT 1 UNION ALL SELECT 2)",
    "SELECT '\x00",
    "\ud800",
    "\U0010ffff" * 9000,
)
FORMULAS = (
    "(" * 4900 + "1" + ")" * 4900,
    "\\sqrt{" * 1600 + "2" + "}" * 1600,
    "9^{9^{9^{9}}}",
    "10000000!",
    "^".join(["2"] * 2000),
    "(x+1)^{100000}",
    "+".join(["\\sqrt{2}"] * 1000),
    "\\begin{pmatrix}" + "1&" * 2000 + "1\\end{pmatrix}",
    "|" * 4000 + "1" + "|" * 4000,
    "\\{" * 2000 + "1" + "\\}" * 2000,
    "1e999999999",
    "9" * 9000,
)


def score_all(environment: Environment, texts: list[str]) -> list[Any]:
    params = environment.Params.model_validate({})
    task = environment.task("train", 0, params)

    async def score() -> list[Any]:
        workers = ProcessWorkers(2)
        try:
            group = [Completion(text=text) for text in texts]
            return [
                (one.reward, one.reason)
                for one in await environment.score(task, group, Tools(panel=NoPanel(), workers=workers))
            ]
        finally:
            await workers.close()

    return asyncio.run(score())


@pytest.mark.parametrize(
    ("environment", "texts"),
    [
        (TextToSql(), [f"<answer>{query}</answer>" for query in QUERIES]),
        (Math(), [f"\\boxed{{{formula}}}" for formula in FORMULAS]),
    ],
    ids=["text_to_sql", "math"],
)
def test_no_text_is_left_without_a_score(environment: Environment, texts: list[str]) -> None:
    assert score_all(environment, texts) == [(0.0, None)] * len(texts)
