"""Working examples in the OpenAPI document: Swagger UI sends them on Execute."""

import asyncio
import logging
from collections.abc import Callable

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, JsonValue
from starlette.routing import Route

from app.domain.tasks import Completion, Message
from app.ports.environment import Environment
from app.service.gateway import Gateway
from app.service.request_models import NextBatch

log = logging.getLogger(__name__)

Document = dict[str, JsonValue]

RUN = "first-run"
GREETING = Completion(text="Well met. What brings you to me today?")
UNSURE = Completion(text="I am not sure.")


class Examples:
    """Example bodies by path. They name a real task of each environment, so they need its data to be loaded. Where the
    first task is costly, it is made when the document is first asked for."""

    def __init__(self) -> None:
        self._bodies: dict[str, JsonValue] = {}
        self._members: dict[str, JsonValue] = {}
        self._completing = asyncio.Lock()

    async def prepare(self, gateway: Gateway) -> None:
        """Anew for every environment that serves, but for those of a costly first task."""
        for name, environment in gateway.catalogue.classes.items():
            if not environment.costly_first_task:
                await self.prepare_one(gateway, name)

    def install(self, app: FastAPI, gateway: Gateway) -> None:
        original: Callable[[], Document] = app.openapi

        def add_examples() -> Document:
            document = original()
            for path, body in self._bodies.items():
                _set_example(document, path, body)
            return document

        async def serve_document(request: Request) -> Response:
            await self._complete(gateway)
            reply: Response = await shown.endpoint(request)
            return reply

        # The documented way to extend the document is to replace this method.
        app.openapi = add_examples  # type: ignore[method-assign]
        (place, shown), *_ = [
            (place, route)
            for place, route in enumerate(app.router.routes)
            if isinstance(route, Route) and route.path == app.openapi_url
        ]
        app.router.routes[place] = Route(shown.path, serve_document, include_in_schema=False)

    async def _complete(self, gateway: Gateway) -> None:
        """With the examples of a costly first task that are missing. The document is shown without one that cannot be
        made."""
        async with self._completing:
            for name, environment in gateway.catalogue.classes.items():
                if environment.costly_first_task and name not in self._members:
                    try:
                        await self.prepare_one(gateway, name)
                    except Exception:
                        log.exception("the example of %s could not be made", name)

    async def prepare_one(self, gateway: Gateway, name: str) -> None:
        """Anew for one environment, if it serves."""
        if gateway.catalogue.explain_unavailability(name) is not None:
            return
        task_id, gold = await _fetch_first_task(gateway, name)
        score = _build_score_body(task_id, gold)
        self._bodies[f"/envs/{name}/next-batch"] = _build_batch_body(gateway.catalogue.classes[name])
        self._bodies[f"/envs/{name}/step"] = _build_step_body(task_id, gold)
        self._bodies[f"/envs/{name}/score"] = score
        self._bodies["/score"] = score
        self._bodies |= _build_try_body(gateway.catalogue.classes[name])
        self._members[name] = {"env": name, "weight": 1.0}
        mix = [self._members[one] for one in sorted(self._members)]
        self._bodies["/next-batch"] = {"batch_size": 4, "run": RUN, "mix": mix}


async def _fetch_first_task(gateway: Gateway, name: str) -> tuple[str, Completion]:
    """The id of the first training task with its gold answer, or a friendly reply where there is none."""
    batch = await gateway.dispatcher.next_batch(name, NextBatch(batch_size=1, cursor=0))
    task_id = batch.tasks[0].task_id
    record = (await gateway.task_cache.get([task_id]))[task_id]
    hosted = gateway.catalogue.get_environment_or_current(name)
    environment: Environment = hosted.environment
    return task_id, environment.gold(gateway.task_cache.get_task(hosted, record)) or GREETING


def _build_batch_body(environment: type[Environment]) -> JsonValue:
    """Includes the example of the environment's params if it has one."""
    body: dict[str, JsonValue] = {"batch_size": 2, "split": "train", "run": RUN}
    examples = _read_examples(environment.Params)
    return body | ({"params": examples[0]} if examples else {})


def _build_step_body(task_id: str, gold: Completion) -> JsonValue:
    """The first turn of the gold answer."""
    first = next(iter(gold.messages or ()), Message(role="assistant", content=gold.answer))
    return {"task_id": task_id, "messages": [first.model_dump(mode="json", exclude_defaults=True)]}


def _build_score_body(task_id: str, gold: Completion) -> JsonValue:
    """The gold answer and an evasive one."""
    completions: list[JsonValue] = [_dump_completion(completion) for completion in (gold, UNSURE)]
    return {"groups": [{"task_id": task_id, "completions": completions}]}


def _build_try_body(environment: type[Environment]) -> dict[str, JsonValue]:
    """The example of the environment's drafts with two replies."""
    examples = [] if environment.Draft is None else _read_examples(environment.Draft)
    completions: list[JsonValue] = [_dump_completion(GREETING), _dump_completion(UNSURE)]
    return {f"/envs/{environment.name}/try": {"draft": draft, "completions": completions} for draft in examples[:1]}


def _read_examples(model: type[BaseModel]) -> list[JsonValue]:
    examples: list[JsonValue] = model.model_json_schema().get("examples", [])
    return examples


def _dump_completion(completion: Completion) -> JsonValue:
    return completion.model_dump(mode="json", exclude_defaults=True)


def _set_example(document: Document, path: str, body: JsonValue) -> None:
    node: JsonValue = document
    for key in ("paths", path, "post", "requestBody", "content", "application/json"):
        node = node.get(key) if isinstance(node, dict) else None
    if isinstance(node, dict):
        node["example"] = body
