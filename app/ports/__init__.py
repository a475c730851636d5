"""The seams. The core speaks only to these; `app.main` chooses what stands behind each.

Authors of environments read `app.ports.environment`, authors of retrievers `app.ports.retrieval`; what they need is
here under one name. The rest is for who works on the service:

    judges        who reads a group, panels of them, and what they remember
    sandbox       killable workers, and jails for programs
    store         tasks, leases, groups, runs and the ways of looking at them
    trajectories  the queue between environments elsewhere and trainers
    runtime       clock, observer, what is opened and closed with the service
"""

from app.ports.environment import Datasets, Drafted, Environment, Tools
from app.ports.judges import Panel
from app.ports.retrieval import Retriever
from app.ports.sandbox import Programs, Workers

__all__ = ["Datasets", "Drafted", "Environment", "Panel", "Programs", "Retriever", "Tools", "Workers"]
