"""`python -m app.cli.envs.elsewhere DATASETS WHERE …`: digests of the first tasks, computed in a separate process."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence

import typer
from pydantic import TypeAdapter

from app.cli.envs.found import found
from app.datasets.configured import ConfiguredDatasets
from app.domain.values import Frozen, Split
from app.toolkit.conformance.subject import SPLITS, digest_of_sample


class Told(Frozen):
    """Result of a process for one environment."""

    digests: dict[Split, str] = {}
    broke: str = ""
    """Error message; empty on success."""


_TOLD: TypeAdapter[dict[str, Told]] = TypeAdapter(dict[str, Told])


def told(where: str, locations: Mapping[str, str]) -> Told:
    try:
        environment = found(where).kind.open(ConfiguredDatasets(locations))
        return Told(digests={split: digest_of_sample(environment, split) for split in SPLITS})
    except Exception as error:  # whatever an environment may raise
        return Told(broke=f"{type(error).__name__}: {error}")


async def told_elsewhere(wheres: Sequence[str], locations: Mapping[str, str]) -> dict[str, Told]:
    """Digests from a new process, with another hash seed, by environment name or file. `locations`: of configured data
    sets. RuntimeError with the last line of its output when the process fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli.envs.elsewhere", json.dumps(dict(locations)), *wheres),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complaint = await process.communicate()
    if process.returncode != 0:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"the separate process failed: {' '.join(last)}")
    return _TOLD.validate_json(said)


if __name__ == "__main__":
    every = {where: told(where, json.loads(sys.argv[1])) for where in sys.argv[2:]}
    typer.echo(_TOLD.dump_json(every).decode())
