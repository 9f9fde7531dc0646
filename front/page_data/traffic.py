"""The path `/ui/traffic.json`: traffic of the services that a user may list.

The query names a namespace, or all namespaces if it is absent.
"""

from collections.abc import Sequence

from aiohttp import web

from api_types.resources.kinds import BY_KIND
from front.page_data.prometheus import Traffic
from front.serving.app import Front
from front.serving.below_v1 import allow
from front.serving.requests import RequestedResource
from front.serving.sending import json_response

TRAFFIC_PATH = "/ui/traffic.json"
_SERVICE = BY_KIND["ModelService"]


class TrafficData:
    """Serves the traffic of services, within the rights of the user."""

    def __init__(self, front: Front, traffic: Traffic) -> None:
        self._front, self._traffic = front, traffic

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes for `Front.app`."""
        return [web.route("*", TRAFFIC_PATH, self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            allow(request, "GET", "HEAD")
            namespace = request.query.get("namespace", "")
            resource = RequestedResource(_SERVICE, namespace)
            await self._front.authorization.authorize(user, resource, "list")
            services = [
                (key.namespace, key.name)
                for key in self._front.projection.of_kind(_SERVICE.kind)
                if namespace in ("", key.namespace)
            ]
            return json_response(await self._traffic.of(services))
