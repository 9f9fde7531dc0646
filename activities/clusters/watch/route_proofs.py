"""Prove by a request that the gateway of a cluster serves a route.

Envoy Gateway reports a route as accepted before Envoy has it, and also while it cannot
publish any configuration because the AI gateway does not respond. Requests to a new
route then get 404.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, ObjectId, Selection
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.observation_index import ObservationIndex
from activities.observe.balancers import NAMESPACE, OWNING
from api_types.errors import ModelplaneError, TransientError
from api_types.labels import GATEWAY_NAME, SYSTEM_NAMESPACE

_OF_GATEWAY = f"{OWNING}-name={GATEWAY_NAME},{OWNING}-namespace={SYSTEM_NAMESPACE}"
# The route blocks this path itself, so neither a picker nor an engine gets the request.
_PATH = "metrics"
_NOT_FOUND = 404
_PROOF_SECONDS = 2.0


async def prove_routes(
    index: ObservationIndex, current: Callable[[], ClusterApi]
) -> NoReturn:
    """Send a request to each new route until the gateway serves it."""
    while True:
        await index.has_unproven.wait()
        index.has_unproven.clear()
        for route in index.unproven_routes():
            if await is_served(current(), route.owner):
                index.put_proof(route)
        if index.unproven_routes():
            await asyncio.sleep(_PROOF_SECONDS)
            index.has_unproven.set()


async def is_served(cluster: ClusterApi, replica: ObjectOwner) -> bool:
    """Return whether the gateway of a cluster serves the route of a replica.

    The request passes through the API server. If that is impossible, for example
    because the user lacks the permission or the gateway is not Envoy, the route counts
    as served.
    """
    try:
        found = await cluster.list(
            Selection(kinds.SERVICE, NAMESPACE, labels=_OF_GATEWAY)
        )
        for service in found.items:
            status = await cluster.proxied_status(
                ObjectId.of(service),
                service["spec"]["ports"][0]["port"],
                f"/{replica.namespace}/{replica.name}/{_PATH}",
            )
            if status == _NOT_FOUND:
                return False
    except TransientError:
        return False
    except ModelplaneError:
        return True
    return True
