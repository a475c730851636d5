"""How a judge is best asked: how many replies at once, and whether one reading goes ahead of the others."""

from typing import Final

from app.ports.judges import Judge, PacedJudge, ReadingPace

AT_ONCE: Final = ReadingPace(warms_cache=False)


def get_pace(judge: Judge) -> ReadingPace:
    """Judges without a server have no cache to warm."""
    return judge.pace if isinstance(judge, PacedJudge) else AT_ONCE
