"""The order of two messages about one object.

Signals arrive late, twice and out of order. The sequence of an object orders its
messages, but each object starts its own sequence: if an object was deleted or
terminated and then applied again, it has the same name, another uid, and a lower
sequence. So uid and sequence are compared together, in this module only. Uids
themselves have no order: an unknown uid is newer, and a superseded uid is older.
"""

from pydantic import Field

from api_types.base import Id, Message, SentAt, is_time

# Messages are late by seconds. More uids would require that somebody applies an object
# again this often within that time.
SUPERSEDED_MAX = 8


class MessageVersion(Message):
    """The newest message that a receiver has of one object.

    It has none if `uid` is empty.

    `superseded` are the uids of earlier objects of that name, the newest last.
    """

    uid: str = ""
    sequence: int = 0
    superseded: list[str] = Field(default_factory=list)

    def accepts(self, uid: str, sequence: int) -> bool:
        """Return whether a message is at least as new as the known one.

        A repeated message has no effect.
        """
        return (
            sequence >= self.sequence if uid == self.uid else uid not in self.superseded
        )

    def replaced_by(self, uid: str) -> bool:
        """Return whether an accepted message is about a new object of the name."""
        return self.uid not in ("", uid)

    def is_doubtful(self, uid: str) -> bool:
        """Return whether a message is from an unknown object of a known name.

        The known object may exist or be gone. Either object may be the earlier one,
        because a message of a deleted object may be late. Only a report of the object
        itself resolves this.
        """
        return (
            uid != self.uid
            and bool(self.uid or self.superseded)
            and uid not in self.superseded
        )

    def allowing(self, uid: str) -> "MessageVersion":
        """Return the version that accepts an object again, after its own report."""
        return self.model_copy(
            update={"superseded": [known for known in self.superseded if known != uid]}
        )

    def advanced(self, uid: str, sequence: int) -> "MessageVersion":
        """Return the version after an accepted message."""
        superseded = (
            _with(self.superseded, self.uid)
            if self.replaced_by(uid)
            else self.superseded
        )
        return MessageVersion(uid=uid, sequence=sequence, superseded=superseded)

    def ended(self, uid: str) -> "MessageVersion":
        """Return the version after an object is gone; its later messages are old.

        The end of an earlier object has no other effect.
        """
        superseded = _with(self.superseded, uid)
        return (
            MessageVersion(superseded=superseded)
            if uid == self.uid
            else self.model_copy(update={"superseded": superseded})
        )


class ObservationOrder(Message):
    """The place of an observation among the observations of one cluster.

    It consists of the uid of the cluster, the run of its watch, and a number within the
    run. If the time numbers the run, the run is later than every run with a lower
    number, whatever the uid.
    """

    cluster: Id = ""
    cluster_uid: Id = ""
    run: SentAt = 0
    sequence: SentAt = 0


class ObservationVersion(Message):
    """The newest observation that its owner has.

    A worker that was considered dead may still send old observations.
    """

    run: MessageVersion = MessageVersion()
    sequence: int = 0

    def accepts(self, order: ObservationOrder, current: str = "") -> bool:
        """Return whether an observation is at least as new as the known one.

        `current`: uid of the cluster that reports itself as present. Times do not help
        to compare it with another cluster, because the clock may have been set back
        since.
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
        """Return the version that accepts observations of the current cluster.

        The watch of a deleted cluster runs for some more seconds. If an owner first
        receives a message of that cluster then, the deleted cluster seems to be the
        newer one.
        """
        return self.model_copy(update={"run": self.run.allowing(cluster_uid)})

    def advanced(self, order: ObservationOrder) -> "ObservationVersion":
        """Return the version after an accepted observation."""
        return ObservationVersion(
            run=self.run.advanced(order.cluster_uid, order.run), sequence=order.sequence
        )


def _with(superseded: list[str], uid: str) -> list[str]:
    return [*(known for known in superseded if known != uid), uid][-SUPERSEDED_MAX:]
