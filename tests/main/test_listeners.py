"""Which ports serve which run."""

import pytest
from pydantic import ValidationError

from app.settings import Settings


def test_every_port_has_its_run() -> None:
    settings = Settings(atropos_port=8101, atropos_run="red", atropos_ports={"blue": 8102})
    assert (settings.atropos_listeners, Settings().atropos_listeners) == ({8101: "red", 8102: "blue"}, {})


@pytest.mark.parametrize("ports", [{"atropos_port": 8000}, {"atropos_port": 1, "atropos_ports": {"a": 1}}])
def test_two_listeners_do_not_share_a_port(ports: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="must all differ"):
        Settings.model_validate(ports)
