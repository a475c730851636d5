"""The ports: interfaces that the core uses. `app.main` chooses their implementations.

Authors of environments read `app.ports.environment`, authors of retrievers `app.ports.retrieval`; this package
exports what they need. The other modules are for work on the service:

    judges   judges, panels of judges, and the cache of judgements
    play     what people said to characters, and what policies answered
    tracing  spans of requests and of what they cause
"""

from app.ports.environment import Datasets, Drafted, Environment, FreeReward, Programs, RefusedSpelling, Tools, Workers
from app.ports.judges import Panel
from app.ports.retrieval import Retriever

__all__ = [
    "Datasets",
    "Drafted",
    "Environment",
    "FreeReward",
    "Panel",
    "Programs",
    "RefusedSpelling",
    "Retriever",
    "Tools",
    "Workers",
]
