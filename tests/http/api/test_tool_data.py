"""Tool calling from data sets in the shapes of BFCL and of xLAM, through the gateway."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import JsonValue

from app.datasets.configured_datasets import ConfiguredDatasets
from app.envs.gsm8k.environment import Gsm8k
from app.envs.tool_calling.environment import ToolCalling, ToolCallingParams
from app.main.application import create_app
from app.settings import Settings
from tests.support.serving import serving

Row = dict[str, JsonValue]

SETTING = "ATROPOS_ENVS_DATASETS__TOOL_CALLING"


def _bfcl(number: int, truth: JsonValue = None) -> Row:
    """One function is offered, or two where the number is odd."""
    area: JsonValue = {
        "name": "geometry.area",
        "description": "Area of a triangle.",
        "parameters": {
            "type": "dict",
            "properties": {
                "base": {"type": "float", "description": "The base."},
                "since": {"type": "string", "description": "A day."},
                "unit": {"type": "string", "description": "The unit.", "default": "m"},
            },
            "required": ["base"],
        },
    }
    other: JsonValue = {"name": "weather", "description": "The weather.", "parameters": {"type": "dict"}}
    question: JsonValue = [[{"role": "user", "content": f"The area, base {number}, please."}]]
    row: Row = {"id": f"area_{number}", "question": question, "function": [area, other] if number % 2 else [area]}
    return row if truth is None else {**row, "ground_truth": truth}


def _area(**accepted: JsonValue) -> JsonValue:
    return {"geometry.area": accepted}


BFCL: list[Row] = [
    _bfcl(0, [_area(base=[10], unit=["m", ""], since=["2024-01-01", ""])]),
    _bfcl(1, [_area(base=[2.5, 2])]),
    _bfcl(2, [_area(base=[4]), _area(base=[5.5], unit=["cm"])]),
    _bfcl(3),
]
UNANSWERABLE: list[Row] = [_bfcl(4, [_area(base=[])]), _bfcl(5, [_area(base=["ten"])]), _bfcl(6, [_area(height=[1])])]

TOOL: JsonValue = {
    "name": "giveaways",
    "description": "Giveaways by type.",
    "parameters": {
        "type": {"type": "str", "description": "The type.", "default": "game"},
        "limit": {"type": "int", "description": "How many."},
        "days": {"type": "List[str], optional", "description": "Which days."},
    },
}


def _xlam(number: int, *answers: JsonValue) -> Row:
    tools, right = json.dumps([TOOL]), json.dumps([{"name": "giveaways", "arguments": one} for one in answers])
    return {"id": number, "query": f"Giveaways, {number} of them?", "tools": tools, "answers": right}


XLAM: list[Row] = [
    _xlam(1, {"limit": 1}),
    _xlam(2, {"limit": 2, "type": "beta", "days": ["2024-01-01"]}),
    _xlam(3, {"limit": 3}, {"limit": 4, "type": "game"}),
]
LACKING: list[Row] = [_xlam(4, {"type": "beta"}), _xlam(5, {"limit": "5"})]


def _folder(place: Path, rows: Sequence[Row]) -> Path:
    place.mkdir()
    for name in ("train", "test"):
        (place / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("rows", "left_out", "categories"),
    [
        (BFCL, UNANSWERABLE, ["simple", "choice", "parallel", "irrelevance"]),
        (XLAM, LACKING, ["simple", "simple", "parallel"]),
    ],
    ids=["bfcl", "xlam"],
)
def test_rows_are_tasks_and_their_right_answers_earn_one(
    tmp_path: Path, rows: list[Row], left_out: list[Row], categories: list[str]
) -> None:
    folder = _folder(tmp_path / "calls", [*rows[:1], *left_out, *rows[1:]])
    here = ToolCalling.open(ConfiguredDatasets({"tool_calling": str(folder)}))
    gold = [here.gold(here.task("test", index, ToolCallingParams())) for index in range(len(rows))]
    with serving(tmp_path, settings={SETTING: str(folder)}) as gateway:
        ask = {"split": "test", "cursor": 0, "batch_size": 10}
        handed = httpx.post(f"{gateway.url}/envs/tool_calling/next-batch", json=ask).raise_for_status().json()
        groups = [
            {
                "task_id": task["task_id"],
                "completions": [
                    gold[place].model_dump(mode="json", exclude_defaults=True),
                    gold[place - 1].model_dump(mode="json", exclude_defaults=True),
                    {"text": "I cannot say."},
                ],
            }
            for place, task in enumerate(handed["tasks"])
        ]
        scored = httpx.post(f"{gateway.url}/envs/tool_calling/score", json={"groups": groups}).raise_for_status()
        listed = httpx.get(f"{gateway.url}/envs/tool_calling").raise_for_status().json()
    assert [task["metadata"]["category"] for task in handed["tasks"]] == categories
    assert [group["rewards"] for group in scored.json()["groups"]] == [[1.0, 0.0, 0.0]] * len(rows)
    assert (listed["origin"], [split["size"] for split in listed["splits"]], handed["exhausted"]) == (
        "calls",
        [len(rows), len(rows)],
        True,
    )


NO_SHAPE: Row = {"question": "What?", "answers": "[]"}
NO_TOOLS: Row = {"query": "What?", "tools": "[{"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (NO_SHAPE, "whole row: Value error, a row needs `question` and `function`, or `query` and `tools`"),
        (NO_TOOLS, "tools: Value error, the JSON cannot be read"),
        ({"query": 7, "tools": "[]"}, "query: Input should be a valid string"),
        ({**_bfcl(0), "function": [{"parameters": {}}]}, "function: Value error, a function has no name"),
    ],
    ids=["no shape", "no tools", "no text", "no name"],
)
def test_a_broken_row_is_named(tmp_path: Path, row: Row, said: str) -> None:
    folder = _folder(tmp_path / "calls", [XLAM[0], row])
    settings = Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}", datasets={"tool_calling": str(folder)})
    app = create_app(settings, environments={"tool_calling": ToolCalling, "gsm8k": Gsm8k})
    with TestClient(app, base_url="http://127.0.0.1") as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.01)
        refused = client.post("/envs/tool_calling/next-batch", json={})
        others = client.post("/envs/gsm8k/next-batch", json={})
    problem = refused.json()
    assert (refused.status_code, problem["code"], others.status_code) == (503, "environment_unavailable", 200)
    assert problem["detail"].endswith(f"calls: train.jsonl, line 2, {said}")
