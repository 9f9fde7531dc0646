"""How requests find the pods: one route by path, to an InferencePool with a picker, or to a plain Service on clusters without one.

A pool is created before the first pod: replacing a Service by a pool later would drop requests.
"""

from activities.render.engines.context import Context
from activities.render.engines.options import parallel
from activities.render.inputs.findings import RoutingUnsupported
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import Item, Json, labelled_item
from activities.render.routing import picker, rewrites
from api_types import labels
from api_types.pins import apiversions

POOL = "pool"


def check_surface(context: Context) -> None:
    """Raise RoutingUnsupported or ServingStackMissing where the cluster cannot route what the replica needs."""
    if context.facts.routing == POOL:
        rewrites.check_cluster(context)
        return
    needs = [
        *(["PrefillDecode"] if context.spec.disaggregated else []),
        *(["dataParallel"] if any(engine.ranks > 1 for engine in context.spec.engines) else []),
        *(["modelNames"] if rewrites.renames(context.spec.engines) else []),
        *(["prefixCache mode Precise"] if context.spec.precise_cache else []),
        *(["flowControl"] if context.spec.flow_control else []),
    ]
    if needs:
        problem = f"cluster {context.cluster.name} routes to plain Services, and {', '.join(needs)} needs an endpoint picker"
        raise RoutingUnsupported(f"ModelReplica {context.replica.namespace}/{context.replica.name}", (problem,))


def surface(context: Context) -> list[Item]:
    """Give the objects that requests pass through, the route last."""
    if context.facts.routing != POOL:
        backend = {"name": context.workload, "port": contract.ENGINE_PORT}
        return [_service(context), _route(context, backend)]
    backend = {"group": apiversions.INFERENCE_GROUP, "kind": "InferencePool", "name": context.pool}
    return [_pool(context), *rewrites.rewrites(context), _route(context, backend)]


def serving_selector(context: Context) -> dict[str, str]:
    """Select every serving pod of the replica, whatever its engine and role."""
    return {labels.SERVING: context.workload}


def _service(context: Context) -> Item:
    port = {"name": contract.ENGINE_PORT_NAME, "port": contract.ENGINE_PORT, "targetPort": contract.ENGINE_PORT}
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "Service",
        "metadata": context.metadata(context.workload),
        "spec": {"selector": serving_selector(context), "ports": [port]},
    }
    return labelled_item(context.owner, inventory_keys.MODEL_SERVICE, components.ROUTING, manifest)


def _pool(context: Context) -> Item:
    manifest = {
        "apiVersion": apiversions.INFERENCE,
        "kind": "InferencePool",
        "metadata": context.metadata(context.pool),
        "spec": {
            "selector": {"matchLabels": serving_selector(context)},
            "targetPorts": parallel.target_ports(context.spec.engines),
            "endpointPickerRef": {
                "name": context.picker,
                "port": {"number": picker.GRPC_PORT},
                "failureMode": context.settings.epp_failure_mode,
            },
        },
    }
    return labelled_item(context.owner, inventory_keys.INFERENCE_POOL, components.ROUTING, manifest)


def _route(context: Context, backend: Json) -> Item:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": f"/{context.replica.namespace}/{context.replica.name}/"}}],
        "filters": [rewrite],
        # Off: the gateway's own limit would cut long streams of tokens.
        "timeouts": {"request": "0s"},
        "backendRefs": [backend],
    }
    manifest = {
        "apiVersion": apiversions.GATEWAY,
        "kind": "HTTPRoute",
        "metadata": context.metadata(context.workload),
        "spec": {"parentRefs": [{"name": labels.GATEWAY_NAME, "namespace": labels.SYSTEM_NAMESPACE}], "rules": [rule]},
    }
    return labelled_item(context.owner, inventory_keys.MODEL_ROUTE, components.ROUTING, manifest)
