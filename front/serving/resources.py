"""Serves requests to resources: finds the verb, reads the options, reads or writes."""

from aiohttp import web

from front.access.access_file import User
from front.audit.event import AuditEvent
from front.serving import bodies, errors
from front.serving.auditing import event_of, note_resource
from front.serving.authorization import Authorization
from front.serving.formats.negotiation import JSON
from front.serving.reads.list_options import is_set, until_known, version
from front.serving.reads.reading import Form, Parameters, check_complete, get, listed
from front.serving.reads.watching import Watch, goes_on, streamed
from front.serving.receiving import read
from front.serving.requests import SCALE, STATUS, RequestedResource
from front.serving.sending import InParts, json_response
from front.serving.writes import delete_options
from front.serving.writes.admission import STRICT, validation_of
from front.serving.writes.managers import OPTIONS, Manager
from front.serving.writes.manifests import ManifestWrites
from front.serving.writes.object_workflows import ObjectWorkflows
from front.serving.writes.scale import ScaleWrites, scale_of
from front.store.projection import Projection, Tree


class Resources:
    """Serves resources from the projection and through the workflows."""

    def __init__(
        self,
        authorization: Authorization,
        projection: Projection,
        workflows: ObjectWorkflows,
        scales: ScaleWrites,
        manifests: ManifestWrites,
    ) -> None:
        self._authorization, self._projection = authorization, projection
        self._workflows, self._scales, self._manifests = workflows, scales, manifests

    async def answer(
        self, request: web.Request, resource: RequestedResource, user: User
    ) -> web.StreamResponse:
        """Answer a request to a resource. Raises `RejectedRequest` and `TooMany`."""
        parameters = request.query
        note_resource(request, resource)
        verb = _verb(request.method, resource, parameters)
        note_resource(request, resource, verb)
        await self._authorization.authorize(user, resource, verb)
        if verb in ("update", "patch") and not resource.name:
            raise errors.bad_request("name must be provided")
        check_complete(self._projection)
        of_list = verb in ("list", "deletecollection")
        accept = request.headers.get("Accept", "")
        form = Form.of(accept, parameters, of_list=of_list)
        if verb == "watch":
            watch = Watch(self._projection, resource, parameters, form)
            check = goes_on(request, lambda: self._may_watch(request, resource))
            return await streamed(request, watch.lines(check))
        if verb == "list":
            found = await listed(self._projection, resource, parameters)
            return InParts(await found.parts(form), JSON)
        if verb == "get":
            await until_known(self._projection, version(parameters))
            tree = get(self._projection, resource)
            if resource.subresource == SCALE:
                return json_response(scale_of(resource, tree))
            return json_response(form.one(resource, tree))
        return await self._write(request, resource, verb, form, user)

    async def _may_watch(
        self, request: web.Request, resource: RequestedResource
    ) -> bool:
        await self._authorization.learn(request)
        try:
            user = self._authorization.user_of(request)
            await self._authorization.authorize(user, resource, "watch")
        except errors.RejectedRequest:
            return False
        return True

    async def _write(
        self,
        request: web.Request,
        resource: RequestedResource,
        verb: str,
        form: Form,
        user: User,
    ) -> web.StreamResponse:
        event = event_of(request)
        event.dry_run = _dry(request, OPTIONS[verb])
        validation = STRICT
        if not verb.startswith("delete"):
            validation = validation_of(request.query, verb)
        is_scale = resource.subresource == SCALE
        bytes_max = bodies.SMALL_BYTES_MAX if is_scale else bodies.BYTES_MAX
        body = await read(request, bytes_max)
        if verb.startswith("delete"):
            return await self._delete(request, resource, verb, form, body)
        content_type = request.headers.get("Content-Type", "")
        agent = request.headers.get("User-Agent", "")
        if is_scale:
            # Only checks the parameters: nobody owns the count alone.
            is_apply = content_type.startswith(bodies.APPLY)
            Manager.of(request.query, agent, verb, is_apply=is_apply)
            tree = await self._scale(resource, body, content_type, verb, event)
            return json_response(tree)
        types = (*bodies.PATCHES, bodies.APPLY) if verb == "patch" else bodies.OBJECTS
        default = bodies.JSON if verb == "update" else ""
        kind = bodies.media_type(content_type, types, silent=default)
        manager = Manager.of(
            request.query,
            agent,
            verb,
            is_apply=kind == bodies.APPLY,
        )
        if kind == bodies.APPLY:
            return await self._apply(request, resource, form, manager, body, user=user)
        if verb == "patch":
            tree, warnings = await self._manifests.patch(
                resource,
                kind,
                await bodies.apart(bodies.parse, body, kind),
                manager,
                event,
                validation=validation,
            )
            return json_response(form.one(resource, tree), 200, warnings)
        document = await bodies.apart(bodies.parse_object, body, kind)
        if verb == "create":
            tree, warnings = await self._manifests.create(
                resource, document, event, validation=validation
            )
            return json_response(form.one(resource, tree), 201, warnings)
        tree, warnings = await self._manifests.update(
            resource,
            document,
            manager,
            event,
            reason=request.query.get("reason", ""),
            validation=validation,
        )
        return json_response(form.one(resource, tree), 200, warnings)

    async def _delete(
        self,
        request: web.Request,
        resource: RequestedResource,
        verb: str,
        form: Form,
        body: bytes,
    ) -> web.StreamResponse:
        event = event_of(request)
        content_type = request.headers.get("Content-Type", "")
        options = await bodies.apart(
            delete_options.parsed, body, content_type, request.query
        )
        event.dry_run = event.dry_run or bool(options.get("dryRun"))
        if verb == "deletecollection":
            return await self._delete_all(request, resource, options, form)
        tree = await self._workflows.delete(resource, options, event)
        if tree.get("kind") == "Status":
            return json_response(tree)
        return json_response(form.one(resource, tree))

    async def _apply(
        self,
        request: web.Request,
        resource: RequestedResource,
        form: Form,
        manager: Manager,
        body: bytes,
        *,
        user: User,
    ) -> web.StreamResponse:
        event = event_of(request)

        async def may_create() -> None:
            await self._authorization.authorize(user, resource, "create")

        config = await bodies.apart(bodies.parse_object, body)
        tree, warnings, created = await self._manifests.apply(
            resource, config, manager, event, may_create
        )
        status = 201 if created else 200
        return json_response(form.one(resource, tree), status, warnings)

    async def _scale(
        self,
        resource: RequestedResource,
        body: bytes,
        content_type: str,
        verb: str,
        event: AuditEvent,
    ) -> Tree:
        if verb == "patch":
            kind = bodies.media_type(content_type, bodies.PATCHES)
            patch = await bodies.apart(bodies.parse, body, kind)
            return await self._scales.scale(
                resource, lambda scale: bodies.patched(scale, kind, patch), event
            )
        kind = bodies.media_type(content_type, bodies.OBJECTS, silent=bodies.JSON)
        wanted = await bodies.apart(bodies.parse_object, body, kind)
        return await self._scales.scale(resource, lambda _: wanted, event)

    async def _delete_all(
        self,
        request: web.Request,
        resource: RequestedResource,
        options: Tree,
        form: Form,
    ) -> web.StreamResponse:
        found = await listed(self._projection, resource, request.query)
        for stored in found.held:
            named = RequestedResource(
                resource.info, resource.namespace, stored.tree["metadata"]["name"]
            )
            wanted = options.get("preconditions") or {}
            mine = {**options, "preconditions": {"uid": stored.uid, **wanted}}
            try:
                await self._workflows.delete(named, mine, event_of(request))
            except errors.RejectedRequest as refusal:
                # The object was deleted meanwhile, or has been created again.
                if refusal.code not in (404, 409) or wanted:
                    raise
        return InParts(await found.parts(form), JSON)


def is_watch(method: str, parameters: Parameters) -> bool:
    """Return whether a request asks for a watch."""
    return method == "GET" and is_set(parameters, "watch")


def _verb(method: str, resource: RequestedResource, parameters: Parameters) -> str:
    """Return the Kubernetes verb.

    Raises `RejectedRequest` if the resource does not support the method.
    """
    if method in ("GET", "HEAD"):
        if is_watch(method, parameters) and not resource.name:
            return "watch"
        return "get" if resource.name else "list"
    info = resource.info
    refusal = errors.method_not_allowed(method, info.group, info.plural)
    if not info.user_may_apply or resource.subresource == STATUS:
        raise refusal
    if resource.subresource:
        allowed = {"PUT": "update", "PATCH": "patch"}
    elif resource.name:
        allowed = {"PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    else:
        allowed = {"POST": "create", "DELETE": "deletecollection"}
        # Such a request is rejected once its user has the right to it.
        allowed |= {"PUT": "update", "PATCH": "patch"}
    lacks_namespace = info.namespaced and not resource.namespace
    if method not in allowed or (method in ("POST", "DELETE") and lacks_namespace):
        raise refusal
    return allowed[method]


def _dry(request: web.Request, options: str) -> bool:
    """Return whether a request is a dry run.

    Raises `RejectedRequest` for a dry run of an unknown kind.
    """
    values = request.query.getall("dryRun", [])
    delete_options.check_dry(values, options)
    return bool(values)
