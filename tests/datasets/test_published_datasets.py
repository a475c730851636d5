"""Every block of settings in `docs/datasets.md` loads a folder of exactly the subsets, splits and columns of the data
set that it names, and golds are paid. The rows in `published/` were written for these tests, after the descriptions
that are published."""

import asyncio
import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pyarrow
import pytest
import yaml
from pyarrow import parquet

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion, DatasetSource, Task
from app.domain.values import Split
from app.main.components import discover
from app.ports.environment import Environment, Tools
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import InProcessWorkers
from app.service.judging import NoPanel
from tests.support.event_loop import closed_after
from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")
PUBLISHED = Path(__file__).with_name("published")
SPLITS: tuple[Split, ...] = get_args(Split)


@cache
def _read_blocks() -> dict[str, dict[str, Any]]:
    """The settings of each data set in the sections of the environments, by environment and name."""
    sections = PAGE.partition("\n## What is read")[2].partition("\n## ")[2]
    blocks = [yaml.safe_load(text)["datasets"] for text in re.findall(r"```yaml\n(.*?)```", sections, re.DOTALL)]
    return {
        f"{environment}: {name}": {"environment": environment, **settings}
        for block in blocks
        for environment, named in block.items()
        for name, settings in named.items()
    }


def _write_copy(folder: Path, subsets: Mapping[str, Mapping[str, Sequence[dict[str, Any]]]]) -> None:
    for subset, splits in subsets.items():
        for split, rows in splits.items():
            for place in (folder / subset, folder / "data") if len(subsets) == 1 else (folder / subset,):
                place.mkdir(parents=True, exist_ok=True)
                table = pyarrow.Table.from_pylist(list(rows))
                parquet.write_table(table, place / f"{split}-00000-of-00001.parquet")


def _write_databases(folder: Path, scripts: Mapping[str, str]) -> Path:
    for name, script in scripts.items():
        (folder / name).mkdir(parents=True)
        with closing(sqlite3.connect(folder / name / f"{name}.sqlite")) as database:
            database.executescript(script)
    return folder


async def _score_golds(environment: Environment, golds: Sequence[tuple[Task, Completion]]) -> set[float | None]:
    async with closed_after(JailedPrograms(1)) as programs:
        tools = Tools(panel=NoPanel(), workers=InProcessWorkers(), programs=programs)
        return {(await environment.score(task, [gold], tools))[0].reward for task, gold in golds}


@pytest.mark.parametrize("block", _read_blocks())
def test_a_documented_block_loads_its_data_set_and_golds_are_paid(block: str, tmp_path: Path) -> None:
    settings = dict(_read_blocks()[block])
    kind = discover()[settings.pop("environment")]
    published = PUBLISHED / f"{settings['source'].replace('/', '__')}.yaml"
    subsets = yaml.safe_load(published.read_text(encoding="utf-8"))
    folder = tmp_path / "copy"
    if databases := subsets.pop("databases", None):
        settings["files"] = str(_write_databases(tmp_path / "databases", databases))
    answers = dict(enumerate(subsets.pop("answers", ())))
    _write_copy(folder, subsets)
    source = DatasetSource.model_validate({**settings, "source": str(folder)})
    environment = kind.open(ConfiguredDatasets({kind.name: {"named": source}}, hub_cache=tmp_path / "cache"))
    params = environment.Params()
    sizes = {split: environment.size(split, params) for split in SPLITS}
    tasks = [environment.task(split, index, params) for split in SPLITS for index in range(sizes[split] or 0)]
    golds = [
        (task, gold or Completion(text=f"```python\n{answers[place]}\n```"))
        for place, task in enumerate(tasks)
        if kind.rubric is None and ((gold := environment.gold(task)) or place in answers)
    ]
    rewards = asyncio.run(_score_golds(environment, golds))
    has_answers = kind.rubric is None
    assert any(sizes.values())
    assert rewards == ({1.0} if has_answers else set())
    assert {task.metadata["dataset"] for task in tasks} == {"named"}
