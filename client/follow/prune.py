"""`apply --prune`: delete the objects of an apply set that its manifests lack.

Each object that is applied as a member of a set gets an annotation with the name of the
set and a digest of the object's identity. An object is deleted only if it has the
annotation of exactly this set and of exactly this object, so neither a copied manifest
nor an object of another set, tool or user is deleted.
"""

import hashlib
from collections.abc import Iterable, Sequence

from api_types.labels import APPLY_SET
from api_types.messages.entities import Delete
from api_types.resources.kinds import BY_KIND, KINDS
from api_types.validation.manifests import Manifest
from api_types.validation.rules.metadata import is_dns_subdomain
from client.follow.results import request_each
from client.output.printer import warn_hidden, warn_unanswered
from fleet_client.errors import Forbidden, Refused
from fleet_client.objects import FleetObjects
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import annotations, deleting
from fleet_client.requests import Requested, current_user, new_request_id, until_applied

_DIGITS = 16


def marked(manifests: Iterable[Manifest], apply_set: str) -> list[Manifest]:
    """Return the manifests with the annotation of the set.

    Those that users do not apply as objects, such as Secrets, stay as they are. Raise
    `Refused` for an invalid name of a set.
    """
    if not is_dns_subdomain(apply_set):
        raise Refused(
            f"--applyset {apply_set[:80]!r} is not a name",
            next_step="write lower-case letters, digits, hyphens and dots",
        )
    return [
        _marked(each, apply_set) if each.kind in BY_KIND else each for each in manifests
    ]


def _marked(manifest: Manifest, apply_set: str) -> Manifest:
    mark = {APPLY_SET: _mark(_target(manifest), apply_set)}
    metadata = manifest.metadata
    known = metadata.model_copy(update={"annotations": metadata.annotations | mark})
    return manifest.model_copy(update={"metadata": known})


def _target(manifest: Manifest) -> Target:
    metadata = manifest.metadata
    return Target.of(BY_KIND[manifest.kind], metadata.namespace, metadata.name)


def _mark(target: Target, apply_set: str) -> str:
    # The id of the workflow is the identity of an object.
    digest = hashlib.sha256(f"{apply_set}/{target.workflow_id}".encode()).hexdigest()[
        :_DIGITS
    ]
    return f"{apply_set}/{digest}"


async def prune(
    plane: FleetObjects, manifests: Sequence[Manifest], apply_set: str, *, dry: bool
) -> None:
    """Delete the members of a set that the manifests lack, and print each.

    With `dry`, only print them. Kinds are deleted in reverse order of their creation.
    An object whose workflow does not answer stays. Raise the errors of a deletion.
    """
    kept = {_target(each) for each in manifests if each.kind in BY_KIND}
    namespaces = sorted({target.namespace for target in kept if target.namespace})
    found = await _listed(plane, namespaces)
    warn_unanswered(found)
    gone = [
        one
        for one in found
        if annotations(one.tree).get(APPLY_SET) == _mark(one.target, apply_set)
        and one.target not in kept
        and not deleting(one.tree)
    ]
    if dry:
        for one in gone:
            print(f"{one.target.label} pruned (dry run)")
        return
    uids = {one.target: str(one.tree["metadata"].get("uid") or "") for one in gone}

    async def request(target: Target) -> Requested:
        message = Delete(
            request_id=new_request_id(), by=current_user(), uid=uids[target]
        )
        await plane.delete(target, message)
        return await until_applied(plane, target, message.request_id)

    await request_each(list(uids), request, lambda _: "pruned")


async def _listed(plane: FleetObjects, namespaces: Sequence[str]) -> list[ListedObject]:
    """Return all objects that the user can apply, of all namespaces or of these."""
    found: list[ListedObject] = []
    for kind in reversed(KINDS):
        if not kind.user_may_apply or kind.shown_by:
            continue
        try:
            found += await plane.list(kind, None)
        except Forbidden as failure:
            if not kind.namespaced:
                warn_hidden([failure])
            for namespace in namespaces if kind.namespaced else ():
                found += await plane.list(kind, namespace)
    return found
