"""docs/characters.md: every character once, every field with its reader, nothing that only judges may read."""

import re

from app.characters.loading import parse_model
from app.characters.scenes import SceneSet
from docs.generate import pages
from tests.support.packaged_arena import packaged_arena

SHEETS = packaged_arena().sheets


def test_the_page_quotes_nothing_that_only_judges_may_read_and_no_secret() -> None:
    page = pages()["docs/characters.md"]
    hidden = [
        text
        for sheet in SHEETS
        for text in (
            sheet.meta.notes,
            *(secret.text for secret in sheet.secrets),
            *(term for secret in sheet.secrets for term in secret.leak_terms),
            *(fact.text for fact in sheet.lore_facts),
            *(exemplar.reply for exemplar in sheet.probes.exemplars),
            *(counter.reply for counter in sheet.voice.counter_examples),
            *sheet.probes.gold_facts,
            *sheet.probes.distractors,
        )
        if text
    ]
    assert [text for text in hidden if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", page, re.IGNORECASE)] == []


def test_the_scenes_that_are_shown_can_be_read() -> None:
    shown = re.findall(r"```yaml\n(.*?)```", pages()["docs/characters.md"], re.DOTALL)
    kinds = [scene.kind for text in shown for scene in parse_model(text, "shown", SceneSet).scenes]
    assert kinds == ["withheld_event", "action", "memory", "company"]
