"""Puts authoring together: what authors write takes the place of the folder's files."""

from functools import partial
from pathlib import Path
from typing import Final

from app.characters.schema import LANGUAGES
from app.domain.access import name_current_caller
from app.domain.tasks import Message
from app.envs.npc_arena.environment import NpcArena
from app.features.authoring.pages import AuthorPages, create_author_pages_router
from app.features.authoring.routes import create_author_router
from app.features.authoring.service import AuthoringService, CharacterSource, TextDraft, TrainingFinder
from app.features.authoring.store import AuthoredStore
from app.features.contract import Feature, FeatureParts, Kernel
from app.http.viewer.rendering import PageLink, ViewerParts


def build_authoring(kernel: Kernel) -> FeatureParts:
    characters = kernel.characters
    source = CharacterSource(NpcArena.name, characters.folder, characters.build_surroundings)
    store = kernel.storage.part(AuthoredStore)
    authoring = AuthoringService(source, kernel.gateway.catalogue, store, kernel.authors, kernel.refresh_examples)
    characters.replace_texts(authoring.list_written)
    characters.replace_reload(authoring.reload)
    characters.replace_drafts(lambda: authoring.list_drafts(name_current_caller()))
    kernel.gateway.drafting.fill_in = authoring.fill_in
    kernel.offer(authoring)

    async def build_prompt(file: str, draft: TextDraft) -> tuple[Message, ...]:
        return await characters.build_prompt(file, draft.text, draft.scene)

    trainings = TrainingFinder(NpcArena.name, kernel.gateway.views, kernel.gateway.runs)

    def list_languages() -> list[tuple[str, str]]:
        """In which every character is asked something: codes and names."""
        scene_sets = characters.build_surroundings().scene_sets
        codes = sorted({scenes.language for scenes in scene_sets if scenes.character is None})
        return [(code, LANGUAGES.get(code, (code,))[0]) for code in codes]

    pages = AuthorPages(
        authoring=authoring,
        workers=kernel.authors,
        build_prompt=build_prompt,
        list_names=characters.list_names,
        list_scenes=characters.list_scenes,
        list_languages=list_languages,
        find_trainings=trainings.find,
    )
    return FeatureParts(
        routers=[create_author_router(authoring, kernel.authors, build_prompt)],
        pages=[partial(create_author_pages_router, pages)],
        viewer=ViewerParts(
            link_character=[lambda name: PageLink("Edit", f"/view/characters/{name}/edit", 20)],
            link_characters=[PageLink("New character", "/view/author")],
        ),
        load=authoring.load_for_start,
        lasting=[authoring.run],
    )


FEATURE: Final = Feature(name="authoring", build=build_authoring, templates=Path(__file__).with_name("templates"))
