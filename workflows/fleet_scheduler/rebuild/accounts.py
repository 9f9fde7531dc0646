"""Accounts of many entities in few bytes.

Ledger entries are stored as compressed columns, so that a history can carry a large
fleet. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field

from api_types.base import Message
from api_types.messages.scheduling import (
    DeploymentAccount,
    ReplicaAccount,
    ReportClass,
    ReportCluster,
)
from api_types.payloads.packing import pack, unpack
from scheduler import LedgerEntry, pack_rows, read_entry, reasons, unpack_rows


class PackedAccounts(Message):
    """The answers of entities.

    Attributes:
        epoch: the greatest epoch that any entity has seen.
        entries: the ledger entries of replicas.
        gone: the uids of replicas whose objects are deleted.
        deployments: the uids of deployments, by namespace/name.
        clusters, classes: the reports of clusters and classes.

    """

    epoch: int = 0
    entries: str = ""
    gone: list[str] = Field(default_factory=list)
    deployments: dict[str, str] = Field(default_factory=dict)
    clusters: str = ""
    classes: str = ""

    def read_entries(self) -> Iterator[LedgerEntry]:
        """Unpack the ledger entries."""
        return unpack_rows(unpack(self.entries)) if self.entries else iter(())

    def read_clusters(self) -> Iterator[ReportCluster]:
        return map(ReportCluster.model_validate, unpack(self.clusters) or ())

    def read_classes(self) -> Iterator[ReportClass]:
        return map(ReportClass.model_validate, unpack(self.classes) or ())


@dataclass
class Accounts:
    """The accounts that were read so far."""

    epoch: int = 0
    entries: dict[str, LedgerEntry] = field(default_factory=dict)
    gone: dict[str, None] = field(default_factory=dict)
    deployments: dict[str, str] = field(default_factory=dict)
    clusters: list[ReportCluster] = field(default_factory=list)
    classes: list[ReportClass] = field(default_factory=list)

    def add(self, workflow_id: str, account: Any) -> None:
        """Read the account of an entity. Raises ValueError, and adds nothing then."""
        kind = workflow_id.split("/", 1)[0]
        if kind == "inferencecluster":
            cluster = ReportCluster.model_validate(account)
            self.epoch = max(self.epoch, cluster.epoch)
            self.clusters.append(cluster)
        elif kind == "inferenceclass":
            found = ReportClass.model_validate(account)
            self.epoch = max(self.epoch, found.epoch)
            self.classes.append(found)
        elif kind == "modelreplica":
            self._add_replicas([ReplicaAccount.model_validate(account)])
        else:
            deployment = DeploymentAccount.model_validate(account)
            self._add_replicas(
                [
                    ReplicaAccount.model_validate(replica)
                    for replica in _unpacked(deployment.replicas)
                ]
            )
            self.epoch = max(self.epoch, deployment.epoch)
            self.deployments[workflow_id.split("/", 1)[1]] = deployment.uid

    def _add_replicas(self, replicas: Iterable[ReplicaAccount]) -> None:
        read = [
            (replica, read_entry(replica.entry))
            for replica in replicas
            if replica.entry and not replica.gone
        ]
        self.gone |= {replica.uid: None for replica in replicas if replica.gone}
        for replica, entry in read:
            state = (
                reasons.RELEASING
                if replica.deleting
                else reasons.BOUND
                if replica.started
                else reasons.RESERVED
            )
            # A started replica does not wait for the nodes of another replica any more.
            reuse = () if replica.started else entry.reuse
            known = replace(
                entry,
                uid=replica.uid,
                state=state,
                reuse=reuse,
                ready=replica.ready,
                serving=replica.serving,
            )
            self.entries[replica.uid] = known

    def packed(self) -> PackedAccounts:
        """Pack the accounts."""
        return PackedAccounts(
            epoch=self.epoch,
            entries=pack(pack_rows(list(self.entries.values())))
            if self.entries
            else "",
            gone=list(self.gone),
            deployments=self.deployments,
            clusters=pack([report.wire() for report in self.clusters])
            if self.clusters
            else "",
            classes=pack([report.wire() for report in self.classes])
            if self.classes
            else "",
        )


def cluster_of(workflow_id: str, account: Any = None) -> str:
    """Return the cluster of an entity, from its id or an unreadable account.

    Return an empty string if neither has it.
    """
    kind, _, name = workflow_id.partition("/")
    cluster = (
        name
        if kind == "inferencecluster"
        else account.get("cluster")
        if isinstance(account, Mapping)
        else ""
    )
    return cluster if isinstance(cluster, str) else ""


def _unpacked(packed: str) -> list[Any]:
    # The text comes from another worker. Errors of base64 and zlib become a ValueError,
    # like those of JSON.
    try:
        found = unpack(packed) or []
    except Exception as error:
        raise ValueError(f"replicas: cannot be unpacked: {error}") from error
    if not isinstance(found, list):
        raise ValueError("replicas: is not a list")  # noqa: TRY004 - a received value
    return found
