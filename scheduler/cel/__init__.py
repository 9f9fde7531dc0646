"""CEL device selectors, evaluated as the DRA allocator of the workload cluster does.

A replica is pinned to a pool whose devices match here. If Kubernetes would reject such
a match, the pods would stay Pending, which is the worst error of this package. So a
selector that cannot be evaluated does not match, and a selector that Kubernetes refuses
to compile is rejected at once. cel-python provides the grammar. Types, costs and
evaluation are implemented here (`program.py` explains why).

Nothing here imports Temporal or pydantic, and importing this package loads no engine.
"""

from scheduler.cel.comparisons import (
    Unmet,
    device_problem,
    lowered,
    renamed,
    unmet_comparisons,
)
from scheduler.cel.errors import SelectorError
from scheduler.cel.selector import (
    Match,
    Selector,
    check_selector,
    compile_selector,
    selector_cost,
)

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
