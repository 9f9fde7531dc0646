"""Whose objects a ModelCache may take over: those of an earlier run of its own workflow that was ended in Temporal.

Such a run could delete nothing, and the volumes that it left are those that its successor would fill. Namespace and name alone prove
nothing: other control planes work on the same clusters, with the same names. So the run that had the uid is looked up here, in the Temporal
namespace of the one that asks, where no two runs of an id are open at once. Without the proof an object is left as it is.
"""

from collections.abc import Collection
from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.cluster_objects.ownership import Owner
from activities.messaging.search_attributes import ended_runs_query
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
