"""Capacity, quotas and queues, and explanations of placements, for the page.

`/ui/capacity.json` returns the rows of `modelplane top`: pools and queues to users who
may list clusters, namespaces and quotas to users who may list the deployments of the
namespace in the query, or of all. `.../modeldeployments/NAME/explanation` returns what
`modelplane explain` prints, to users who may read the deployment.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web

from api_types.clock import now_ms
from api_types.resources.kinds import BY_KIND
from fleet_client.placement.explanation import explanation
from fleet_client.placement.live_fleet import LiveFleet
from fleet_client.placement.usage import (
    namespace_rows,
    pool_rows,
    queue_rows,
    quota_rows,
)
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from front.access.access_file import User
from front.page_data.live import LiveReader
from front.serving import errors
from front.serving.app import Front
from front.serving.auditing import note_resource
from front.serving.below_v1 import allow, named
from front.serving.requests import RequestedResource
from front.serving.sending import json_response

CAPACITY_PATH = "/ui/capacity.json"
_CLUSTERS = RequestedResource(BY_KIND["InferenceCluster"])
_DEPLOYMENT = BY_KIND["ModelDeployment"]
_REPLICAS = RequestedResource(BY_KIND["ModelReplica"])


class PlacementData:
    """Serves capacity and explanations to users, each within the user's rights."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._live = LiveReader(front)

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes for `Front.app`."""
        path = f"/v1/namespaces/{{namespace}}/{{plural:{_DEPLOYMENT.plural}}}/{{name}}"
        return [
            web.route("*", CAPACITY_PATH, self._capacity),
            web.route("*", f"{path}/explanation", self._explanation),
        ]

    async def _capacity(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            allow(request, "GET", "HEAD")
            namespace = request.query.get("namespace", "")
            deployments = RequestedResource(_DEPLOYMENT, namespace)
            sees_clusters = await self._may_list(user, _CLUSTERS)
            sees_namespace = await self._may_list(user, deployments)
            sees_all = sees_namespace and not namespace
            if not (sees_clusters or sees_namespace):
                return json_response({"at": now_ms()})
            rows, at = await self._live.once(user, _CLUSTERS, _rows)
            found: dict[str, Any] = {"at": at}
            if sees_clusters:
                found["pools"] = rows["pools"]
                # The users of a queue are namespaces.
                hidden = {} if sees_all else {"tenants": ""}
                found["queues"] = [{**row, **hidden} for row in rows["queues"]]
            if sees_namespace:
                for name in ("namespaces", "quotas"):
                    found[name] = [
                        row for row in rows[name] if namespace in ("", row["namespace"])
                    ]
            return json_response(found)

    async def _explanation(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            resource = named(request)
            note_resource(request, resource, "get")
            allow(request, "GET", "HEAD")
            await self._front.authorization.authorize(user, resource, "get")
            if self._front.projection.get(resource.key) is None:
                raise errors.not_found(*resource.identity)
            after = request.query.get("after", "")
            sees_clusters = await self._may_list(user, _CLUSTERS)
            sees_replicas = await self._may_list(user, _REPLICAS)

            def explained(live: LiveFleet, target: Target) -> Tree:
                tree = explanation(live, target, now_ms(), after)
                if not sees_clusters:
                    tree |= {"clusters": {}, "clustersAfter": "", "suggestions": []}
                if not sees_replicas:
                    own = live.fleet.owned(target.namespace, target.name).values()
                    names = {entry.name for entry in own}
                    tree["evictions"] = [
                        each for each in tree["evictions"] if each["replica"] in names
                    ]
                return tree

            tree, at = await self._live.compute(user, resource, explained)
            return json_response({**tree, "at": at})

    async def _may_list(self, user: User, resource: RequestedResource) -> bool:
        try:
            await self._front.authorization.authorize(user, resource, "list")
        except errors.RejectedRequest as refusal:
            if refusal.code != HTTPStatus.FORBIDDEN:
                raise
            return False
        return True


def _rows(live: LiveFleet) -> dict[str, list[Tree]]:
    now = now_ms()
    return {
        "pools": pool_rows(live, now),
        "queues": queue_rows(live),
        "namespaces": namespace_rows(live, now),
        "quotas": quota_rows(live, now),
    }
