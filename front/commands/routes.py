"""The paths below `/v1` for the CLI.

`POST .../PLURAL/NAME/retry` retries failed steps of an object now. `GET
.../modeldeployments/NAME/revisions` returns the templates for `rollout undo`. `GET
/v1/servingstacks[/NAME]` returns the serving stacks of clusters. Workflows answer these
requests, because the projection does not contain this data.
"""

from collections.abc import Sequence

from aiohttp import web

from api_types.resources.kinds import BY_KIND
from front.serving import bodies, errors
from front.serving.app import Front
from front.serving.auditing import event_of, note_resource
from front.serving.below_v1 import allow, named, refuse_dry_run
from front.serving.receiving import read
from front.serving.requests import RequestedResource
from front.serving.sending import json_response
from front.store.projection import Tree, shown

STACKS = BY_KIND["ServingStack"]
_DEPLOYMENT = BY_KIND["ModelDeployment"].plural


class Commands:
    """Serves the CLI's requests with a front's users, rights and objects."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes for `Front.app`."""
        return [
            web.route(
                "*", "/v1/namespaces/{namespace}/{plural}/{name}/retry", self._retry
            ),
            web.route("*", "/v1/{plural}/{name}/retry", self._retry),
            web.route(
                "*",
                f"/v1/namespaces/{{namespace}}/{{plural:{_DEPLOYMENT}}}/{{name}}/revisions",
                self._revisions,
            ),
            web.route("*", f"/v1/{STACKS.plural}", self._stacks),
            web.route("*", f"/v1/{STACKS.plural}/{{name}}", self._stack),
        ]

    async def _retry(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            resource = named(request)
            # The right to update an object includes retries.
            note_resource(request, resource, "update")
            refuse_dry_run(request)
            allow(request, "POST")
            await self._front.authorization.authorize(user, resource, "update")
            await read(request, bodies.SMALL_BYTES_MAX)
            tree = await self._front.workflows.retry(resource, event_of(request))
            return json_response(tree)

    async def _revisions(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            resource = named(request)
            # An earlier template may contain values that were removed since. A user who
            # may write them back may also read them.
            note_resource(request, resource, "update")
            allow(request, "GET", "HEAD")
            await self._front.authorization.authorize(user, resource, "update")
            found = await self._front.workflows.asked(
                resource, lambda plane, target: plane.revisions(target)
            )
            return json_response({"revisions": list(found)})

    async def _stacks(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            resource = RequestedResource(STACKS, STACKS.home)
            note_resource(request, resource, "list")
            allow(request, "GET", "HEAD")
            await self._front.authorization.authorize(user, resource, "list")
            found = await self._front.workflows.asked(
                resource, lambda plane, _: plane.list(STACKS, None)
            )
            if not all(each.answered for each in found):
                raise errors.unavailable(
                    "no worker has answered for some of these stacks; try again in a moment"
                )
            return json_response(_list([shown(each.tree) for each in found]))

    async def _stack(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            # A ServingStack has the name of its cluster.
            owner = BY_KIND[STACKS.shown_by]
            resource = RequestedResource(
                STACKS, STACKS.home, named(request, owner.plural).name
            )
            note_resource(request, resource, "get")
            allow(request, "GET", "HEAD")
            await self._front.authorization.authorize(user, resource, "get")
            return json_response(await self._front.workflows.present(resource))


def _list(trees: Sequence[Tree]) -> Tree:
    return {
        "apiVersion": STACKS.api_version,
        "kind": f"{STACKS.kind}List",
        "metadata": {},
        "items": list(trees),
    }
