"""The ledger entry of a new placement: the same while its batch is decided and when its decision is applied.

The two have different sources, the request and the recorded decision, so what they give is a value of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from scheduler.model.decision import AntiAffinity, Placement
from scheduler.model.inputs import LedgerEntry
from scheduler.model.reasons import RESERVED


class ReservedFor(NamedTuple):
    """The deployment that nodes are reserved for, as the fields of its ledger entries of the same names."""

    namespace: str
    deployment: str
    priority: int
    since: int
    labels: tuple[tuple[str, str], ...]
    min_available: int
    avoids: AntiAffinity
    origin: tuple[str, str]


def reserved_entry(placement: Placement, reserved_for: ReservedFor) -> LedgerEntry:
    """Give the ledger entry of a new placement."""
    return LedgerEntry(
        uid=placement.uid,
        cluster=placement.cluster,
        index=placement.index,
        name=placement.replica_name,
        engines=placement.engines,
        state=RESERVED,
        template=placement.template,
        name_counter=placement.name_counter,
        reuse=placement.reuse,
        **reserved_for._asdict(),
    )
