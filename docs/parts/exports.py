"""The columns of each shape of export, and what may be asked for."""

from collections.abc import Mapping
from typing import Final

from pydantic import BaseModel

from app.features.exports.model import ExportRequest
from app.features.exports.rows import DpoRow, KtoRow, PrivateRow, RolloutRow, RowOrigin, SftRow
from app.features.exports.service import JudgementRow, LabelRow
from docs.markdown import code, table
from docs.parts.schemas import Fields

_SHAPES: Final[Mapping[str, type[BaseModel]]] = {
    "all": RowOrigin,
    "rollouts": RolloutRow,
    "with private": PrivateRow,
    "sft": SftRow,
    "dpo": DpoRow,
    "kto": KtoRow,
    "judgements": JudgementRow,
    "labels": LabelRow,
}


def export_request() -> str:
    fields = Fields(ExportRequest)
    rows = [
        (code(name), fields.type_in_words(name), fields.default(name), fields.meaning(name))
        for name in (field.alias or name for name, field in ExportRequest.model_fields.items())
    ]
    return table(("name", "type", "default", "meaning"), rows)


def export_columns() -> str:
    """What every row has, and then by shape what comes to it."""
    return table(
        ("shape", "column", "type", "meaning"),
        [row for shape, model in _SHAPES.items() for row in _columns(shape, model)],
    )


def _columns(shape: str, model: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    fields = Fields(model)
    above = model.__bases__[0].model_fields if issubclass(model.__bases__[0], RowOrigin) else {}
    return [
        (shape, code(name), fields.type_in_words(name), fields.meaning(name))
        for name in model.model_fields
        if name not in above
    ]
