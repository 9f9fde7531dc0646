"""The PodMonitors by which Prometheus scrapes engines and pickers.

PodMonitors are used because a cluster's Prometheus selects them everywhere, but selects
only ServiceMonitors with its own label.
"""

from activities.render.engines.context import Context
from activities.render.engines.pods import own_metrics_port
from activities.render.engines.spec import DECODE, PREFILL, EngineSpec
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import (
    Json,
    RenderedObject,
    compact,
    labelled_item,
)
from activities.render.routing import picker
from activities.render.routing.routes import POOL, serving_selector
from api_types import names
from api_types.pins import apiversions

_INTERVAL = "30s"


def monitored(context: Context) -> bool:
    """Return whether PodMonitors are enabled and the cluster serves their kind."""
    return (
        context.settings.monitoring_enabled
        and apiversions.POD_MONITOR in context.facts.apis
    )


def monitors(context: Context) -> list[RenderedObject]:
    """Return the monitors of the serving pods, one per role, and of the picker."""
    if not monitored(context):
        return []
    serving = serving_selector(context)
    engines = {"engines": (serving, context.spec.engines)}
    if context.spec.disaggregated:
        engines = {
            role.lower(): (
                {**serving, contract.LLM_D_ROLE: role.lower()},
                (context.spec.phase(role),),
            )
            for role in (PREFILL, DECODE)
        }
    items = []
    for name, (selector, monitored_engines) in engines.items():
        if targets := _targets(monitored_engines):
            items.append(_monitor(context, name, selector, targets))
    if context.facts.routing == POOL:
        items.append(
            _monitor(
                context,
                "epp",
                {contract.APP: context.picker},
                [(picker.METRICS_PORT_NAME, contract.METRICS_PATH)],
                picker.metrics_token(context),
            )
        )
    return items


def _monitor(
    context: Context,
    name: str,
    selector: dict[str, str],
    targets: list[tuple[str, str]],
    token_secret: str = "",
) -> RenderedObject:
    token = (
        {"credentials": {"name": token_secret, "key": picker.TOKEN_KEY}}
        if token_secret
        else None
    )
    endpoints = [
        compact(
            port=port,
            path=path,
            interval=_INTERVAL,
            authorization=token,
            relabelings=_relabelings(context),
        )
        for port, path in targets
    ]
    manifest = {
        "apiVersion": apiversions.POD_MONITOR,
        "kind": "PodMonitor",
        "metadata": context.metadata(names.monitor_name(context.workload, name)),
        "spec": {
            "selector": {"matchLabels": selector},
            "podMetricsEndpoints": endpoints,
        },
    }
    return labelled_item(
        context.owner,
        f"{inventory_keys.MONITOR_PREFIX}{name}",
        components.MONITORING,
        manifest,
    )


def _targets(engines: tuple[EngineSpec, ...]) -> list[tuple[str, str]]:
    """Return the port names and paths of the metrics of engines, without duplicates."""
    found: dict[tuple[str, str], None] = {}
    for engine in engines:
        own = own_metrics_port(engine)
        port = contract.METRICS_PORT_NAME if own else contract.ENGINE_PORT_NAME
        if engine.profile.metrics_path:
            found[port, engine.profile.metrics_path] = None
    return list(found)


def _relabelings(context: Context) -> list[Json]:
    added = {
        "model_deployment": context.replica.deployment,
        "model_namespace": context.replica.namespace,
        "inference_cluster": context.cluster.name,
    }
    return [
        {"targetLabel": label, "replacement": value}
        for label, value in added.items()
        if value
    ]
