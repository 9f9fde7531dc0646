"""Find the ended workflow runs of a ModelCache, whose objects the cache may adopt.

A run that was terminated in Temporal deletes nothing, and its successor would fill the
remaining volumes again. Namespace and name alone do not prove that the objects belong
to the same cache: other control planes may use the same clusters and the same names. So
this module looks up the run that had the uid, in the Temporal namespace of the caller,
where a workflow id has at most one open run. Without that proof an object is not
changed.
"""

from collections.abc import Collection
from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, ObjectId, Selection
from activities.cluster_objects.deletion import list_served
from activities.cluster_objects.ownership import ObjectOwner, owner_of
from activities.messaging.search_attributes import ended_runs_query
from api_types import labels, names
from api_types.errors import ServerError

# The number of latest runs that are looked up, because each query replays a run.
_RUNS_MAX = 10
_TIMEOUT = timedelta(seconds=10)


async def ended_uids(
    client: Client, owner: ObjectOwner, wanted: Collection[str]
) -> set[str]:
    """Return the `wanted` uids that belonged to ended runs of the owner's workflow.

    Raises ServerError if a run cannot be queried now.
    """
    found: set[str] = set()
    try:
        async for run in client.list_workflows(
            ended_runs_query(owner.workflow_id), limit=_RUNS_MAX, rpc_timeout=_TIMEOUT
        ):
            found |= {await _uid_of(client, run.id, run.run_id)} & set(wanted)
            if len(found) == len(wanted):
                break
    except RPCError as error:
        raise ServerError(
            f"cannot query earlier runs of {owner.workflow_id} for their uids: {error.message}"
        ) from error
    return found


async def other_claims(
    cluster: ClusterApi, owner: ObjectOwner, present: ObjectId
) -> dict[str, str]:
    """Return the claims of the owner and of other runs of it, except its present claim.

    The keys are claim names, and the values are the uids of their runs. A workflow that
    was reset does not know the claims that it made after the reset point. A Job may
    outlast its claim, which somebody may delete or take over.
    """
    selector = f"{labels.MODEL_CACHE}={names.label_value(owner.name)}"
    uids: dict[str, str] = {}
    for kind in (kinds.JOB, kinds.VOLUME_CLAIM):
        selection = Selection(kind, present.namespace, selector, metadata_only=True)
        for item in await list_served(cluster, selection):
            found, claim = owner_of(item), names.cache_claim_of(ObjectId.of(item).name)
            is_of_cache = found._replace(uid=owner.uid) == owner
            if is_of_cache and found.uid and claim != present.name:
                uids[claim] = found.uid
    return uids


async def _uid_of(client: Client, workflow_id: str, run_id: str) -> str:
    """Return the uid of a run.

    Returns "" if the run ended before it had a uid, or Temporal no longer retains it.
    """
    try:
        account = await client.get_workflow_handle(workflow_id, run_id=run_id).query(
            "account", rpc_timeout=_TIMEOUT
        )
    except WorkflowQueryFailedError:
        return ""
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return ""
        raise
    return str(account.get("uid", ""))
