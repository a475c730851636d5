"""What an author is shown of a text that is still being written: findings, and the prompt as it will be."""

import asyncio
from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from app.characters.sheet_sources import SheetFinding
from app.domain.authored_files import MAX_AUTHORED, SCENE_FILES
from app.domain.errors import GatewayError
from app.domain.tasks import Message
from app.domain.values import Frozen, Name
from app.service.authoring import AuthoringService


class TextDraft(Frozen):
    text: Annotated[str, Field(max_length=MAX_AUTHORED)]
    scene: Name | None = None
    """The scene whose prompt is shown; by default the first."""


class CheckedText(Frozen):
    """The prompt is empty where there is none: `no_prompt` says why."""

    findings: tuple[SheetFinding, ...]
    errors: int
    prompt: tuple[Message, ...] = ()
    no_prompt: str = ""


BuildPrompt = Callable[[str, TextDraft], tuple[Message, ...]]
"""From a file and its draft. InvalidRequest where it has no prompt."""


def name_file(character: str, suffix: str) -> str:
    """Of a character's sheet, or of its scenes for any suffix."""
    return f"{SCENE_FILES}{character}.yaml" if suffix else f"{character}.yaml"


async def check_draft(
    authoring: AuthoringService, build_prompt: BuildPrompt, file: str, draft: TextDraft
) -> CheckedText:
    findings = await authoring.check(file, draft.text)
    errors = sum(finding.level == "error" for finding in findings)
    try:
        prompt = await asyncio.to_thread(build_prompt, file, draft)
    except GatewayError as error:
        return CheckedText(findings=findings, errors=errors, no_prompt=error.detail)
    return CheckedText(findings=findings, errors=errors, prompt=prompt)
