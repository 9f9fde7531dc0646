"""The ledger entry of a new placement, and the policy in a deployment's entries.

Both must be equal while a batch is decided and when its decisions are applied. The
sources differ (the request and the recorded decision), so the policy is a separate
value. The decisions about other deployments use the policy in the entries to find out
which replicas they may preempt and which they must avoid. It is the policy of the
latest decision about the deployment, not the policy at the time of each placement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from scheduler.fleet.ledger import Ledger
from scheduler.model.decision import AntiAffinity, Placement
from scheduler.model.identity import Owner
from scheduler.model.inputs import DeploymentView, LedgerEntry
from scheduler.model.policy import SchedulerOptions
from scheduler.model.reasons import RESERVED


class EntryPolicy(NamedTuple):
    """The policy fields in the ledger entries of a deployment, under the same names."""

    priority: int
    priority_class: str
    labels: tuple[tuple[str, str], ...]
    min_available: int
    avoids: AntiAffinity

    @staticmethod
    def of(deployment: DeploymentView, options: SchedulerOptions) -> EntryPolicy:
        """Read the policy of a deployment; the fleet's policy defines its priority."""
        policy = deployment.policy
        return EntryPolicy(
            priority=options.priority_of(policy.priority_class),
            priority_class=policy.priority_class,
            labels=tuple(sorted(deployment.labels.items())),
            min_available=policy.min_available,
            avoids=tuple(
                (
                    term.topology_key,
                    term.namespaces,
                    tuple(sorted(term.match_labels.items())),
                )
                for term in policy.anti_affinity
                if not term.weight
            ),
        )

    def is_of(self, entry: LedgerEntry) -> bool:
        """Return whether an entry has this policy."""
        return self == (
            entry.priority,
            entry.priority_class,
            entry.labels,
            entry.min_available,
            entry.avoids,
        )

    def given_to(self, entry: LedgerEntry) -> LedgerEntry:
        """Return the entry with this policy."""
        return entry if self.is_of(entry) else replace(entry, **self._asdict())


class ReservedFor(NamedTuple):
    """The deployment that nodes are reserved for.

    `since` and `origin` are the fields of the same names in its ledger entries.
    """

    namespace: str
    deployment: str
    since: int
    origin: tuple[str, str]
    policy: EntryPolicy


def reserved_entry(placement: Placement, reserved_for: ReservedFor) -> LedgerEntry:
    policy = reserved_for.policy
    return LedgerEntry(
        uid=placement.uid,
        namespace=reserved_for.namespace,
        deployment=reserved_for.deployment,
        cluster=placement.cluster,
        index=placement.index,
        name=placement.replica_name,
        engines=placement.engines,
        state=RESERVED,
        since=reserved_for.since,
        template=placement.template,
        name_counter=placement.name_counter,
        reuse=placement.reuse,
        after=placement.after if placement.waits_for_part else (),
        origin=reserved_for.origin,
        priority=policy.priority,
        priority_class=policy.priority_class,
        labels=policy.labels,
        min_available=policy.min_available,
        avoids=policy.avoids,
    )


def refresh_policy(ledger: Ledger, owner: Owner, policy: EntryPolicy) -> bool:
    """Update the policy in a deployment's entries; return True if one changed."""
    outdated = [
        entry for entry in ledger.owned(*owner).values() if not policy.is_of(entry)
    ]
    for entry in outdated:
        ledger.put(policy.given_to(entry))
    return bool(outdated)
