"""Receivers that take no signals, as a sender knows them. The Redelivery of each receiver reports to its senders."""

from collections.abc import Mapping

from api_types import names
from api_types.messages.delivery import Delivery

DELIVERIES_KEPT = 50


def with_delivery(known: Mapping[str, Delivery], new: Delivery) -> dict[str, Delivery]:
    """Add a report to the last report of each receiver. A report from before the end of its refusal changes nothing.

    A few receivers that take signals again are kept, to recognize a late report of their refusal.
    """
    before = known.get(new.receiver)
    if before is not None and before.refusal == new.refusal and not before.problem:
        return dict(known)
    others = {receiver: report for receiver, report in known.items() if receiver != new.receiver}
    # Receivers that take signals again are dropped first.
    reports = sorted([*others.values(), new], key=lambda report: bool(report.problem))
    return {report.receiver: report for report in reports[-DELIVERIES_KEPT:]}


def undelivered(delivery: Delivery) -> str:
    """Tell people that a receiver takes no signals, with the next step."""
    next_step = f"They are sent again; see the workflow {names.redelivery_id(delivery.receiver)}, and repair or terminate its receiver"
    return f"{delivery.receiver} takes no signals: {delivery.problem}. {next_step}"
