"""`runs log`: names and figures of curves, which steps are finished, what a logger lacks, and TensorBoard's files."""

import itertools
import json
import math
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from app.cli.curve_logs import Held, TensorBoardLog, WandbChoice, open_log, read_wandb_records
from app.cli.curves import CurvePoint, CurveWriter, LoggedRun, PointBuilder, StepWatch, clean_part, find_step
from app.domain.errors import UserError
from app.domain.groups import StatisticsRow
from app.domain.values import Frozen
from tests.support.commands import ended
from tests.support.serving import Served
from tests.support.tables import read_table


class Expected(Frozen):
    rows: tuple[StatisticsRow, ...]
    values: dict[int, dict[str, float]]


class Tables(Frozen):
    names: dict[str, str]
    points: Expected


TABLES = read_table(__file__, "curves.yaml", Tables)


def test_names_hold_letters_digits_and_underscores_alone_and_two_stay_two() -> None:
    assert {text: clean_part(text) for text in TABLES.names} == TABLES.names


def test_figures_of_a_step_stand_under_their_environment_label_and_data_set() -> None:
    rows, expected = TABLES.points.rows, TABLES.points.values
    assert {one.step: one.values for one in PointBuilder().build(rows)} == expected


# Which steps are finished.


def row(step: int | None, groups: int = 1, pending: int = 0) -> StatisticsRow:
    counts = {"groups": groups, "low_signal": 0, "scored": groups, "unscored": 0, "pending": pending}
    return StatisticsRow(environment="e", run="r", step=step, **counts, mean_reward=0.5, mean_absolute=0.5)


def test_a_step_is_finished_once_a_later_one_has_groups_and_it_is_quiet_and_nothing_is_pending() -> None:
    watch = StepWatch(settle_seconds=30)
    looks = [
        (0.0, [row(1), row(2), row(3), row(4, pending=1), row(None)], True),  # what was long before needs no pause
        (29.0, [row(1), row(2), row(3, groups=2), row(4, pending=1)], True),
        (31.0, [row(1), row(2), row(3, groups=2), row(4, pending=1), row(5)], True),
        (60.0, [row(1), row(2), row(3, groups=2), row(4, pending=1), row(5)], True),
        (99.0, [row(1, groups=2), row(2), row(3, groups=2), row(4), row(5)], True),
        (130.0, [row(1, groups=2), row(2), row(3, groups=2), row(4), row(5)], True),
        (131.0, [row(1, groups=2), row(2), row(3, groups=2), row(4), row(5)], False),  # the run trains no more
    ]
    taken = []
    for now, rows, is_training in looks:
        watch.look(rows, now)
        taken.append(watch.take_finished(now, is_training=is_training))
    assert taken == [[1, 2], [], [], [3], [], [1, 4], [5]]


def test_an_alarm_stands_at_the_step_that_had_its_group() -> None:
    rows = [row(3, groups=5), row(1, groups=10), row(2, groups=5), row(None, groups=50)]
    assert [find_step(rows, group) for group in (1, 10, 11, 20, 99)] == [1, 1, 2, 3, 3]


# What a logger lacks.


class KeptLog:
    """A class of one's own, whose file cannot be changed, only added to."""

    rewrites = False

    def __init__(self, run: str) -> None:
        self.place = f"{run}.jsonl"
        self.file = Path(self.place)

    def read(self) -> Held:
        held: dict[int, dict[str, float]] = {}
        notes: set[str] = set()
        for line in self.file.read_text().splitlines() if self.file.exists() else ():
            step, values, note = json.loads(line)
            held.setdefault(step, {}).update(values)
            notes |= {note} - {None}
        return held, notes

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._add([step, dict(values), None])

    def note(self, note_id: str, title: str, text: str, step: int) -> None:
        self._add([step, {}, note_id])

    def _add(self, line: object) -> None:
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        pass


class StoppedLog(KeptLog):
    """Somebody presses Ctrl-C while it writes."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        super().write(step, {"groups": values["env/math/groups"]})
        os.kill(os.getpid(), signal.SIGINT)

    def close(self) -> None:
        self.note("closed", "", "", 0)


def test_a_logger_that_keeps_what_it_has_gets_what_it_lacks_and_late_changes_are_told(tmp_path: Path) -> None:
    log = KeptLog(str(tmp_path / "r"))
    CurveWriter.begin(log).write([CurvePoint(1, {"a": 0.5}), CurvePoint(2, {"a": 1 / 3})])
    again = CurveWriter.begin(log)
    again.write([CurvePoint(1, {"a": 0.75, "b": 1.0}), CurvePoint(2, {"a": 1 / 3}), CurvePoint(3, {"a": 0.0})])
    lines = [json.loads(line)[:2] for line in log.file.read_text().splitlines()]
    assert lines == [[1, {"a": 0.5}], [2, {"a": 1 / 3}], [1, {"b": 1.0}], [3, {"a": 0.0}]]
    assert (again.written, again.late, again.held[1]) == (2, {1}, {"a": 0.5, "b": 1.0})


def test_event_files_are_the_same_wherever_the_writer_was_killed(tmp_path: Path) -> None:
    """Cut off at any byte, the second start completes them; a late change replaces its step."""
    points = [CurvePoint(step, {"env/e/reward": step / 8, "env/e/lag": 1.0}) for step in range(4)]
    whole = tmp_path / "whole"
    write(whole, points)
    (file,) = whole.iterdir()
    data = file.read_bytes()
    found = []
    for place in range(0, len(data), 7):
        folder = tmp_path / str(place)
        folder.mkdir()
        (folder / file.name).write_bytes(data[:place])
        write(folder, points)
        found.append((place, read(folder), write(folder, points)))
    held = {one.step: one.values for one in points}
    assert found == [(place, held, 0) for place in range(0, len(data), 7)]
    late = [points[0], CurvePoint(1, {"env/e/reward": 1.0, "env/e/lag": 1.0}), *points[2:]]
    assert (write(whole, late), read(whole)) == (1, {one.step: one.values for one in late})


def write(folder: Path, points: list[CurvePoint]) -> int:
    """How many steps it lacked."""
    log = TensorBoardLog(folder)
    writer = CurveWriter.begin(log)
    writer.write(points)
    log.close()
    return writer.written


def read(folder: Path) -> Mapping[int, Mapping[str, float]]:
    return TensorBoardLog(folder).read()[0]


def test_a_folder_with_the_curves_of_another_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"")
    with pytest.raises(UserError, match="another program has written curves here; choose another --dir"):
        TensorBoardLog(tmp_path).read()


def test_records_of_wandb_are_read_over_its_blocks_until_one_is_cut_off() -> None:
    def part(kind: int, piece: bytes) -> bytes:
        return bytes(4) + len(piece).to_bytes(2, "little") + bytes([kind]) + piece

    # 5 bytes before the end of a block there is no place for a head.
    first = part(1, b"x" * (2**15 - 7 - 7 - 5)) + bytes(5)
    long = part(2, b"a" * (2**15 - 7)) + part(3, b"b" * (2**15 - 7)) + part(4, b"c")
    data = bytes(7) + first + long + part(1, b"whole") + part(1, b"cut off")[:-1]
    assert [(record[:1], len(record)) for record in read_wandb_records(data)] == [
        (b"x", 2**15 - 19),
        (b"a", 2**16 - 13),
        (b"w", 5),
    ]


def test_a_logger_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    told = {}
    for to in ("wandb", "tensorbord", "nowhere:Log", "json:Log"):
        with pytest.raises(UserError) as caught:
            open_log(to, "r", tmp_path, WandbChoice("", ""))
        told[to] = str(caught.value)
    assert told == {
        "wandb": "the package wandb is not installed: pip install 'atropos-environments[wandb]'",
        "tensorbord": "`--to`: there is no logger 'tensorbord'; did you mean 'tensorboard'?",
        "nowhere:Log": "`--to nowhere:Log`: No module named 'nowhere'",
        "json:Log": "`--to json:Log`: module 'json' has no attribute 'Log'",
    }


# The command, against a gateway.


def send(url: str, run: str, step: int | None, groups: int) -> None:
    asked = {"run": run, "batch_size": groups, "params": {"level": "mixed"}}
    tasks = httpx.post(f"{url}/envs/math/next-batch", json=asked).raise_for_status().json()["tasks"]
    sent = [
        {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": [{"text": "7"}, {"text": "1"}]}
        for task in tasks
    ]
    policy = {"model": "m", "step": step}
    httpx.post(f"{url}/score", json={"run": run, "groups": sent, "policy": policy}).raise_for_status()


def log(served: Served, run: str, *more: str) -> tuple[LoggedRun, dict[int, float]]:
    done = ended("runs", "log", run, "--to", "tensorboard", "--url", served.url, "--json", *more)
    assert done.returncode == 0, done.stderr
    held = read(Path("curves") / run)
    return LoggedRun.model_validate_json(done.stdout), {
        step: values["env/math/groups"] for step, values in held.items()
    }


def test_event_files_have_the_figures_of_stats_and_a_run_that_is_finished_ends_it(served: Served) -> None:
    run = "curves"
    for step in (1, 2, 3):
        send(served.url, run, step, 4)
    first = log(served, run)
    send(served.url, run, None, 1)
    send(served.url, run, 1, 2)  # late
    httpx.put(f"{served.url}/runs/{run}", json={"health": {"finished": True}}).raise_for_status()
    second = log(served, run, "--follow", "--settle", "0")
    third = log(served, run)
    counts = ("steps", "written", "unfinished", "late", "without_step")
    told = [(tuple(getattr(report, name) for name in counts), held) for report, held in (first, second, third)]
    assert told == [
        ((2, 2, (3,), (), 0), {1: 4, 2: 4}),
        ((3, 2, (), (), 1), {1: 6, 2: 4, 3: 4}),
        ((3, 0, (), (), 1), {1: 6, 2: 4, 3: 4}),
    ]
    rows = [
        StatisticsRow.model_validate(one)
        for by in ("", "&by=label", "&by=dataset")
        for one in httpx.get(f"{served.url}/stats?run={run}{by}").json()["rows"]
    ]
    values = {one.step: one.values for one in PointBuilder().build(rows)}
    held = read(Path("curves") / run)
    pairs = itertools.zip_longest(sorted(flatten(values)), sorted(flatten(held)))
    assert [
        one for one in pairs if one[0][:2] != one[1][:2] or not math.isclose(one[0][2], one[1][2], rel_tol=1e-6)
    ] == []
    assert {name.split("/")[2] for name in held[1]} > {"easy", "hard", "reward"}


def test_ctrl_c_ends_it_with_all_written_also_in_a_class_of_ones_own(served: Served) -> None:
    run = "curves-stopped"
    for step in (1, 2, 3):
        send(served.url, run, step, 2)
    words = ("runs", "log", run, "--to", f"{__name__}:StoppedLog", "--follow", "--settle", "0", "--url", served.url)
    done = ended(*words)
    lines = [json.loads(line) for line in Path(f"{run}.jsonl").read_text().splitlines()]
    assert lines == [[1, {"groups": 2}, None], [2, {"groups": 2}, None], [0, {}, "closed"]]
    assert (done.returncode, done.stdout.splitlines()) == (
        130,
        [f"{run}.jsonl: 2 steps of {run}, 2 written now", "not finished, so not written: step 3"],
    )


def flatten(values: Mapping[int, Mapping[str, float]]) -> list[tuple[int, str, float]]:
    return [(step, name, value) for step, of in values.items() for name, value in of.items()]


def test_a_run_that_is_not_there_is_refused_before_anything_is_written(served: Served) -> None:
    done = ended("runs", "log", "nobody", "--to", "tensorboard", "--url", served.url)
    assert (done.returncode, "there is no run 'nobody'" in done.stderr, Path("curves").exists()) == (2, True, False)
