"""The activities that read accounts for the scheduler.

Accounts are packed before the history records them. Each page ends when it is full or
its time is up. Nothing here knows the ledger.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field
from temporalio import activity
from temporalio.client import Client

from activities.heartbeat import heartbeating
from activities.messaging.lookups import list_entities, still_running
from activities.messaging.messages import Survey
from activities.messaging.querying import QueryResults, query_round
from api_types.base import Message
from api_types.payloads.packing import pack, unpack
from workflows.fleet_scheduler import outgoing
from workflows.fleet_scheduler.rebuild.accounts import (
    Accounts,
    PackedAccounts,
    cluster_of,
)

# The largest number of ids that one page lists, and the size of a visibility page.
LISTED_AT_ONCE = 5_000
_PAGE_SIZE = 1_000
# The largest number of entities whose accounts one page reads.
QUERIED_AT_ONCE = 500
# The number of entities that are awaited and queried together.
AWAITED_AT_ONCE = 50

# The wait between two attempts to reach unresponsive entities: 5 s doubling to 5 min.
_RETRY_SECONDS = (5.0, 300.0)


class ListEntities(Message):
    """List running entities of some kinds.

    `after` is the value in the previous page.
    """

    kinds: list[str]
    after: str = ""


class EntityPage(Message):
    """Packed workflow ids with their clusters, and the start of the next page.

    `after` is empty on the last page.
    """

    entities: str = ""
    after: str = ""

    def read(self) -> dict[str, str]:
        return dict(unpack(self.entities) or {})


class ReadAccounts(Message):
    """Read accounts of some entities: packed workflow ids with their clusters.

    `epoch` is announced first to entities that follow it. With `clusters_untold`,
    clusters do not receive it, because they must report their own. `charged` holds the
    packed workflow ids of clusters with replicas.
    """

    epoch: int
    entities: str
    clusters_untold: bool = False
    charged: str = ""


class AccountsPage(Message):
    """The accounts that were read.

    Attributes:
        accounts: the accounts.
        answered: the ids of entities that answered; set only by `await_accounts`.
        unresponsive: the ids of entities without a readable answer, with their clusters.
        left: the packed ids of entities that were not queried yet.

    """

    accounts: PackedAccounts
    answered: list[str] = Field(default_factory=list)
    unresponsive: dict[str, str] = Field(default_factory=dict)
    left: str = ""


@activity.defn
async def list_for_rebuild(wanted: ListEntities) -> EntityPage:
    """List one page of the running entities of some kinds."""
    client, found, after = activity.client(), dict[str, str](), wanted.after
    while True:
        survey = Survey(kinds=wanted.kinds, page_size=_PAGE_SIZE, after=after)
        listing = await list_entities(client, survey)
        activity.heartbeat()
        found |= listing.found
        after = listing.after
        if not after or len(found) >= LISTED_AT_ONCE:
            return EntityPage(entities=pack(found), after=after)


@activity.defn
async def read_accounts(wanted: ReadAccounts) -> AccountsPage:
    """Announce the epoch and read the accounts of entities, up to one page.

    The page lists unresponsive entities. A retry does not wait again for entities that
    the previous attempt found unresponsive and named in the heartbeat.
    """
    entities: dict[str, str] = unpack(wanted.entities)
    known = [
        workflow_id for workflow_id in _last_unresponsive() if workflow_id in entities
    ]
    asked = [workflow_id for workflow_id in entities if workflow_id not in known]
    async with heartbeating() as report:
        answers = await _ask(activity.client(), asked[:QUERIED_AT_ONCE], wanted)
        report({"unresponsive": answers.unresponsive})
        page, _ = _page(answers, entities)
        left = {
            workflow_id: entities[workflow_id]
            for workflow_id in (*answers.left, *asked[QUERIED_AT_ONCE:])
        }
        unresponsive = {
            **page.unresponsive,
            **{workflow_id: _cluster(workflow_id, entities) for workflow_id in known},
        }
        return page.model_copy(
            update={"unresponsive": unresponsive, "left": pack(left) if left else ""}
        )


@activity.defn
async def await_accounts(wanted: ReadAccounts) -> AccountsPage:
    """Query entities repeatedly until one of them answers, or no longer runs.

    Return all entities that did so. A cluster with replicas is awaited until it
    answers. Once the server has deleted its runs, its deletion and its termination look
    the same, and a missing answer must not delete anything. The workflow makes
    decisions while it waits for this activity, and its history does not grow meanwhile.
    """
    entities: dict[str, str] = unpack(wanted.entities)
    charged = frozenset(unpack(wanted.charged) if wanted.charged else ())
    client, last = activity.client(), _last_heartbeat()
    attempt = last.get("attempt", 0)
    attempt = attempt if isinstance(attempt, int) else 0
    shortest, longest = _RETRY_SECONDS
    async with heartbeating() as report:
        while True:
            report({"attempt": attempt})
            left, silent = list(entities), dict[str, str]()
            while left:
                # Few at once: if workers have to replay all of them, the answers arrive
                # together at the end.
                answers = await _ask(client, left[:AWAITED_AT_ONCE], wanted)
                page, answered = _page(answers, entities)
                running = await still_running(client, answers.unresponsive)
                # A closed workflow that cannot be queried has nothing to report either.
                closed = [
                    workflow_id
                    for workflow_id in answers.unresponsive
                    if workflow_id not in running
                ]
                ended = [*closed, *answers.missing]
                silent |= page.unresponsive
                silent |= {
                    each: _cluster(each, entities) for each in ended if each in charged
                }
                answered += [each for each in ended if each not in charged]
                if answered:
                    return page.model_copy(
                        update={"answered": answered, "unresponsive": silent}
                    )
                left = [*answers.left, *left[AWAITED_AT_ONCE:]]
            await asyncio.sleep(min(shortest * 2 ** min(attempt, 10), longest))
            attempt += 1


async def _ask(
    client: Client, workflow_ids: Sequence[str], wanted: ReadAccounts
) -> QueryResults:
    """Announce the epoch and query, including closed clusters.

    A terminated cluster still exists, and a deleted one reports its end.
    """
    untold = (
        ("modelreplica/", "inferencecluster/")
        if wanted.clusters_untold
        else ("modelreplica/",)
    )
    before = {
        workflow_id: outgoing.epoch(workflow_id, wanted.epoch)
        for workflow_id in workflow_ids
        if not workflow_id.startswith(untold)
    }
    answers = await query_round(
        client, workflow_ids, "account", size=_packed_size, before=before
    )
    closed = [
        workflow_id
        for workflow_id in answers.missing
        if workflow_id.startswith("inferencecluster/")
    ]
    if not closed:
        return answers
    last = await query_round(client, closed, "account", size=_packed_size)
    return QueryResults(
        by_id=answers.by_id | last.by_id,
        unresponsive=[*answers.unresponsive, *last.unresponsive],
        missing=[
            *(each for each in answers.missing if each not in closed),
            *last.missing,
        ],
        left=[*answers.left, *last.left],
    )


def _packed_size(account: Any) -> int:
    """Return the largest size of an account in a page.

    Packed with others it is smaller.
    """
    text = account.get("replicas") if isinstance(account, Mapping) else None
    return len(text) if isinstance(text, str) else len(pack(account))


def _page(
    answers: QueryResults, entities: Mapping[str, str]
) -> tuple[AccountsPage, list[str]]:
    """Read and pack the answers; return the page and the ids with readable answers."""
    accounts, answered = Accounts(), list[str]()
    unresponsive = {
        workflow_id: _cluster(workflow_id, entities)
        for workflow_id in answers.unresponsive
    }
    for workflow_id, account in answers.by_id.items():
        try:
            accounts.add(workflow_id, account)
        except ValueError as error:
            activity.logger.error(
                "an account could not be read",
                extra={"entity": workflow_id, "problems": str(error)},
            )
            unresponsive[workflow_id] = cluster_of(workflow_id, account) or _cluster(
                workflow_id, entities
            )
        else:
            answered.append(workflow_id)
    return AccountsPage(accounts=accounts.packed(), unresponsive=unresponsive), answered


def _cluster(workflow_id: str, entities: Mapping[str, str]) -> str:
    return cluster_of(workflow_id) or entities.get(workflow_id, "")


def _last_heartbeat() -> dict[str, object]:
    details = activity.info().heartbeat_details
    return details[0] if details and isinstance(details[0], dict) else {}


def _last_unresponsive() -> list[str]:
    found = _last_heartbeat().get("unresponsive", [])
    return (
        [str(workflow_id) for workflow_id in found] if isinstance(found, list) else []
    )
