"""Curves of a run in MLflow: a class with the four methods that `atropos-envs runs log` asks for.

pip install mlflow-skinny sqlalchemy alembic            # beside the project; a tracking server needs the first alone
export MLFLOW_TRACKING_URI=sqlite:///curves.db          # or http://127.0.0.1:5000, a server
cd examples && atropos-envs runs log my-run --to mlflow_curves:MlflowCurves --follow

You will see a run named my-run in the experiment `atropos-envs`. Write the same four methods for another logger.
"""

import time
from collections import defaultdict
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric


class MlflowCurves:
    rewrites = False  # MLflow keeps both values where a step is logged again

    def __init__(self, run: str) -> None:
        self.client = MlflowClient()
        found = self.client.get_experiment_by_name("atropos-envs")
        experiment = found.experiment_id if found else self.client.create_experiment("atropos-envs")
        known = self.client.search_runs([experiment], f"attributes.run_name = '{run}'")
        self.run = (known[0] if known else self.client.create_run(experiment, run_name=run)).info.run_id
        self.place = f"MLflow run {self.run}"

    def read(self) -> tuple[dict[int, dict[str, float]], set[str]]:
        data = self.client.get_run(self.run).data
        held: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for name in data.metrics:
            for point in self.client.get_metric_history(self.run, name):
                held[point.step][name] = point.value
        return held, {name.removeprefix("alarm.") for name in data.tags if name.startswith("alarm.")}

    def write(self, step: int, values: Mapping[str, float]) -> None:
        metrics = [Metric(name, value, int(time.time() * 1000), step) for name, value in values.items()]
        for first in range(0, len(metrics), 1000):  # what MLflow takes at once
            self.client.log_batch(self.run, metrics[first : first + 1000])

    def note(self, note_id: str, title: str, text: str, step: int) -> None:
        self.client.set_tag(self.run, f"alarm.{note_id}", f"{title}, step {step}: {text}")

    def close(self) -> None:
        self.client.set_terminated(self.run)
