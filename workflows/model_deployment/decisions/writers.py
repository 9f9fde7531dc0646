"""The writers of the replica count.

Two autoscalers of one deployment undo each other's changes, and neither notices. The
front distinguishes signed callers from users. HPA and KEDA are users to it, so a user
who sets the count again and again counts as an autoscaler. KEDA has two users: its own,
and the HorizontalPodAutoscaler that it creates.
"""

import re
from collections.abc import Sequence

from api_types.messages.entities import WEBHOOK_REQUEST, Scale
from api_types.text.printable import escaped
from workflows.entity.conditions import FALSE, Verdict
from workflows.model_deployment.state import ScaleWriter

SCALED_BY_ONE = "ScaledByOne"
"""The condition of a deployment that several autoscalers scale.

It is absent otherwise.
"""
WITHIN_SECONDS = 600
WRITERS_MAX = 8
# A person sets a count once or twice; an autoscaler sets it at each of its polls.
_TIMES_MIN = 3
_SEVERAL = 2
_SYSTEM_USERS = "system:"
# KEDA sets the count between none and one itself, and leaves the rest to a
# HorizontalPodAutoscaler that it creates. These are the names of their service accounts
# in default installations, for any namespace of KEDA.
_KEDA_ACCOUNT = re.compile(r"system:serviceaccount:[^:]+:keda-operator")
_HPA_USERS = (
    "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "system:kube-controller-manager",
)


def with_writer(
    writers: Sequence[ScaleWriter], message: Scale, now: float
) -> list[ScaleWriter]:
    """Add the writer of a count; return the writers of the last minutes, the newest last.

    Times are in seconds since 1970.
    """
    lately = [writer for writer in writers if writer.times[-1] > now - WITHIN_SECONDS]
    before = next((writer for writer in lately if writer.by == message.by), None)
    times = [*(before.times if before else []), now][-_TIMES_MIN:]
    again = len(times) == _TIMES_MIN and times[0] > now - WITHIN_SECONDS
    named = message.request_id.startswith(WEBHOOK_REQUEST) or message.by.startswith(
        _SYSTEM_USERS
    )
    writer = ScaleWriter(
        by=message.by,
        automatic=named or again or (before is not None and before.automatic),
        times=times,
    )
    return [*(other for other in lately if other.by != message.by), writer][
        -WRITERS_MAX:
    ]


def scaled_by_one(
    writers: Sequence[ScaleWriter], now: float
) -> tuple[Verdict | None, float]:
    """Judge whether several autoscalers have set the count in the last minutes.

    KEDA and its HPA count as one. Returns the condition, None if at most one autoscaler
    has set the count, and the seconds after which to judge again; 0 for never.
    """
    last = {
        writer.by: writer.times[-1]
        for writer in writers
        if writer.automatic and writer.times[-1] > now - WITHIN_SECONDS
    }
    if any(_KEDA_ACCOUNT.fullmatch(name) for name in last):
        last = {name: time for name, time in last.items() if name not in _HPA_USERS}
    if len(last) < _SEVERAL:
        return None, 0
    who, minutes = (
        " and ".join(shown_name(name) for name in sorted(last)),
        WITHIN_SECONDS // 60,
    )
    message = (
        f"{who} have set the replica count within {minutes} minutes, and the last "
        "count holds: let only one of them scale this deployment"
    )
    return Verdict(FALSE, "SeveralAutoscalers", message), min(
        last.values()
    ) + WITHIN_SECONDS - now


def shown_name(name: str) -> str:
    """Return the name of a writer for messages."""
    return escaped(name) or "unknown"
