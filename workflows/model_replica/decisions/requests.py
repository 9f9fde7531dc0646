"""Arguments of activities on the replica's cluster, as pure functions of its state."""

from datetime import timedelta

from api_types import names
from api_types.messages.cluster_work import ApplyReplica, RunTeardownStep
from workflows.model_replica.decisions.cluster import access_of
from workflows.model_replica.decisions.plan import recreated_engines
from workflows.model_replica.state import ModelReplicaState


def apply_request(state: ModelReplicaState) -> ApplyReplica:
    """Return the input for rendering and applying this replica."""
    access, start = access_of(state), state.start
    if access is None or state.spec is None:
        raise ValueError("an apply needs a known cluster and a spec")
    connection, facts = access
    return ApplyReplica(
        connection=connection,
        facts=facts.model_copy(update={"routing": state.surface or facts.routing}),
        namespace=start.namespace,
        name=start.name,
        uid=state.uid,
        generation=state.generation,
        deployment=start.deployment,
        cluster=start.cluster,
        index=start.index,
        spec=state.spec,
        cache_claim=state.cache_claim,
        cache_gib=state.cache_gib,
        adapter_claims=state.adapter_claims(),
        mounts=state.mounts(),
        picker_flags=state.picker_flags,
        adoption=state.adoption
        > (state.applied_inputs.adoption if state.applied_inputs else 0),
        inventory=state.applied.inventory if state.applied else [],
        search=state.apply_started and not state.inventory_complete,
        recreated=recreated_engines(state),
    )


def teardown_request(state: ModelReplicaState, timeout: timedelta) -> RunTeardownStep:
    """Return the input for the current step of the teardown."""
    access, applied, start = access_of(state), state.applied, state.start
    if access is None:
        raise ValueError("a teardown step needs a known cluster")
    connection, facts = access
    return RunTeardownStep(
        connection=connection,
        facts=facts,
        namespace=start.namespace,
        uid=state.uid,
        workload_name=names.workload_name(start.namespace, start.name),
        workload_namespace=applied.workload_namespace if applied else "",
        number=state.teardown.number,
        inventory=applied.inventory if applied else [],
        wait_seconds=timeout.total_seconds(),
        skipped=state.teardown.skipped,
    )
