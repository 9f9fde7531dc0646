"""Where the chart of each component takes tolerations, affinity and priority class.

Modelplane sets the same for the pods of all components. A value of a single component,
such as its resources, is a value of its chart, which users set with `stack.values`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from activities.render.stack import components
from api_types.resources.serving_stack import StackPods

Values = dict[str, Any]
Path = tuple[str, ...]

GPU_TAINT = "nvidia.com/gpu"
_GPU = {"key": GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True)
class PodValues:
    """The values of one chart that apply to its pods.

    Attributes:
        pods: paths of the values of Deployments and Jobs, which run on any node.
        on_gpu_nodes: paths of the values of DaemonSets that must run on GPU nodes. They
            get no affinity, because the charts select their nodes with it.
        priority: paths of the name of a priority class.

    """

    pods: tuple[Path, ...] = ()
    on_gpu_nodes: tuple[Path, ...] = ()
    priority: tuple[Path, ...] = ()


_OPERATOR = "prometheusOperator"
_PATCH = (_OPERATOR, "admissionWebhooks", "patch")
_SPEC = ("prometheus", "prometheusSpec")
_STATE = ("kube-state-metrics",)
_PRIORITY = "priorityClassName"

# The charts of LeaderWorkerSet and of the AI gateway have no value for a priority
# class. The pods of the DRA driver have a higher one by default.
POD_VALUES = {
    components.CERT_MANAGER.key: PodValues(
        ((), ("webhook",), ("cainjector",), ("startupapicheck",)),
        priority=(("global", _PRIORITY),),
    ),
    components.ENVOY_GATEWAY.key: PodValues(
        (("deployment", "pod"), ("certgen", "job")),
        priority=(("deployment", _PRIORITY),),
    ),
    components.AI_GATEWAY.key: PodValues((("controller",),)),
    components.LEADER_WORKER_SET.key: PodValues(((),)),
    components.PROMETHEUS.key: PodValues(
        ((_OPERATOR,), _PATCH, _SPEC, _STATE),
        priority=tuple(
            (*at, _PRIORITY) for at in ((_OPERATOR,), _PATCH, _SPEC, _STATE)
        ),
    ),
    components.NODE_FEATURE_DISCOVERY.key: PodValues(
        (("master",), ("gc",)),
        on_gpu_nodes=(("worker",),),
        priority=((_PRIORITY,),),
    ),
    components.DRA_DRIVER.key: PodValues(
        (("controller",),), on_gpu_nodes=(("kubeletPlugin",),)
    ),
}


def pod_values(key: str, pods: StackPods | None) -> Values:
    """Return the values that place the pods of a component."""
    where = POD_VALUES.get(key, PodValues())
    wanted = pods or StackPods()
    tolerations = [each.model_dump(exclude_none=True) for each in wanted.tolerations]
    values: Values = {}
    for path, value in _placements(key, where, tolerations, wanted.affinity):
        values = merged(values, _at(path, value))
    if wanted.priority_class_name:
        for path in where.priority:
            values = merged(values, _at(path, wanted.priority_class_name))
    return values


def _placements(
    key: str, where: PodValues, tolerations: list[Values], affinity: Values | None
) -> Iterator[tuple[Path, Any]]:
    # Helm replaces lists, so a list also has what the chart has by default.
    if tolerations or key == components.NODE_FEATURE_DISCOVERY.key:
        for path in where.on_gpu_nodes:
            yield (*path, "tolerations"), [_GPU, *tolerations]
    for path in where.pods:
        if tolerations:
            yield (*path, "tolerations"), tolerations
        if affinity:
            yield (*path, "affinity"), affinity


def merged(values: Values, others: Values) -> Values:
    """Return values in which the others replace equal keys, as Helm merges values.

    Objects are merged. Any other value, such as a list, is replaced.
    """
    found = dict(values)
    for key, other in others.items():
        known = found.get(key)
        is_tree = isinstance(known, dict) and isinstance(other, dict)
        found[key] = merged(known or {}, other) if is_tree else other
    return found


def _at(path: Path, value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value
