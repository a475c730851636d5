"""Rows of what judges were asked and answered: one for each reading, and a count of what is in none."""

import json
from collections.abc import Sequence
from io import BytesIO

import pytest
from pyarrow import parquet
from pydantic import JsonValue

from app.domain.groups import StoredReading
from app.domain.judging import Judgement
from app.features.exports.model import ExportRequest, StoredGroup
from app.features.exports.service import stream_export, summarise_export
from tests.features.exports.test_service import NEWEST, Kept, judged, stored

PROMPT = json.dumps([{"role": "system", "content": "Judge."}, {"role": "user", "content": "{}"}])


def reading(
    judge: str = "sage", raw: str = "{}", key: str = "k", scoring_id: str = "", **more: object
) -> StoredReading:
    said = {"judge": judge, "model": "m", "order": ("a", "b"), "prompt": PROMPT, "raw": raw, "reading": key}
    return StoredReading(judgement=Judgement.model_validate({**said, **more}), scoring_id=scoring_id)


GROUP = stored(1, ("yes", judged(0.9, 0.9))).model_copy(
    update={
        "readings": (
            reading(input_tokens=7, output_tokens=3, calls=1, cost_usd=0.5, prompt_digest="p"),
            reading(scoring_id="scoring_1"),
            reading(key="other", scoring_id="scoring_1"),
            reading(error="out", raw="", key="failed"),
            reading("offline", raw="", prompt="", key=""),
            reading("second", key="second"),
        )
    }
)


def request(**wanted: object) -> ExportRequest:
    return ExportRequest.model_validate({"shape": "judgements", "private": True, **wanted})


async def read(groups: Sequence[StoredGroup], **wanted: object) -> bytes:
    return b"".join([piece async for piece in stream_export(Kept(groups), request(**wanted), NEWEST, {"offline"})])


async def test_a_row_holds_question_answer_usage_and_digests() -> None:
    row: dict[str, JsonValue] = json.loads((await read([GROUP])).splitlines()[0])
    names = ("judge", "model_name", "messages", "answer", "candidates", "input_tokens", "output_tokens", "calls")
    assert [row[name] for name in names] == ["sage", "m", json.loads(PROMPT), "{}", ["a", "b"], 7, 3, 1]
    assert [row[name] for name in ("cost_usd", "prompt_digest", "reading", "scoring_id")] == [0.5, "p", "k", ""]


@pytest.mark.parametrize(
    ("wanted", "rows", "left_out"),
    [
        ({}, 3, {"duplicate": 1, "no_answer": 1, "offline_judge": 1}),
        ({"judge": "second"}, 1, {"offline_judge": 1, "other_judge": 4}),
        ({"offline_judge": True}, 3, {"duplicate": 1, "no_answer": 2}),
    ],
)
async def test_what_is_in_no_row_is_counted(wanted: dict[str, object], rows: int, left_out: dict[str, int]) -> None:
    found = await summarise_export(Kept([GROUP]), request(**wanted), NEWEST, {"offline"})
    table = parquet.read_table(BytesIO(await read([GROUP], format="parquet", **wanted)))
    assert (found.rows, found.left_out, table.num_rows) == (rows, left_out, rows)


def test_what_the_policy_never_sees_is_asked_for_in_words() -> None:
    with pytest.raises(ValueError, match="set private as well"):
        request(private=False)
