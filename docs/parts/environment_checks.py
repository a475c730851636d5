"""What `atropos-envs envs check` makes sure of."""

from app.toolkit.conformance.attempts import STRATEGIES
from app.toolkit.conformance.checks import CHECKS
from app.toolkit.conformance.probes import STRATEGIES as PROBES
from docs.markdown import code, table


def environment_checks() -> str:
    return table(("check", "makes sure of"), [(code(check.name), check.asks) for check in CHECKS])


def strategies() -> str:
    """Without the probes, which have a page."""
    own = {name: sends for name, sends in STRATEGIES.items() if name not in PROBES}
    return table(("strategy", "sends"), [(code(name), sends) for name, sends in own.items()])
