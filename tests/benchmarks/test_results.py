"""Figures of benchmarks: kept as files, shown as tables."""

import re
from pathlib import Path

import pytest
from starlette.routing import Match

from app.main.application import create_app
from app.settings import Settings
from benchmarks import results
from benchmarks.__main__ import BENCHMARKS
from benchmarks.growth_routes import ASKED
from benchmarks.results import BenchmarkFigure, list_parts, render, run
from docs.generate import ROOT
from docs.markdown import names_in

ALONE = ("growth", "memory", "peers", "remembering")
"""Those that `make bench` does not run."""


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are kept in a folder of the test's own."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)


def test_each_benchmark_has_a_kept_result_and_a_part_of_the_page() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    wanted = sorted(f"benchmark-{name.replace('_', '-')}" for name in (*BENCHMARKS, *ALONE))
    assert (sorted(list_parts()), sorted(names_in(page))) == (wanted, wanted)


@pytest.mark.usefixtures("_elsewhere")
def test_what_was_measured_is_kept_and_shown() -> None:
    figures = [
        BenchmarkFigure.of("rate", [1999.7, 2345.6, 3210.0], "a second"),
        BenchmarkFigure.of("ratio", [0.25], at_least=0.33),
        BenchmarkFigure.of("wait", [12.0, 4.0], "ms", at_most=10),
    ]
    run("sample", lambda: figures, ["--record"])
    assert render("sample").splitlines()[2:] == [
        "| what | figure | wanted |",
        "| --- | --- | --- |",
        "| rate | 2,346 (2,000 to 3,210) a second |  |",
        "| ratio | 0.25 | at least 0.33 (missed) |",
        "| wait | 8 (4 to 12) ms | at most 10 |",
    ]


@pytest.mark.usefixtures("_elsewhere")
def test_figures_with_columns_are_one_wide_table() -> None:
    """Unit and bound stand in the head of a column whose figures have the same."""
    figures = [
        BenchmarkFigure.of("one", [1.0, 3.0], "ms", at_most=2, column="wait"),
        BenchmarkFigure.of("one", [5.0], "MB", at_most=4, column="size"),
        BenchmarkFigure.of("other", [3.0], "ms", at_most=2, column="wait"),
        BenchmarkFigure.of("other", [7.0], "%", column="size"),
        BenchmarkFigure.of("third", [1.0], "ms", at_most=2, column="wait"),
    ]
    run("sample", lambda: figures, ["--record"])
    assert render("sample").splitlines()[2:] == [
        "| what | wait, ms (at most 2) | size |",
        "| --- | --- | --- |",
        "| one | 2 (1 to 3) | 5 MB, missed: at most 4 |",
        "| other | 3, missed | 7 % |",
        "| third | 1 |  |",
    ]


@pytest.mark.usefixtures("_elsewhere")
@pytest.mark.parametrize(("arguments", "count"), [([], 1), (["--record"], 0)])
def test_nothing_is_kept_unless_it_is_asked_for_and_measured(tmp_path: Path, arguments: list[str], count: int) -> None:
    run("sample", lambda: [BenchmarkFigure.of("rate", [1.0])] * count, arguments)
    assert list(tmp_path.iterdir()) == []


def test_what_the_benchmark_of_growth_asks_for_is_there(tmp_path: Path) -> None:
    routes = create_app(Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}")).routes
    words = dict.fromkeys(re.findall(r"{(\w+)}", " ".join(path for paths in ASKED.values() for path in paths)), "x")
    asked = {path.format(**words).partition("?")[0] for paths in ASKED.values() for path in paths}
    scopes = {path: {"type": "http", "method": "GET", "path": path, "headers": []} for path in asked}
    missing = [path for path in asked if not any(one.matches(scopes[path])[0] == Match.FULL for one in routes)]
    assert missing == []
