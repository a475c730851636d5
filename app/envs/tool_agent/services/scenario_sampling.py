"""Scenarios by index: endless for training, others for testing."""

from collections.abc import Sequence
from typing import Any, Final

from app.domain.values import Split
from app.envs.tool_agent.services.simulated_service import ServiceScenario, SimulatedService
from app.toolkit.seeded import SeededRandom, is_held_out

TEST_SIZE: Final = 400
MOST_DRAWS: Final = 500
"""Far more attempts than a scenario of the right split needs."""


def find_scenario(
    services: Sequence[SimulatedService[Any]], split: Split, index: int
) -> tuple[SimulatedService[Any], ServiceScenario[Any]]:
    """Pure. Services take turns. The first thing that the user says decides the split."""
    service = services[index % len(services)]
    for attempt in range(MOST_DRAWS):
        scenario = service.draw_scenario(SeededRandom(f"{service.name} {split} {index} {attempt}"))
        if is_held_out(scenario.wishes[0].says) == (split == "test"):
            return service, scenario
    raise ValueError(f"{service.name} has no scenario for {split}")
