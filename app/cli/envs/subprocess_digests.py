"""`python -m app.cli.envs.subprocess_digests DATASETS WHERE …`: digests of first tasks, made in a separate process."""

import asyncio
import sys
from collections.abc import Sequence

import typer
from pydantic import TypeAdapter

from app.cli.envs.check import find_environment
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import DatasetSources
from app.domain.values import Frozen, Split
from app.toolkit.conformance.subject import SPLITS, compute_sample_digest


class SubprocessDigests(Frozen):
    """Result of a process for one environment."""

    digests: dict[Split, str] = {}
    broke: str = ""
    """Error message; empty on success."""


_Sources = dict[str, DatasetSources]

_SOURCES: TypeAdapter[_Sources] = TypeAdapter(_Sources)
_DIGESTS: TypeAdapter[dict[str, SubprocessDigests]] = TypeAdapter(dict[str, SubprocessDigests])


def _compute_digests(where: str, sources: _Sources) -> SubprocessDigests:
    try:
        environment = find_environment(where).kind.open(ConfiguredDatasets(sources))
        return SubprocessDigests(digests={split: compute_sample_digest(environment, split) for split in SPLITS})
    except Exception as error:  # whatever an environment may raise
        return SubprocessDigests(broke=f"{type(error).__name__}: {error}")


async def compute_digests_in_subprocess(wheres: Sequence[str], sources: _Sources) -> dict[str, SubprocessDigests]:
    """Digests from a new process, with another hash seed, by environment name or file. `sources`: of configured data
    sets. RuntimeError with the last line of its output when the process fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli.envs.subprocess_digests", _SOURCES.dump_json(sources).decode(), *wheres),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaint = await process.communicate()
    if process.returncode != 0:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"the separate process failed: {' '.join(last)}")
    return _DIGESTS.validate_json(output)


if __name__ == "__main__":
    every = {where: _compute_digests(where, _SOURCES.validate_json(sys.argv[1])) for where in sys.argv[2:]}
    typer.echo(_DIGESTS.dump_json(every).decode())
