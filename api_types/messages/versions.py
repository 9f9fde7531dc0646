"""Which of two messages about one object is newer.

Signals arrive late, twice and out of order. The sequence of an object orders its messages, but it begins anew with every object: one
that was deleted or terminated and applied again has the same name, another uid, and a lower sequence. So uid and sequence are compared
together, here and nowhere else. Uids have no order of their own: one that was never seen is newer, one that was superseded is older.
"""

from pydantic import Field

from api_types.base import Id, Message, SentAt, is_time

# Messages are late by seconds. To reach so many uids, an object would have to be applied again so many times within that time.
SUPERSEDED_MAX = 8


class Version(Message):
    """The newest message that a receiver has of one object; without a uid it has none.

    `superseded`: the uids of earlier objects of that name, the newest last.
    """

    uid: str = ""
    sequence: int = 0
    superseded: list[str] = Field(default_factory=list)

    def accepts(self, uid: str, sequence: int) -> bool:
        """Tell whether a message is at least as new as what is known; the same message again changes nothing."""
        return sequence >= self.sequence if uid == self.uid else uid not in self.superseded

    def replaced_by(self, uid: str) -> bool:
        """Tell whether a message that is accepted is about another object than the one that is known."""
        return self.uid not in ("", uid)

    def is_doubtful(self, uid: str) -> bool:
        """Tell whether a message is of an object that was never heard of, while another one of its name is known, or was and is gone.

        Either may be the earlier one: a message of an object that is gone may be late. The object itself says which.
        """
        return uid != self.uid and bool(self.uid or self.superseded) and uid not in self.superseded

    def allowing(self, uid: str) -> "Version":
        """Give the version that accepts an object again: it has said itself that it is there."""
        return self.model_copy(update={"superseded": [known for known in self.superseded if known != uid]})

    def advanced(self, uid: str, sequence: int) -> "Version":
        """Give the version after a message that was accepted."""
        superseded = _with(self.superseded, self.uid) if self.replaced_by(uid) else self.superseded
        return Version(uid=uid, sequence=sequence, superseded=superseded)

    def ended(self, uid: str) -> "Version":
        """Give the version after an object is gone: what arrives of it later is old. The end of an earlier object changes nothing else."""
        superseded = _with(self.superseded, uid)
        return Version(superseded=superseded) if uid == self.uid else self.model_copy(update={"superseded": superseded})


class ObservationOrder(Message):
    """The place of an observation among the observations of one cluster.

    It consists of the uid of the cluster, the run of its watch, and a number within the run. If the
    time numbers the run, the run is later than every run with a lower number, whatever the uid.
    """

    cluster: Id = ""
    cluster_uid: Id = ""
    run: SentAt = 0
    sequence: SentAt = 0


class ObservationVersion(Message):
    """The newest observation that its owner has. A worker that was taken for dead may still send what it saw before."""

    run: Version = Version()
    sequence: int = 0

    def accepts(self, order: ObservationOrder, current: str = "") -> bool:
        """Tell whether an observation is at least as new as the known one.

        `current`: uid of the cluster that reports itself as present. Times say nothing about another
        cluster than that: the clock may have been set back since.
        """
        if current and order.cluster_uid != self.run.uid:
            if order.cluster_uid == current and current not in self.run.superseded:
                return True
            if self.run.uid == current and order.cluster_uid in self.run.superseded:
                return False
        if is_time(max(order.run, self.run.sequence)):
            return (order.run, order.sequence) >= (self.run.sequence, self.sequence)
        if (order.cluster_uid, order.run) == (self.run.uid, self.run.sequence):
            return order.sequence >= self.sequence
        return self.run.accepts(order.cluster_uid, order.run)

    def allowing(self, cluster_uid: str) -> "ObservationVersion":
        """Return the version that accepts observations of the cluster that reports itself as current.

        The watch of a deleted cluster runs on for seconds. If an owner first hears of that cluster
        then, the deleted cluster seems to be the newer one.
        """
        return self.model_copy(update={"run": self.run.allowing(cluster_uid)})

    def advanced(self, order: ObservationOrder) -> "ObservationVersion":
        """Give the version after an observation that was accepted."""
        return ObservationVersion(run=self.run.advanced(order.cluster_uid, order.run), sequence=order.sequence)


def _with(superseded: list[str], uid: str) -> list[str]:
    return [*(known for known in superseded if known != uid), uid][-SUPERSEDED_MAX:]
