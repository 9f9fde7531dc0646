"""The LoadBalancer Services of a cluster: the gateway's, and others."""

from itertools import islice

from activities.cluster_objects.cluster_api import ClusterApi, Json, Selection
from activities.cluster_objects.deletion import list_served, remaining_object
from activities.cluster_objects.kinds import EVENT, SERVICE
from activities.observe.balancers import NAMESPACE, OWNING
from activities.observe.stack import warnings
from api_types.base import ID_MAX
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.stack import LoadBalancers

_LOAD_BALANCER = "LoadBalancer"
_SHOWN_MAX = 20
# The events of at most this many Services are read.
EXPLAINED_MAX = 3


async def of_gateway(cluster: ClusterApi, gateway: str = GATEWAY_NAME) -> list[Json]:
    """Return the load balancers that Envoy Gateway created for one of our Gateways."""
    owned = f"{OWNING}-name={gateway},{OWNING}-namespace={SYSTEM_NAMESPACE}"
    found = await list_served(cluster, Selection(SERVICE, NAMESPACE, owned))
    return [item for item in found if _is_load_balancer(item)]


async def events_of(cluster: ClusterApi, service: Json) -> list[str]:
    """Return the latest Warning events of a Service.

    They explain why it has no address, or why its load balancer is not deleted.
    """
    metadata = service["metadata"]
    fields = (
        f"involvedObject.kind={SERVICE.kind},involvedObject.name={metadata['name']}"
    )
    return warnings(
        await list_served(
            cluster, Selection(EVENT, metadata["namespace"], fields=fields)
        ),
        metadata["name"],
    )


async def remaining_of_gateway(
    cluster: ClusterApi, gateway: str = GATEWAY_NAME
) -> list[RemainingObject]:
    """Return the remaining Services of a Gateway, each with the reason."""
    found = []
    for at, service in enumerate(await of_gateway(cluster, gateway)):
        item = remaining_object(service)
        events = await events_of(cluster, service) if at < EXPLAINED_MAX else []
        found.append(
            item.model_copy(
                update={"why": "; ".join(filter(None, [item.why, *events]))}
            )
        )
    return found


async def all_of(cluster: ClusterApi) -> LoadBalancers:
    """List the LoadBalancer Services of all namespaces, except the Gateway's."""
    ours = {
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in await of_gateway(cluster)
    }

    def name(item: Json) -> str:
        metadata = item["metadata"]
        place = (str(metadata.get("namespace")), str(metadata["name"]))
        return (
            "/".join(place)[:ID_MAX]
            if _is_load_balancer(item) and place not in ours
            else ""
        )

    found = sorted(filter(None, (await cluster.list(Selection(SERVICE), name)).items))
    return LoadBalancers(
        services=list(islice(found, _SHOWN_MAX)), more=max(0, len(found) - _SHOWN_MAX)
    )


def _is_load_balancer(service: Json) -> bool:
    return bool((service.get("spec") or {}).get("type") == _LOAD_BALANCER)
