"""The activities that read accounts for the scheduler.

They are packed before they come into its history, and each page ends when it is full or its time is up. Nothing here knows the ledger.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field
from temporalio import activity
from temporalio.client import Client

from activities.heartbeat import heartbeating
from activities.messaging.messages import Survey
from activities.messaging.querying import Answers, list_entities, query_round, still_running
from api_types.base import Message
from api_types.payloads.packing import pack, unpack
from workflows.fleet_scheduler import outgoing
from workflows.fleet_scheduler.rebuild.accounts import Accounts, PackedAccounts, cluster_of

# Ids that one page lists at most, and how many pages of visibility are read for it.
LISTED_AT_ONCE = 5_000
_PAGE_SIZE = 1_000
# Entities whose accounts one page reads at most.
QUERIED_AT_ONCE = 500
# Entities that are awaited and asked together.
AWAITED_AT_ONCE = 50

# How long an activity waits between two attempts to reach entities that do not answer: 5 s doubling to 5 min.
_RETRY_SECONDS = (5.0, 300.0)


class ListEntities(Message):
    """List running entities of some kinds; `after` as the page before gave it."""

    kinds: list[str]
    after: str = ""


class Listed(Message):
    """Workflow ids with their clusters, packed, and where the next page begins (empty: there is none)."""

    entities: str = ""
    after: str = ""

    def read(self) -> dict[str, str]:
        """Unpack the entities."""
        return dict(unpack(self.entities) or {})


class ReadAccounts(Message):
    """Read accounts of some entities: packed workflow ids with their clusters.

    `epoch`: what those are told first that follow it; clusters are not if they are to say which one they have heard of.
    `charged`: packed workflow ids of clusters that have replicas.
    """

    epoch: int
    entities: str
    clusters_untold: bool = False
    charged: str = ""


class AccountsPage(Message):
    """The accounts that were read.

    Attributes:
        accounts: what was answered.
        answered: who has answered; given only where entities are awaited.
        unresponsive: who did not answer, or not with anything that can be read, with the cluster that each is on.
        left: who was not asked yet, packed.

    """

    accounts: PackedAccounts
    answered: list[str] = Field(default_factory=list)
    unresponsive: dict[str, str] = Field(default_factory=dict)
    left: str = ""


@activity.defn
async def list_for_rebuild(wanted: ListEntities) -> Listed:
    """List one page of the running entities of some kinds."""
    client, found, after = activity.client(), dict[str, str](), wanted.after
    while True:
        survey = Survey(kinds=wanted.kinds, page_size=_PAGE_SIZE, after=after)
        listing = await list_entities(client, survey)
        activity.heartbeat()
        found |= listing.found
        after = listing.after
        if not after or len(found) >= LISTED_AT_ONCE:
            return Listed(entities=pack(found), after=after)


@activity.defn
async def read_accounts(wanted: ReadAccounts) -> AccountsPage:
    """Announce the epoch to entities and read their accounts, as many as fit one page; those that do not answer are named, never left out.

    An attempt that follows a lost one does not wait again for entities that were found unresponsive: they are in the heartbeat.
    """
    entities: dict[str, str] = unpack(wanted.entities)
    known = [workflow_id for workflow_id in _last_unresponsive() if workflow_id in entities]
    asked = [workflow_id for workflow_id in entities if workflow_id not in known]
    async with heartbeating() as report:
        answers = await _ask(activity.client(), asked[:QUERIED_AT_ONCE], wanted)
        report({"unresponsive": answers.unresponsive})
        page, _ = _page(answers, entities)
        left = {workflow_id: entities[workflow_id] for workflow_id in (*answers.left, *asked[QUERIED_AT_ONCE:])}
        unresponsive = {**page.unresponsive, **{workflow_id: _cluster(workflow_id, entities) for workflow_id in known}}
        return page.model_copy(update={"unresponsive": unresponsive, "left": pack(left) if left else ""})


@activity.defn
async def await_accounts(wanted: ReadAccounts) -> AccountsPage:
    """Ask entities again and again until one of them answers, or does not run any more; gives all that did until then.

    A cluster with replicas is awaited until it answers. Once the server has deleted its runs,
    nothing tells whether it was deleted or terminated, and a missing input deletes nothing.
    The workflow waits for this beside its decisions. Its history gains nothing while none answers, however long that is.
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
                # Few at once: all that are asked together answer at the same time if workers have to replay each of them.
                answers = await _ask(client, left[:AWAITED_AT_ONCE], wanted)
                page, answered = _page(answers, entities)
                running = await still_running(client, answers.unresponsive)
                # A closed workflow that cannot be queried has nothing to report either.
                closed = [workflow_id for workflow_id in answers.unresponsive if workflow_id not in running]
                ended = [*closed, *answers.missing]
                silent |= page.unresponsive
                silent |= {each: _cluster(each, entities) for each in ended if each in charged}
                answered += [each for each in ended if each not in charged]
                if answered:
                    return page.model_copy(update={"answered": answered, "unresponsive": silent})
                left = [*answers.left, *left[AWAITED_AT_ONCE:]]
            await asyncio.sleep(min(shortest * 2 ** min(attempt, 10), longest))
            attempt += 1


async def _ask(client: Client, workflow_ids: Sequence[str], wanted: ReadAccounts) -> Answers:
    """Announce the epoch and query; closed clusters too: one that was terminated is there, and one that is gone says so."""
    untold = ("modelreplica/", "inferencecluster/") if wanted.clusters_untold else ("modelreplica/",)
    before = {workflow_id: outgoing.epoch(workflow_id, wanted.epoch) for workflow_id in workflow_ids if not workflow_id.startswith(untold)}
    answers = await query_round(client, workflow_ids, "account", size=_packed_size, before=before)
    closed = [workflow_id for workflow_id in answers.missing if workflow_id.startswith("inferencecluster/")]
    if not closed:
        return answers
    last = await query_round(client, closed, "account", size=_packed_size)
    return Answers(
        by_id=answers.by_id | last.by_id,
        unresponsive=[*answers.unresponsive, *last.unresponsive],
        missing=[*(each for each in answers.missing if each not in closed), *last.missing],
        left=[*answers.left, *last.left],
    )


def _packed_size(account: Any) -> int:
    """Give what an account takes at most in a page: packed with others it takes less."""
    text = account.get("replicas") if isinstance(account, Mapping) else None
    return len(text) if isinstance(text, str) else len(pack(account))


def _page(answers: Answers, entities: Mapping[str, str]) -> tuple[AccountsPage, list[str]]:
    """Read and pack what was answered; gives the page and who has answered with something that can be read."""
    accounts, answered = Accounts(), list[str]()
    unresponsive = {workflow_id: _cluster(workflow_id, entities) for workflow_id in answers.unresponsive}
    for workflow_id, account in answers.by_id.items():
        try:
            accounts.add(workflow_id, account)
        except ValueError as error:
            activity.logger.error(
                "an account could not be read", extra={"entity": workflow_id, "problems": str(error)}
            )  # its text says all
            unresponsive[workflow_id] = cluster_of(workflow_id, account) or _cluster(workflow_id, entities)
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
    return [str(workflow_id) for workflow_id in found] if isinstance(found, list) else []
