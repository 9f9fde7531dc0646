"""Whose objects a ModelCache may take over: those of an earlier run of its own workflow that was ended in Temporal.

Such a run could delete nothing, and the volumes that it left are those that its successor would fill. Namespace and name alone prove
nothing: other control planes work on the same clusters, with the same names. So the run that had the uid is looked up here, in the Temporal
namespace of the one that asks, where no two runs of an id are open at once. Without the proof an object is left as it is.
"""

from collections.abc import Collection
from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, ObjectId, Selection
from activities.cluster_objects.deletion import list_served
from activities.cluster_objects.ownership import Owner, owner_of
from activities.messaging.search_attributes import ended_runs_query
from api_types import labels, names
from api_types.errors import ServerError

# The latest ones; each is replayed to be asked.
_RUNS_MAX = 10
_TIMEOUT = timedelta(seconds=10)


async def ended_uids(client: Client, owner: Owner, wanted: Collection[str]) -> set[str]:
    """Give those of the `wanted` uids that ended runs of the owner's workflow had. Raises ServerError if one cannot be asked now."""
    found: set[str] = set()
    try:
        async for run in client.list_workflows(ended_runs_query(owner.workflow_id), limit=_RUNS_MAX, rpc_timeout=_TIMEOUT):
            found |= {await _uid_of(client, run.id, run.run_id)} & set(wanted)
            if len(found) == len(wanted):
                break
    except RPCError as error:
        raise ServerError(f"earlier runs of {owner.workflow_id} cannot be asked which objects are theirs: {error.message}") from error
    return found


async def other_claims(cluster: ClusterApi, owner: Owner, present: ObjectId) -> dict[str, str]:
    """Return the claims of other runs of the owner beside its present claim.

    The keys are their names, the values are the uids of their runs.
    """
    selector = f"{labels.MODEL_CACHE}={names.label_value(owner.name)}"
    selection = Selection(kinds.VOLUME_CLAIM, present.namespace, selector, metadata_only=True)
    uids: dict[str, str] = {}
    for item in await list_served(cluster, selection):
        found = owner_of(item)
        is_of_cache = found._replace(uid=owner.uid) == owner
        if is_of_cache and found.uid not in ("", owner.uid) and ObjectId.of(item) != present:
            uids[item["metadata"]["name"]] = found.uid
    return uids


async def _uid_of(client: Client, workflow_id: str, run_id: str) -> str:
    """Give the uid that a run had; empty if it ended before it had one, or is not kept any more."""
    try:
        account = await client.get_workflow_handle(workflow_id, run_id=run_id).query("account", rpc_timeout=_TIMEOUT)
    except WorkflowQueryFailedError:
        return ""
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return ""
        raise
    return str(account.get("uid", ""))
