"""`python -m app.cli.envs.elsewhere WHERE`: the digests of an environment's first tasks, as this process makes them."""

import asyncio
import json
import sys
from collections.abc import Mapping

import typer
from pydantic import TypeAdapter

from app.cli.envs.found import found
from app.conformance.subject import SPLITS, digest_of_sample
from app.domain.values import Split
from app.ports import Environment
from app.sources.configured import ConfiguredDatasets

_DIGESTS = TypeAdapter(dict[Split, str])


def digests_of(environment: Environment) -> dict[Split, str]:
    return {split: digest_of_sample(environment, split) for split in SPLITS}


async def digests_elsewhere(where: str, locations: Mapping[str, str]) -> dict[Split, str]:
    """From a new process, whose hashes and sets are in another order. `locations`: of configured data sets.
    RuntimeError with the last line that it wrote when the environment breaks there."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli.envs.elsewhere", where, json.dumps(dict(locations))),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaint = await process.communicate()
    if process.returncode != 0:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"in a process of its own it breaks: {' '.join(last)}")
    return _DIGESTS.validate_json(said)


if __name__ == "__main__":
    typer.echo(json.dumps(digests_of(found(sys.argv[1]).kind.open(ConfiguredDatasets(json.loads(sys.argv[2]))))))
