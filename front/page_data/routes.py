"""The path `/ui/state.json`: health of the control plane, and history for the page.

The history of the capacity needs the right to list clusters, and the history of
workloads the right to list deployments, in the namespace of the query or in all.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web

from api_types.resources.kinds import BY_KIND
from front.page_data.health import ControlPlaneHealth
from front.page_data.history import SAMPLE_SECONDS, History
from front.serving import errors
from front.serving.app import Front
from front.serving.below_v1 import allow
from front.serving.requests import RequestedResource
from front.serving.sending import json_response

PATH = "/ui/state.json"
log = structlog.get_logger("modelplane.front.page")


class PageData:
    """Serves the state to users, each within the user's rights."""

    def __init__(self, front: Front, health: ControlPlaneHealth) -> None:
        self._front, self._health = front, health
        self.history = History(front.projection)

    def routes(self) -> Sequence[web.RouteDef]:
        """Return the routes for `Front.app`."""
        return [web.route("*", PATH, self._state)]

    async def run(self) -> None:
        """Take samples until cancelled."""
        while True:
            try:
                await self._health.observe()
                if self._front.projection.complete:
                    self.history.sample()
            except Exception as error:
                # A bug must not end the only task that takes samples.
                log.exception("cannot take a sample for the page", exc_info=error)
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _state(self, request: web.Request) -> web.Response:
        with self._front.authorization.admitted(request) as user:
            allow(request, "GET", "HEAD")
            namespace = request.query.get("namespace", "")
            history: dict[str, Any] = {}
            for name, kind, scope, samples in (
                ("capacity", "InferenceCluster", "", self.history.capacity),
                (
                    "workloads",
                    "ModelDeployment",
                    namespace,
                    lambda: self.history.workloads(namespace),
                ),
            ):
                try:
                    resource = RequestedResource(BY_KIND[kind], scope)
                    await self._front.authorization.authorize(user, resource, "list")
                except errors.RejectedRequest as refusal:
                    if refusal.code != HTTPStatus.FORBIDDEN:
                        raise
                    continue
                history[name] = samples()
            return json_response(
                {
                    **self._health.tree(),
                    "sampleSeconds": SAMPLE_SECONDS,
                    "history": history,
                }
            )
