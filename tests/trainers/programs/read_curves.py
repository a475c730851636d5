"""Points and notes that a logger has, as its own package reads them: `read_curves.py LOGGER PLACE OUT`.

TensorBoard by its own reader, MLflow by its client. W&B's package reads no files, but has the form of their records."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.cli.curve_logs import read_wandb_records

Point = tuple[int, str, float]


def read_tensorboard(place: Path) -> tuple[list[Point], list[str]]:
    if not place.exists():
        return [], []
    curves = load(place)
    points = [(one.step, tag, one.value) for tag in curves.Tags()["scalars"] for one in curves.Scalars(tag)]
    if not (place / "alarms").exists():
        return points, []
    alarms = load(place / "alarms")
    return points, [text.decode() for tag in alarms.Tags()["tensors"] for text in read_texts(alarms.Tensors(tag))]


def load(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), {"scalars": 0, "tensors": 0})  # 0: all of them, not a sample
    found.Reload()
    return found


def read_texts(tensors: Any) -> Iterator[bytes]:
    for one in tensors:
        yield from one.tensor_proto.string_val


def read_wandb(place: Path) -> tuple[list[Point], list[str]]:
    from wandb.proto.wandb_internal_pb2 import Record

    points: list[Point] = []
    notes: list[str] = []
    for file in sorted(place.glob("offline-run-*/run-*.wandb")):
        for data in read_wandb_records(file.read_bytes()):
            record = Record.FromString(data)
            row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            points += [
                (row["env/step"], name, row[name]) for name in row if name.startswith("env/") and name != "env/step"
            ]
            notes += [record.alert.text] if record.alert.text else []
    return points, notes


def read_mlflow(_: Path) -> tuple[list[Point], list[str]]:
    from mlflow import MlflowClient

    client = MlflowClient()
    experiments = [one.experiment_id for one in client.search_experiments(filter_string="name = 'atropos-envs'")]
    points: list[Point] = []
    notes: list[str] = []
    for run in client.search_runs(experiments) if experiments else ():
        history = (one for name in run.data.metrics for one in client.get_metric_history(run.info.run_id, name))
        points += [(one.step, one.key, one.value) for one in history]
        notes += [text for name, text in run.data.tags.items() if name.startswith("alarm.")]
    return points, notes


READERS: dict[str, Callable[[Path], tuple[list[Point], list[str]]]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "mlflow_curves:MlflowCurves": read_mlflow,
}

if __name__ == "__main__":
    logger, read_from, out = sys.argv[1:]
    Path(out).write_text(json.dumps(READERS[logger](Path(read_from))), encoding="utf-8")
