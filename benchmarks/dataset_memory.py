"""What a data set of a million rows costs: `python -m benchmarks.dataset_memory [--rows 1000000]`.

In a process of its own it opens `math` over a file of so many rows, as the service does, and makes tasks from all over
it. It prints how much memory that added, beside what the same process has with a data set of ten rows, the seconds to
prepare and to check the rows, and tasks a second. `anonymous` is memory of the process alone; what is mapped from disk
is given back when others need it.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel

from app.datasets.configured_datasets import ConfiguredDatasets
from app.envs.math.environment import Math, MathParams

FEW = 10
TASKS = 20_000


class Measured(BaseModel):
    seconds: float
    tasks_per_second: float
    anonymous_mb: float
    """When everything is read."""
    resident_mb: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.open is not None:
        sys.stdout.write(_measure(given.open, given.cache).model_dump_json())
        return
    with TemporaryDirectory() as folder:
        files = {count: _write_rows(Path(folder) / f"{count}.jsonl", count) for count in (FEW, given.rows)}
        few, first, again = (_run(files[count], Path(folder) / "cache") for count in (FEW, given.rows, given.rows))
    seconds = f"prepared and checked in {first.seconds:.1f} s, checked again in {again.seconds:.1f} s"
    sys.stdout.write(f"{given.rows:,} rows, {seconds}\n")
    for name, measured in (("first start", first), ("next start", again)):
        added = measured.anonymous_mb - few.anonymous_mb
        mapped, peak = measured.resident_mb - few.resident_mb, measured.peak_mb - few.peak_mb
        sys.stdout.write(f"{name}: {added:.0f} MB of memory added, {mapped:.0f} MB with what is mapped from disk")
        sys.stdout.write(f", {peak:.0f} MB at the peak; {measured.tasks_per_second:,.0f} tasks/s")
        sys.stdout.write(f" ({few.tasks_per_second:,.0f} with {FEW} rows)\n")


def _write_rows(file: Path, count: int) -> Path:
    luck = random.Random(1)
    with file.open("w", encoding="utf-8") as lines:
        for number in range(count):
            words = " ".join(luck.choice(("apples", "pears", "plums", "buns", "boxes")) for _ in range(40))
            row = {
                "problem": f"Of {number} {words}, how many?",
                "answer": str(luck.randrange(10**6)),
                "level": "Level 3",
            }
            lines.write(json.dumps(row) + "\n")
    return file


def _run(file: Path, cache: Path) -> Measured:
    command = [sys.executable, "-m", "benchmarks.dataset_memory", "--open", str(file), "--cache", str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return Measured.model_validate_json(done.stdout)


def _measure(file: Path, cache: Path) -> Measured:
    began = time.monotonic()
    environment = Math.open(ConfiguredDatasets({"math": str(file)}, hub_cache=cache))
    seconds = time.monotonic() - began
    params = MathParams()
    size = environment.size("train", params) or 0
    luck = random.Random(2)
    places = [luck.randrange(size) for _ in range(TASKS)]
    began = time.monotonic()
    for place in places:
        environment.task("train", place, params)
    rate = TASKS / (time.monotonic() - began)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines())
    anonymous, resident, peak = (int(status[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS", "VmHWM"))
    return Measured(seconds=seconds, tasks_per_second=rate, anonymous_mb=anonymous, resident_mb=resident, peak_mb=peak)


if __name__ == "__main__":
    main()
