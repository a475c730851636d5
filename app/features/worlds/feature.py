"""Puts worlds together: their service, routes and pages, and the retriever that finds their events."""

from functools import partial
from pathlib import Path
from typing import Final

from app.envs.npc_arena.environment import NpcArena
from app.features.contract import Feature, FeatureParts, Kernel, Storage
from app.features.worlds.author_pages import create_new_world_router, create_world_editors_router
from app.features.worlds.pages import WorldPages, create_world_pages_router
from app.features.worlds.routes import create_worlds_router
from app.features.worlds.service import WorldService
from app.features.worlds.store import EventStore
from app.features.worlds.store_worlds import EarlierTextStore, LorebookStore
from app.http.viewer.rendering import MenuEntry
from app.rag.world_retriever import WorldRetriever


def build_world_retriever(storage: Storage) -> WorldRetriever:
    return WorldRetriever(storage.part(EventStore), storage.part(LorebookStore))


def build_worlds(kernel: Kernel) -> FeatureParts:
    worlds = WorldService(
        environment=NpcArena.name,
        catalogue=kernel.gateway.catalogue,
        drafting=kernel.gateway.drafting,
        events=kernel.storage.part(EventStore),
        lorebooks=kernel.storage.part(LorebookStore),
        texts=kernel.storage.part(EarlierTextStore),
        retrieval=kernel.gateway.retrieval,
    )
    kernel.offer(worlds)
    characters = kernel.characters
    pages = WorldPages(worlds, characters.list_cards, characters.list_sheets, characters.list_drafts)
    return FeatureParts(
        routers=[create_worlds_router(worlds, kernel.authors)],
        pages=[
            partial(create_world_pages_router, pages),
            partial(create_new_world_router, pages),
            partial(create_world_editors_router, worlds, kernel.authors),
        ],
        menu=[MenuEntry(60, "Worlds", "/view/worlds", "worlds")],
    )


FEATURE: Final = Feature(
    name="worlds",
    build=build_worlds,
    retrievers={"worlds": build_world_retriever},
    templates=Path(__file__).with_name("templates"),
)
