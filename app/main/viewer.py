"""The pages for people, put together from the gateway's parts."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter

from app.domain.programs import Isolation
from app.domain.trajectories import TrajectoryRunStatus
from app.http.api.export_routes import build_label_rows
from app.http.viewer.author_pages import AuthorPages, create_author_pages_router
from app.http.viewer.character_pages import create_character_pages_router
from app.http.viewer.compare_pages import create_compare_router
from app.http.viewer.export_pages import ExportPages, create_export_page_router
from app.http.viewer.home_pages import HomePages
from app.http.viewer.label_pages import LabelPages, create_label_page_router
from app.http.viewer.pages import create_viewer_router
from app.http.viewer.rendering import Renderer
from app.http.viewer.run_pages import RunPages, create_run_pages_router
from app.http.viewer.talk_pages import TalkPages, create_talk_router
from app.http.viewer.world_author_pages import create_world_author_router
from app.http.viewer.world_pages import WorldPages, create_world_pages_router
from app.judges.offline import NAME as OFFLINE
from app.main.served_characters import ServedCharacters
from app.ports.runtime import Clock
from app.service.gateway import Gateway
from app.service.judge_listing import list_judge_models, list_judges
from app.service.overview import list_environments


@dataclass(frozen=True)
class ViewerParts:
    """`free_bytes` is None where the data lies on a server."""

    gateway: Gateway
    served: ServedCharacters
    list_queues: Callable[[], Awaitable[Sequence[TrajectoryRunStatus]]]
    sign_in: Callable[[Renderer], APIRouter]
    clock: Clock
    free_bytes: Callable[[], float] | None
    talk: TalkPages
    authors: AuthorPages


def create_viewer(parts: ViewerParts) -> APIRouter:
    gateway, clock = parts.gateway, parts.clock
    roster = partial(list_judges, gateway.catalogue, gateway.panels)
    environments = partial(list_environments, gateway.catalogue, gateway.panels)
    runs = RunPages(gateway.runs, gateway.run_health, gateway.views, clock, partial(list_judge_models, gateway.panels))

    def get_isolation() -> Isolation | None:
        return gateway.catalogue.isolation

    worlds = WorldPages(gateway.worlds, parts.served.list_cards)
    exports = ExportPages(gateway.exports, gateway.views, partial(build_label_rows, gateway), {OFFLINE})
    return create_viewer_router(
        gateway.views,
        tuple(gateway.catalogue.classes),
        judges=roster,
        queues=parts.list_queues,
        find_cost=gateway.runs.find_cost,
        find_rubric=gateway.rubrics.find,
        list_labels=gateway.labels.list_of_group,
        home=HomePages(gateway.views, roster, environments, get_isolation, parts.free_bytes, runs),
        sections=(
            partial(create_export_page_router, exports),
            partial(create_label_page_router, LabelPages(gateway.labelling, gateway.bounds, roster, clock)),
            partial(create_world_pages_router, worlds),
            partial(create_world_author_router, worlds.world_service),
            partial(create_author_pages_router, parts.authors),
            partial(create_character_pages_router, parts.served.build_pages()),
            partial(create_run_pages_router, runs),
            partial(create_compare_router, runs),
            partial(create_talk_router, parts.talk),
            parts.sign_in,
        ),
    )
