"""Nodes of preempted replicas are nominated for the preemptor until the preempted replicas are gone.

The words are those of kube-scheduler's nominated node name. A preemptor may be preempted itself by a still higher priority before it got
its nodes: then the nodes that were nominated for it are nominated for the new preemptor.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from scheduler.fleet.ledger import Ledger
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.identity import Owner
from scheduler.model.inputs import LedgerEntry


def nominate(ledger: Ledger, victim: LedgerEntry, preemptor: Owner, now: int) -> None:
    """Release a preempted replica and nominate its nodes for the preemptor, with those nominated for the victim itself; `now` in ms."""
    promised = Counter(dict(victim.reuse))
    entitled = victim.nominated_for or (victim.namespace, victim.deployment)
    for entry in sorted(ledger.on_cluster(victim.cluster).values(), key=lambda entry: entry.uid):
        same_nominee = (entry.nominated_for or (entry.namespace, entry.deployment)) == entitled
        nodes = charges(entry.engines)
        if entry.state == reasons.RELEASING and same_nominee and any(promised[pool] > 0 for pool in nodes):
            promised.subtract(nodes)
            ledger.put(replace(entry, nominated_for=preemptor))
    ledger.put(replace(victim.as_releasing(now), nominated_for=preemptor))
