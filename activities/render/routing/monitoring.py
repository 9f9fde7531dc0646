"""What Prometheus scrapes: PodMonitors, because a cluster's Prometheus finds them everywhere, ServiceMonitors only with its own label."""

from activities.render.engines.context import Context
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import Item, Json, compact, labelled_item
from activities.render.routing import picker
from activities.render.routing.routes import POOL, serving_selector
from api_types import names
from api_types.pins import apiversions

_INTERVAL = "30s"


def monitored(context: Context) -> bool:
    """Tell whether PodMonitors are wanted and the cluster knows them."""
    return context.settings.monitoring_enabled and apiversions.POD_MONITOR in context.facts.apis


def monitors(context: Context) -> list[Item]:
    """Give the monitors of the serving pods, per role where there are two, and of the picker."""
    if not monitored(context):
        return []
    serving = serving_selector(context)
    engines = {"engines": serving}
    if context.spec.disaggregated:
        engines = {role: {**serving, contract.LLM_D_ROLE: role} for role in ("prefill", "decode")}
    items = [_monitor(context, name, selector, contract.ENGINE_PORT_NAME) for name, selector in engines.items()]
    if context.facts.routing == POOL:
        items.append(_monitor(context, "epp", {contract.APP: context.picker}, picker.METRICS_PORT_NAME, picker.metrics_token(context)))
    return items


def _monitor(context: Context, name: str, selector: dict[str, str], port: str, token_secret: str = "") -> Item:
    token = {"credentials": {"name": token_secret, "key": picker.TOKEN_KEY}} if token_secret else None
    endpoint = compact(port=port, path=contract.METRICS_PATH, interval=_INTERVAL, authorization=token, relabelings=_relabelings(context))
    manifest = {
        "apiVersion": apiversions.POD_MONITOR,
        "kind": "PodMonitor",
        "metadata": context.metadata(names.monitor_name(context.workload, name)),
        "spec": {"selector": {"matchLabels": selector}, "podMetricsEndpoints": [endpoint]},
    }
    return labelled_item(context.owner, f"{inventory_keys.MONITOR_PREFIX}{name}", components.MONITORING, manifest)


def _relabelings(context: Context) -> list[Json]:
    added = {
        "model_deployment": context.replica.deployment,
        "model_namespace": context.replica.namespace,
        "inference_cluster": context.cluster.name,
    }
    return [{"targetLabel": label, "replacement": value} for label, value in added.items() if value]
