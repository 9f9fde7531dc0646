"""Device claims: one ResourceClaimTemplate per member that claims through DRA.

Kubernetes creates a claim from it for every pod. Its spec is immutable, so its name
contains a digest of the requests: a changed claim is a new template.
"""

from typing import Any

from activities.render.engines.context import Context
from activities.render.engines.spec import DeviceRequestSpec, EngineSpec, MemberSpec
from activities.render.inputs.findings import DRAUnavailable
from activities.render.objects import components, contract, inventory_keys
from activities.render.objects.manifest import RenderedObject, compact, labelled_item
from api_types import names
from api_types.digests import content_hash
from api_types.pins import apiversions


def claim_templates(context: Context) -> list[RenderedObject]:
    """Return the templates of all engines.

    Raises DRAUnavailable if devices are claimed on a cluster that does not serve DRA.
    """
    claiming = [
        (engine, member)
        for engine in context.spec.engines
        for member in engine.members
        if member.claims
    ]
    if claiming and not context.facts.dra_version:
        where = ", ".join(
            f"engine {engine.name} member {member.role}" for engine, member in claiming
        )
        problem = (
            f"cluster {context.cluster.name} serves no version of "
            f"{apiversions.DRA_GROUP}, which {where} needs"
        )
        raise DRAUnavailable(
            context.subject,
            (problem,),
        )
    return [_template(context, engine, member) for engine, member in claiming]


def claim_template_name(
    context: Context, engine: EngineSpec, member: MemberSpec
) -> str:
    """Return the name of a member's template, which depends on its requests.

    The name does not depend on the served API version, so an upgrade of it does not
    roll pods.
    """
    constraints = _constraints(engine, member)
    requests = [_request(request) for request in member.claims]
    spec_digest = content_hash([requests, constraints] if constraints else requests)
    return names.claim_template_name(
        context.replica.namespace,
        context.replica.name,
        engine.name,
        member.role,
        spec_digest,
    )


def pod_claim(
    context: Context, engine: EngineSpec, member: MemberSpec
) -> dict[str, Any]:
    """Return the pod's only claim.

    The container references the claim without a request, and therefore gets every
    device.
    """
    return {
        "name": contract.CLAIM,
        "resourceClaimTemplateName": claim_template_name(context, engine, member),
    }


def plugin_resources(member: MemberSpec) -> dict[str, str]:
    """Return the extended resources of device plugins: a count per resource."""
    counts: dict[str, int] = {}
    for request in member.requests:
        if request.resource_name:
            counts[request.resource_name] = (
                counts.get(request.resource_name, 0) + request.count
            )
    return {resource: str(count) for resource, count in counts.items()}


def _template(
    context: Context, engine: EngineSpec, member: MemberSpec
) -> RenderedObject:
    version = context.facts.dra_version
    requests = [
        {"name": name, **exactly}
        if version in apiversions.DRA_VERSIONS_FLAT
        else {"name": name, "exactly": exactly}
        for name, exactly in map(_request, member.claims)
    ]
    manifest = {
        "apiVersion": f"{apiversions.DRA_GROUP}/{version}",
        "kind": "ResourceClaimTemplate",
        "metadata": context.metadata(claim_template_name(context, engine, member)),
        "spec": {
            "spec": {
                "devices": compact(
                    requests=requests, constraints=_constraints(engine, member)
                )
            }
        },
    }
    key = f"{inventory_keys.CLAIM_TEMPLATE_PREFIX}{engine.name}-{member.role.lower()}"
    return labelled_item(
        context.owner, key, components.DEVICE_CLAIM, manifest, engine=engine.name
    )


def _constraints(engine: EngineSpec, member: MemberSpec) -> list[dict[str, Any]]:
    """Return the constraints of a member's claim.

    Constraints that name only requests of other members are left out.
    """
    claimed = {request.name for request in member.claims}
    return [
        compact(
            matchAttribute=constraint.attribute,
            requests=[name for name in constraint.requests if name in claimed],
        )
        for constraint in engine.topology.constraints
        if not constraint.requests or claimed & set(constraint.requests)
    ]


def _request(request: DeviceRequestSpec) -> tuple[str, dict[str, Any]]:
    selectors = [{"cel": {"expression": text}} for text in request.selectors]
    return request.name, compact(
        deviceClassName=request.device_class, count=request.count, selectors=selectors
    )
