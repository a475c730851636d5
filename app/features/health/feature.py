"""Puts run health together: who follows runs and whom it tells, its routes, and its part of the page of a run."""

from functools import partial
from pathlib import Path
from typing import Final

from app.domain.errors import UserError
from app.domain.runs import ScoringOptions
from app.domain.values import find_same_model
from app.features.contract import Feature, FeatureParts, Kernel
from app.features.health.model import AlarmSink
from app.features.health.pages import show_health
from app.features.health.routes import create_health_router
from app.features.health.service import HealthReader, RunHealthService
from app.features.health.store import RunHealthStore
from app.features.health.webhook import AlarmWebhook
from app.http.viewer.rendering import ViewerParts
from app.ports.judges import Panels
from app.settings import Settings
from app.store.claims import ClaimStore


def build_health(kernel: Kernel) -> FeatureParts:
    gateway, health = kernel.gateway, kernel.storage.part(RunHealthStore)
    reader = HealthReader(
        health,
        gateway.runs,
        gateway.panels,
        kernel.environment_versions,
        gateway.task_cache,
        kernel.workers,
        kernel.programs,
        kernel.observer,
    )
    watch = RunHealthService(
        health=health,
        claims=kernel.storage.part(ClaimStore),
        runs=gateway.runs,
        panels=gateway.panels,
        reader=reader,
        observer=kernel.observer,
        clock=kernel.clock,
        shadow_judges=find_shadow_judges(kernel.settings, gateway.panels),
        sink=build_alarm_sink(kernel.settings),
    )
    gateway.runs.watch = watch
    return FeatureParts(
        routers=[create_health_router(watch)],
        viewer=ViewerParts(show_run=[partial(show_health, watch)]),
        lasting=[watch.run],
    )


def find_shadow_judges(settings: Settings, panels: Panels) -> dict[str, str]:
    """By environment. UserError for a judge that is not there, or that is of the model of one that scores there."""
    chosen = {name: given.shadow_judge for name, given in settings.environments.items() if given.shadow_judge}
    for name, shadow in chosen.items():
        where = f"environments.{name}.shadow_judge"
        if shadow not in panels.judges:
            raise UserError(f"{where}: there is no judge {shadow!r}")
        training = panels.resolve_options(name, ScoringOptions()).judges
        models = {judge: panels.judges[judge].model for judge in training}
        if (judge := find_same_model(panels.judges[shadow].model, models)) is not None:
            raise UserError(f"{where}: {shadow!r} is of the same model as {judge!r}, which scores there")
    return chosen


def build_alarm_sink(settings: Settings) -> AlarmSink | None:
    """UserError for a secret that is not there."""
    health = settings.health
    if health.webhook is None:
        return None
    secret = None if health.webhook_secret_env is None else settings.read_secret(health.webhook_secret_env)
    if health.webhook_secret_env is not None and secret is None:
        raise UserError(f"health.webhook_secret_env names {health.webhook_secret_env}, which is not set")
    return AlarmWebhook(health.webhook, secret)


FEATURE: Final = Feature(name="health", build=build_health, templates=Path(__file__).with_name("templates"))
