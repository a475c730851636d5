"""Figures that commands measured of judges. The newest of each judge and command stays, and is never pruned."""

from sqlalchemy import Connection, select

from app.domain.judge_measurements import JudgeMeasurement
from app.domain.values import digest_of_text
from app.store.database import StorePart, reads, writes
from app.store.statements import decode, encode, upsert_rows
from app.store.tables import judge_measurements


class JudgeMeasurementStore(StorePart):
    @reads
    def find(self, connection: Connection, judge: str) -> tuple[JudgeMeasurement, ...]:
        """The newest first."""
        bodies = select(judge_measurements.c.body).where(judge_measurements.c.judge == judge)
        found = [decode(JudgeMeasurement, body) for body in connection.execute(bodies).scalars()]
        return tuple(sorted(found, key=lambda one: (one.measured_at, one.command), reverse=True))

    @writes(lambda measured: f"judge_measurements {measured.judge}")
    def put(self, connection: Connection, measured: JudgeMeasurement) -> None:
        row = {
            "judge": measured.judge,
            "command_digest": digest_of_text(measured.command),
            "body": encode(measured),
        }
        upsert_rows(connection, judge_measurements, "body", [row])
