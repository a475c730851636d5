"""Detects the version of a card and finds its fields."""

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import JsonValue

from app.characters.cards.json_fields import JsonFields, Object, build_refusal

Version = Literal["V1", "V2", "V3"]

SPECS: Final[dict[Version, tuple[str, str]]] = {"V2": ("chara_card_v2", "2.0"), "V3": ("chara_card_v3", "3.0")}
V1_FIELDS: Final = ("name", "description", "personality", "scenario", "first_mes", "mes_example")


@dataclass(frozen=True)
class ParsedCard:
    """`document` is the whole file, `fields` the object with the card's fields."""

    version: Version
    document: Object
    fields: JsonFields
    newer: str | None = None
    """The declared version if it is unknown."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Names of unspecified top-level fields."""
        specified = V1_FIELDS if self.version == "V1" else ("spec", "spec_version", "data")
        return tuple(name for name in self.document if name not in specified)


def parse_card(value: JsonValue) -> ParsedCard | None:
    """None if it is not a card, such as a lorebook. InvalidRequest naming the field of an invalid card."""
    if not isinstance(value, dict):
        raise build_refusal("the document", "must be a JSON object")
    spec = value.get("spec")
    if isinstance(spec, str) and spec.startswith("chara_card_v"):
        version: Version = "V2" if spec == "chara_card_v2" else "V3"
        if not isinstance(value.get("data"), dict):
            raise build_refusal("data", "must be an object: the card's fields")
        said = str(value.get("spec_version", SPECS[version][1]))[:20]
        known = (spec, said) in SPECS.values()
        return ParsedCard(version, value, JsonFields(value).get_part("data"), None if known else f"{spec[:40]} {said}")
    if spec is None and "entries" not in value and any(name in value for name in V1_FIELDS):
        return ParsedCard("V1", value, JsonFields({name: value[name] for name in V1_FIELDS if name in value}))
    return None
