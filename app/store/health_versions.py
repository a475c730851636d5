"""Versions of judges: what their servers said answered."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, func, select

from app.domain.health_records import JudgeVersion
from app.domain.judging import Judgement
from app.store.database import Database
from app.store.health_tables import judge_versions
from app.store.rows import decode_json, encode_json, from_micros

MOST_VERSIONS: Final = 100
"""Of one judge. A server may name another fingerprint in every reply."""


def record_judge_version(connection: Connection, database: Database, judgement: Judgement, stamp: int) -> None:
    mine = select(func.count()).select_from(judge_versions).where(judge_versions.c.judge == judgement.judge)
    if connection.execute(mine).scalar_one() >= MOST_VERSIONS:
        return
    row = {
        "judge": judgement.judge,
        "model": encode_json(judgement.served_model),
        "system_fingerprint": encode_json(judgement.system_fingerprint),
        "first_at": stamp,
    }
    connection.execute(database.insert_new(judge_versions), row)


def load_versions(connection: Connection, judges: Sequence[str]) -> list[JudgeVersion]:
    table = judge_versions.c
    chosen = select(judge_versions).where(table.judge.in_(judges))
    ordered = chosen.order_by(table.first_at, table.judge, table.model, table.system_fingerprint)
    return [
        JudgeVersion(
            judge=row["judge"],
            model=str(decode_json(row["model"])),
            system_fingerprint=str(decode_json(row["system_fingerprint"])),
            first_at=from_micros(row["first_at"]),
        )
        for row in connection.execute(ordered).mappings()
    ]
