"""Sheets written as YAML files that read back as the same sheet."""

from app.characters.loading import MAX_FILE_BYTES, parse_model
from app.characters.schema import CharacterSheet
from app.characters.yaml_documents import dump_yaml
from app.domain.errors import InvalidRequest, TooLarge


def dump_sheet(sheet: CharacterSheet) -> str:
    """TooLarge beyond the import limit; InvalidRequest for text that YAML cannot represent."""
    text = dump_yaml(sheet.model_dump(mode="json"))
    if len(text.encode()) > MAX_FILE_BYTES:
        raise TooLarge(f"{sheet.id}: the sheet would exceed {MAX_FILE_BYTES} bytes")
    if parse_model(text, f"{sheet.id}.yaml", CharacterSheet) != sheet:
        raise InvalidRequest(f"{sheet.id}: contains text that YAML cannot represent")
    return text
