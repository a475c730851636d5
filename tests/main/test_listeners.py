"""Which ports serve what."""

import pytest
from pydantic import ValidationError

from app.settings import NemoGymPort, OrsPort, Settings


def test_every_port_has_its_run() -> None:
    settings = Settings(atropos_port=8101, atropos_run="red", atropos_ports={"blue": 8102})
    assert (settings.atropos_listeners, Settings().atropos_listeners) == ({8101: "red", 8102: "blue"}, {})


def test_options_of_a_port_are_those_that_are_set() -> None:
    plain = NemoGymPort(port=8103, environment="gsm8k")
    full = NemoGymPort(port=8103, environment="gsm8k", run="red", group_size=8, model="a/b", wait_seconds=50)
    assert (plain.options, full.options) == ({}, {"run": "red", "group_size": 8, "model": "a/b", "wait_seconds": 50.0})
    arena = OrsPort(port=8201, environment="npc_arena", run="red", params={"turns": "multi"})
    assert arena.options == {"run": "red", "params": '{"turns": "multi"}'}


@pytest.mark.parametrize(
    "ports",
    [
        {"atropos_port": 8000},
        {"atropos_port": 1, "atropos_ports": {"a": 1}},
        {"nemo_gym_ports": {"a": {"port": 8000, "environment": "math"}}},
        {"ors_ports": {"a": {"port": 8000, "environment": "math"}}},
        {"nemo_gym_ports": {name: {"port": 1, "environment": "math"} for name in ("a", "b")}},
    ],
)
def test_two_listeners_do_not_share_a_port(ports: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="must all differ"):
        Settings.model_validate(ports)
