"""What `atropos-envs envs check` makes sure of."""

from app.toolkit.conformance.attempts import STRATEGIES
from app.toolkit.conformance.checks import CHECKS
from docs.markdown import code, table


def environment_checks() -> str:
    return table(("check", "makes sure of"), [(code(check.name), check.asks) for check in CHECKS])


def strategies() -> str:
    return table(("strategy", "sends"), [(code(name), sends) for name, sends in STRATEGIES.items()])
