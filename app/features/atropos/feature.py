"""Puts the Atropos queue together: the routes that Atropos trainers and environments poll, its ports and its page."""

from functools import partial
from pathlib import Path
from typing import Final

from app.features.atropos.pages import create_queues_router
from app.features.atropos.routes import PREFIX, create_atropos_router, create_post_routes
from app.features.atropos.service import AtroposQueue
from app.features.atropos.store import TrajectoryQueue
from app.features.contract import Feature, FeatureParts, Kernel
from app.http.compat.kept_sessions import PortRoot
from app.http.viewer.rendering import MenuEntry


def build_atropos(kernel: Kernel) -> FeatureParts:
    queue = AtroposQueue(kernel.storage.part(TrajectoryQueue), kernel.observer, kernel.clock)
    most_bytes = kernel.settings.max_body_bytes
    return FeatureParts(
        polled=[*create_post_routes(queue, most_bytes), *create_atropos_router(queue, most_bytes).routes],
        pages=[partial(create_queues_router, queue)],
        menu=[MenuEntry(100, "Queues", "/view/atropos", "queues", "System")],
        close=queue.close,
        ports={port: PortRoot(f"{PREFIX}/{run}") for port, run in kernel.settings.atropos_listeners.items()},
        unpacks=(PREFIX,),
    )


FEATURE: Final = Feature(name="atropos", build=build_atropos, templates=Path(__file__).with_name("templates"))
