"""Random faults that all end.

A run that meets them becomes ready, or fails with a known reason.
"""

from collections.abc import Callable, Sequence
from random import Random

from fakes.gcp.calls.faults import (
    ConcurrentOperation,
    DependencyRefuses,
    EtagRace,
    GcpFault,
    HalfDeleted,
    Invisible,
    Kind,
    LateEffect,
    Leak,
    LoseAnswer,
    OperationFails,
    Refuse,
    RevokeCredential,
    StockOut,
    TerminalState,
    TooManyRequests,
    Vanish,
)

CREATES = (
    "container.create_cluster",
    "container.create_node_pool",
    "compute.networks.insert",
    "compute.subnetworks.insert",
    "iam.create_service_account",
    "iam.create_service_account_key",
)
DELETES = (
    "container.delete_cluster",
    "container.delete_node_pool",
    "compute.networks.delete",
    "compute.subnetworks.delete",
    "iam.delete_service_account",
    "iam.delete_service_account_key",
)
OTHERS = (
    "serviceusage.enable_service",
    "resourcemanager.projects.get_iam_policy",
    "resourcemanager.projects.set_iam_policy",
    "container.set_node_pool_autoscaling",
    "container.update_node_pool",
)
READS = (
    "container.get_cluster",
    "container.get_node_pool",
    "container.get_operation",
    "compute.networks.get",
    "compute.subnetworks.get",
    "compute.operations.get",
    "iam.get_service_account",
    "iam.list_service_account_keys",
)
_WRITES = (*CREATES, *DELETES, *OTHERS)
# Calls whose operation can end with an error.
_WITH_OPERATION = tuple(
    call for call in (*CREATES, *DELETES) if call.startswith(("container.", "compute."))
)
_LEAKS: Sequence[Kind] = (
    "address",
    "disk",
    "filestore",
    "firewall",
    "forwarding_rule",
    "neg",
)
_TRANSIENT = (
    ("UNAVAILABLE", "The service is unavailable."),
    ("INTERNAL", "Internal error."),
    ("ABORTED", "Aborted."),
)
_QUOTA = (
    'Insufficient regional quota to satisfy request: resource "NVIDIA_L4_GPUS": '
    "request requires '1.0' and is short '1.0'."
)


def random_faults(draw: Random, count: int) -> list[GcpFault]:
    """Draw so many faults. An equal state of `draw` gives equal faults."""
    return [draw.choice(_MAKERS)(draw) for _ in range(count)]


def _throttle(draw: Random) -> GcpFault:
    return TooManyRequests(
        call=draw.choice((*_WRITES, *READS)),
        skip=draw.randrange(3),
        times=draw.randint(1, 4),
    )


def _transient(draw: Random) -> GcpFault:
    code, message = draw.choice(_TRANSIENT)
    return Refuse(
        call=draw.choice((*_WRITES, *READS)),
        skip=draw.randrange(3),
        times=draw.randint(1, 3),
        code=code,
        message=message,
    )


def _lost(draw: Random) -> GcpFault:
    return LoseAnswer(
        call=draw.choice(_WRITES), how=draw.choice(("unavailable", "cut"))
    )


def _late(draw: Random) -> GcpFault:
    return LateEffect(call=draw.choice(CREATES[:-1]), later=draw.randint(1, 6))


def _invisible(draw: Random) -> GcpFault:
    return Invisible(
        call=draw.choice((*CREATES[:-1], "serviceusage.enable_service")),
        reads=draw.randint(1, 4),
    )


def _vanish(draw: Random) -> GcpFault:
    return Vanish(
        call=draw.choice(
            (
                "container.get_node_pool",
                "compute.subnetworks.get",
                "iam.get_service_account",
            )
        ),
        skip=draw.randrange(4),
    )


def _operation_fails(draw: Random) -> GcpFault:
    call = draw.choice(_WITH_OPERATION)
    return OperationFails(call=call, effect=draw.random() < 0.5)  # noqa: PLR2004


def _concurrent(draw: Random) -> GcpFault:
    calls = (
        "container.create_node_pool",
        "container.delete_node_pool",
        "container.delete_cluster",
    )
    return ConcurrentOperation(call=draw.choice(calls), reads=draw.randint(1, 5))


_MAKERS: Sequence[Callable[[Random], GcpFault]] = (
    _throttle,
    _throttle,
    _transient,
    _transient,
    _lost,
    _lost,
    _late,
    _invisible,
    _vanish,
    _operation_fails,
    _concurrent,
    lambda draw: RevokeCredential(call=draw.choice(_WRITES), calls=draw.randint(1, 6)),
    lambda draw: TerminalState(
        call=draw.choice(("container.create_cluster", "container.create_node_pool"))
    ),
    lambda draw: StockOut(times=draw.randint(1, 2)),
    lambda draw: Refuse(
        call="container.create_node_pool",
        times=draw.randint(1, 2),
        code="PERMISSION_DENIED",
        message=_QUOTA,
    ),
    lambda _: EtagRace(call="resourcemanager.projects.set_iam_policy"),
    lambda draw: DependencyRefuses(
        call=draw.choice(("compute.networks.delete", "compute.subnetworks.delete")),
        times=draw.randint(1, 4),
    ),
    lambda draw: Leak(kind=draw.choice(_LEAKS)),
    lambda _: HalfDeleted(),
)
