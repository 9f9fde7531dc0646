"""Who sets the replica count by itself: two autoscalers of one deployment undo what the other one does, and neither sees why.

The front tells signed callers from users. Of HPA and KEDA it knows a user like any other, so who sets the count again and again is one too.
KEDA is two users, of which one is the HorizontalPodAutoscaler that it makes; nobody else is taken for a part of it.
"""

import re
from collections.abc import Sequence

from api_types.messages.entities import WEBHOOK_REQUEST, Scale
from api_types.text.printable import escaped
from workflows.entity.conditions import FALSE, Verdict
from workflows.model_deployment.state import ScaleWriter

SCALED_BY_ONE = "ScaledByOne"
"""The condition of a deployment that several autoscalers scale; it is there only while that is so."""
WITHIN_SECONDS = 600
WRITERS_MAX = 8
# A person sets a count, and perhaps another one; an autoscaler does so at each of its polls.
_TIMES_MIN = 3
_SEVERAL = 2
_SYSTEM_USERS = "system:"
# KEDA sets the count between none and one itself, and leaves the rest to a HorizontalPodAutoscaler that it makes. These are the names of
# their service accounts as both are installed by default, whatever the namespace of KEDA.
_KEDA_ACCOUNT = re.compile(r"system:serviceaccount:[^:]+:keda-operator")
_HPA_USERS = ("system:serviceaccount:kube-system:horizontal-pod-autoscaler", "system:kube-controller-manager")


def with_writer(writers: Sequence[ScaleWriter], message: Scale, now: float) -> list[ScaleWriter]:
    """Add who has set the count now, in seconds since 1970; gives the writers of the last minutes, the newest at the end."""
    lately = [writer for writer in writers if writer.times[-1] > now - WITHIN_SECONDS]
    before = next((writer for writer in lately if writer.by == message.by), None)
    times = [*(before.times if before else []), now][-_TIMES_MIN:]
    again = len(times) == _TIMES_MIN and times[0] > now - WITHIN_SECONDS
    named = message.request_id.startswith(WEBHOOK_REQUEST) or message.by.startswith(_SYSTEM_USERS)
    writer = ScaleWriter(by=message.by, automatic=named or again or (before is not None and before.automatic), times=times)
    return [*(other for other in lately if other.by != message.by), writer][-WRITERS_MAX:]


def scaled_by_one(writers: Sequence[ScaleWriter], now: float, *, keda_is_one: bool = True) -> tuple[Verdict | None, float]:
    """Judge whether several autoscalers have set the count in the last minutes. `keda_is_one`: with the HPA that KEDA makes.

    Gives the condition, None if at most one has; and after how many seconds it is to be judged again if none sets the count, 0 for never.
    """
    last = {writer.by: writer.times[-1] for writer in writers if writer.automatic and writer.times[-1] > now - WITHIN_SECONDS}
    if keda_is_one and any(_KEDA_ACCOUNT.fullmatch(name) for name in last):
        last = {name: time for name, time in last.items() if name not in _HPA_USERS}
    if len(last) < _SEVERAL:
        return None, 0
    who, minutes = " and ".join(shown_name(name) for name in sorted(last)), WITHIN_SECONDS // 60
    message = f"{who} have set the replica count within {minutes} minutes, and the last one holds: let only one scale this deployment"
    return Verdict(FALSE, "SeveralAutoscalers", message), min(last.values()) + WITHIN_SECONDS - now


def shown_name(name: str) -> str:
    """Show the name of a writer in a sentence."""
    return escaped(name) or "unknown"
