"""What groups of scenes add up to."""

from dataclasses import dataclass

from app.domain.rollups import Rollup


@dataclass(frozen=True)
class SceneSums:
    """What training groups of a run add up to by policy step and scene, which is the label of each key. Of the scenes
    that are `sampled` not all groups were read."""

    rollups: tuple[Rollup, ...] = ()
    sampled: tuple[str, ...] = ()
