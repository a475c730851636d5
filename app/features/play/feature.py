"""Puts talking together: policies that the settings name, kept turns, routes for chat clients, and the page."""

from functools import partial
from pathlib import Path
from typing import Final

from app.characters.scenes import Scene
from app.domain.access import name_current_caller
from app.domain.errors import Conflict, UserError
from app.features.authoring.service import AuthoringService
from app.features.contract import Feature, FeatureParts, Kernel
from app.features.labels.service import LabelService
from app.features.play.memories import PlayMemories
from app.features.play.pages import TalkPages, create_talk_router
from app.features.play.routes import create_memories_router, create_play_router
from app.features.play.service import PlayService, PlayTurns, keep_scene
from app.features.play.stand_in import LOCAL_SERVERS, STAND_IN, LocalServers
from app.features.play.store import PlayStore
from app.features.worlds.service import WorldService
from app.features.worlds.store_memories import TalkStore
from app.http.viewer.rendering import MenuEntry, PageLink, ViewerParts, build_link
from app.inference.connection import Connection, Credentials, Endpoint
from app.inference.policies import ChatPolicyServer
from app.judges.panel import JudgePanel
from app.settings import PolicySettings


def build_play(kernel: Kernel) -> FeatureParts:
    characters, worlds = kernel.characters, kernel.find(WorldService)
    authoring = kernel.find(AuthoringService)

    async def list_drafted() -> list[str]:
        """Characters of which the caller keeps a draft."""
        files = await authoring.list_drafted(name_current_caller())
        return [file.removesuffix(".yaml") for file in files if "/" not in file]

    memories = PlayMemories(kernel.storage.part(TalkStore))
    playing = PlayService(
        policies=build_policies(kernel),
        worlds=worlds,
        memories=memories,
        list_sheets=characters.list_sheets,
        list_drafted=list_drafted,
        gates=JudgePanel((), 0.0),  # without judges it runs the gates alone
        quotas=kernel.gateway.quotas,
        clock=kernel.clock,
        disclosure=kernel.settings.play.disclosure,
    )

    async def keep(character: str, scene: Scene, author: str) -> None:
        """Scenes that people keep are written as authors' are."""
        sheet = next((sheet for sheet in characters.list_sheets() if sheet.id == character), None)
        if sheet is None:
            raise Conflict(f"{character} is not served any more")
        await keep_scene(authoring, sheet, scene, author)

    turns = PlayTurns(
        store=kernel.storage.part(PlayStore),
        playing=playing,
        labels=kernel.find(LabelService),
        panels=kernel.gateway.panels,
        keep_scene=keep,
        clock=kernel.clock,
        keep_days=kernel.settings.retention.play_days,
    )
    servers = LocalServers(LOCAL_SERVERS, {kernel.settings.port})
    pages = TalkPages(playing, turns, memories, worlds, servers.find, characters.list_homes)
    return FeatureParts(
        routers=[create_play_router(playing, turns, worlds), create_memories_router(memories, turns)],
        pages=[partial(create_talk_router, pages)],
        menu=[MenuEntry(70, "Talk", "/view/talk", "talk")],
        viewer=ViewerParts(link_character=[_link_character]),
        held=list(playing.policies.values()),
        lasting=[turns.prune_for_ever],
    )


def _link_character(name: str) -> PageLink:
    return PageLink("Talk", build_link("/view/talk", character=name), 10)


def build_policies(kernel: Kernel) -> dict[str, ChatPolicyServer]:
    """By name. ValueError for a key that cannot be had, and for the stand-in's name."""
    if STAND_IN in kernel.settings.policies:
        raise UserError(f"policies.{STAND_IN}: the name of the built-in stand-in; choose another name")
    return {name: _build_policy(kernel, name, policy) for name, policy in kernel.settings.policies.items()}


def _build_policy(kernel: Kernel, name: str, policy: PolicySettings) -> ChatPolicyServer:
    key = kernel.read_server_key(f"policies.{name}", policy)
    endpoint = Endpoint(policy.base_url, Credentials(key, policy.extra_headers), policy.api_version)
    return ChatPolicyServer(
        name=name,
        model=policy.model,
        connection=Connection(endpoint),
        temperature=policy.temperature,
        max_output_tokens=policy.max_output_tokens,
        deadline_seconds=policy.deadline_seconds,
        extra_body=policy.extra_body,
        continue_body=policy.continue_body,
        takes_tools=policy.tools,
    )


FEATURE: Final = Feature(
    name="play",
    build=build_play,
    needs=("worlds", "authoring", "labels"),
    templates=Path(__file__).with_name("templates"),
)
