"""The receivers that refuse signals, as known to their senders.

The Redelivery of each receiver reports to its senders.
"""

from collections.abc import Mapping

from api_types import names
from api_types.messages.delivery import Delivery

DELIVERIES_KEPT = 50


def with_delivery(known: Mapping[str, Delivery], new: Delivery) -> dict[str, Delivery]:
    """Add a report, and keep only the last report about each receiver.

    A late report changes nothing. Some receivers that recovered are kept, so that a
    late report of their refusal is recognized.
    """
    before = known.get(new.receiver)
    if before is not None and before.run == new.run and _is_late(new, before):
        return dict(known)
    others = {
        receiver: report
        for receiver, report in known.items()
        if receiver != new.receiver
    }
    # Drop receivers that recovered first.
    reports = sorted([*others.values(), new], key=lambda report: bool(report.problem))
    return {report.receiver: report for report in reports[-DELIVERIES_KEPT:]}


def _is_late(new: Delivery, before: Delivery) -> bool:
    is_over = not before.problem
    return new.refusal < before.refusal or (is_over and new.refusal == before.refusal)


def undelivered(delivery: Delivery) -> str:
    """Return the message that a receiver refuses signals, with the next step."""
    redelivery = names.redelivery_id(delivery.receiver)
    next_step = f"see the workflow {redelivery}, and repair or terminate its receiver"
    problem = f"{delivery.receiver} takes no signals: {delivery.problem}"
    return f"{problem}. They are sent again; {next_step}"
