"""CEL device selectors, decided exactly as the workload cluster's DRA allocator decides them.

A replica is pinned to the pool whose devices match here, so a match that Kubernetes would refuse is the worst error this package
can make: the pods would stay Pending for ever. Whatever cannot be evaluated therefore does not match, and whatever Kubernetes would
refuse to compile is refused at once. cel-python brings the grammar; types, costs and evaluation are written
here (`program.py` says why).

Nothing here imports Temporal or pydantic, and importing this package loads no engine.
"""

from scheduler.cel.comparisons import Unmet, device_problem, lowered, renamed, unmet_comparisons
from scheduler.cel.errors import SelectorError
from scheduler.cel.selector import Match, Selector, check_selector, compile_selector, selector_cost

__all__ = [
    "Match",
    "Selector",
    "SelectorError",
    "Unmet",
    "check_selector",
    "compile_selector",
    "device_problem",
    "lowered",
    "renamed",
    "selector_cost",
    "unmet_comparisons",
]
