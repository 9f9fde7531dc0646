"""The nodes of replicas that have to leave are promised to whoever they leave for, until they are gone.

A replica of still higher priority may take such a promise over: then it inherits from the replica that was promised the nodes, and from
those that are leaving them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from scheduler.fleet.ledger import Ledger
from scheduler.hardware.template import charges
from scheduler.model import reasons
from scheduler.model.inputs import ReplicaView

Owner = tuple[str, str]


def nominate(ledger: Ledger, victim: ReplicaView, nominated_for: Owner, now: int) -> None:
    """Let a replica leave for an nominated_for, together with the nodes that it was promised itself; `now` in ms."""
    promised = Counter(dict(victim.reuse))
    owner = victim.nominated_for or (victim.namespace, victim.deployment)
    for entry in sorted(ledger.on_cluster(victim.cluster).values(), key=lambda entry: entry.uid):
        mine = (entry.nominated_for or (entry.namespace, entry.deployment)) == owner
        nodes = charges(entry.engines)
        if entry.state == reasons.RELEASING and mine and any(promised[pool] > 0 for pool in nodes):
            promised.subtract(nodes)
            ledger.put(replace(entry, nominated_for=nominated_for))
    ledger.put(replace(victim, state=reasons.RELEASING, since=now, ready=False, serving=False, nominated_for=nominated_for))
