"""Figures of benchmarks: kept as files, shown as tables."""

from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.results import BenchmarkFigure, render, run


def test_what_was_measured_is_kept_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
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


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    run("sample", lambda: [BenchmarkFigure.of("rate", [1.0])], [])
    assert list(tmp_path.iterdir()) == []
