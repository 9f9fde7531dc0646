"""The objects that connect requests to pods.

A route by path leads to an InferencePool with a picker, or to a plain Service on
clusters without a picker. The pool is created before the first pod, because replacing a
Service by a pool later would drop requests.
"""

from activities.render.engines.context import Context
from activities.render.engines.options import parallel
from activities.render.inputs.findings import RoutingUnsupported, ServingStackMissing
from activities.render.objects import components, contract, edge, inventory_keys
from activities.render.objects.manifest import Json, RenderedObject, labelled_item
from activities.render.routing import picker, rewrites
from api_types import labels, names
from api_types.pins import apiversions
from api_types.pins.features import DATA_PARALLEL

POOL = "pool"


def check_surface(context: Context) -> None:
    """Raise an error if the cluster cannot route what the replica needs.

    Raises RoutingUnsupported or ServingStackMissing.
    """
    if context.facts.routing == POOL:
        if parallel.has_ranks(context.spec.engines) and context.cluster.lacks(
            DATA_PARALLEL
        ):
            raise ServingStackMissing(
                context.subject, (context.lacking(DATA_PARALLEL),)
            )
        rewrites.check_cluster(context)
        return
    engines = context.spec.engines
    features = {
        "PrefillDecode": context.spec.disaggregated,
        "dataParallel": parallel.has_ranks(engines),
        "modelNames": rewrites.renames(engines),
        "prefixCache mode Precise": context.spec.precise_cache,
        "flowControl": context.spec.flow_control,
    }
    needs = [feature for feature, used in features.items() if used]
    if needs:
        problem = (
            f"cluster {context.cluster.name} routes to plain Services, "
            f"and {', '.join(needs)} needs an endpoint picker"
        )
        raise RoutingUnsupported(context.subject, (problem,))


def surface(context: Context) -> list[RenderedObject]:
    """Return the objects that requests pass through, the route last."""
    if context.facts.routing != POOL:
        # Behind a pool the gateway removes the headers before its filters: the picker
        # sets them itself, and a filter of the route would remove its choice.
        of_rule, of_backend = edge.header_filters()
        backend = {
            "name": context.workload,
            "port": contract.ENGINE_PORT,
            "filters": [of_backend],
        }
        return [_service(context), *_routes(context, backend, of_rule)]
    backend = {
        "group": apiversions.INFERENCE_GROUP,
        "kind": "InferencePool",
        "name": context.pool,
    }
    return [_pool(context), *rewrites.rewrites(context), *_routes(context, backend)]


def serving_selector(context: Context) -> dict[str, str]:
    """Return the selector of every serving pod, independent of engine and role."""
    return {labels.SERVING: context.workload}


def _service(context: Context) -> RenderedObject:
    port = {
        "name": contract.ENGINE_PORT_NAME,
        "port": contract.ENGINE_PORT,
        "targetPort": parallel.request_port(context.spec.engines),
    }
    manifest = {
        "apiVersion": apiversions.CORE,
        "kind": "Service",
        "metadata": context.metadata(context.workload),
        "spec": {"selector": serving_selector(context), "ports": [port]},
    }
    return labelled_item(
        context.owner, inventory_keys.MODEL_SERVICE, components.ROUTING, manifest
    )


def _pool(context: Context) -> RenderedObject:
    manifest = {
        "apiVersion": apiversions.INFERENCE,
        "kind": "InferencePool",
        "metadata": context.metadata(context.pool),
        "spec": {
            "selector": {"matchLabels": serving_selector(context)},
            "targetPorts": parallel.target_ports(context.spec.engines),
            "endpointPickerRef": {
                "name": picker.service_name(context),
                "port": {"number": picker.GRPC_PORT},
                "failureMode": context.settings.epp_failure_mode,
            },
        },
    }
    return labelled_item(
        context.owner, inventory_keys.INFERENCE_POOL, components.ROUTING, manifest
    )


def _routes(context: Context, backend: Json, *filters: Json) -> list[RenderedObject]:
    """Return the routes by host and by path.

    A control gateway that tries several endpoints for one request cannot rewrite its
    path for each of them, but its host.
    """
    namespace, name = context.replica.namespace, context.replica.name
    path = f"/{namespace}/{name}"
    rewrite = {
        "type": "URLRewrite",
        "urlRewrite": {
            "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
        },
    }
    responder = {
        "type": "ResponseHeaderModifier",
        "responseHeaderModifier": {
            "set": [{"name": labels.RESPONDER_HEADER, "value": name}]
        },
    }
    host = names.endpoint_host(namespace, name)
    by_host = _route(
        context,
        names.host_route_name(context.workload),
        "",
        backend,
        [*filters, responder],
    )
    by_host["spec"]["hostnames"] = [host]
    by_path = _route(context, context.workload, path, backend, [*filters, rewrite])
    return [
        labelled_item(context.owner, key, components.ROUTING, manifest)
        for key, manifest in (
            (inventory_keys.HOST_ROUTE, by_host),
            (inventory_keys.MODEL_ROUTE, by_path),
        )
    ]


def _route(
    context: Context, name: str, path: str, backend: Json, filters: list[Json]
) -> Json:
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": f"{path}/"}}],
        "filters": filters,
        # Disabled, because the gateway's own limit would cut long token streams.
        "timeouts": {"request": "0s"},
        "backendRefs": [backend],
    }
    return {
        "apiVersion": apiversions.GATEWAY,
        "kind": "HTTPRoute",
        "metadata": context.metadata(name),
        "spec": {
            "parentRefs": [
                {"name": labels.GATEWAY_NAME, "namespace": labels.SYSTEM_NAMESPACE}
            ],
            "rules": [rule, edge.blocking_rule(path)],
        },
    }
