"""Who references a cache, and what each of them hears.

Replicas and deployments register; a cache tells them what is new to them, no more. A new artefact reaches the replicas of one deployment
one after the other, each when the one before it runs on the new volume: to hand it to all of them at once would stop them all at once.
"""

import hashlib
import json
from abc import abstractmethod
from typing import Any

from temporalio import workflow

from activities.messaging import AskEach, EntityClient
from api_types.base import Message
from api_types.messages.caches import CacheChanged, CacheReport, CacheUse
from api_types.messages.delivery import Broadcast, SignalBatch, SignalRequest
from workflows.entity import activity_options
from workflows.entity.entity import Entity
from workflows.model_cache.state import CacheState, User
from workflows.model_cache.status import phase_of

USER_KINDS = ("ModelDeployment", "ModelReplica")


class CacheUsers(Entity[CacheState]):
    """The part of a cache that deals with its users."""

    @abstractmethod
    def match_labels(self) -> dict[str, str]:
        """Give the labels that a cluster must have."""

    @workflow.signal
    def cache_wanted(self, order: Any) -> None:
        """Note who references this cache, and what its pods mount."""
        message = self.read(CacheUse, order)
        if message is None:
            return
        if not message.used:
            self.state.users.pop(message.uid, None)
            self.state.told.pop(message.workflow_id, None)
        else:
            known = self.state.users.get(message.uid)
            # One of that name with another uid is gone, or this one would not run.
            self.state.users = {uid: user for uid, user in self.state.users.items() if user.workflow_id != message.workflow_id}
            given = known.given if known else (message.claims[-1] if message.claims else "")
            self.state.users[message.uid] = User(
                workflow_id=message.workflow_id,
                cluster=message.cluster,
                deployment=message.deployment,
                claims=message.claims,
                given=given,
            )
            if known is None:
                # Whoever registers anew may have forgotten what it was told.
                self.state.told.pop(message.workflow_id, None)
        self.touch()

    def used_on(self, cluster: str) -> frozenset[str]:
        """Name the claims that pods of replicas on a cluster mount, or were told to mount."""
        users = [user for user in self.state.users.values() if user.cluster == cluster]
        return frozenset(claim for user in users for claim in (*user.claims, user.given) if claim)

    def mounting(self) -> list[str]:
        """Name the replicas whose pods mount a claim of this cache."""
        return sorted(user.name for user in self.state.users.values() if user.claims)

    def give_claims(self) -> None:
        """Decide which claim each replica is told to mount."""
        moving = {user.deployment for user in self.state.users.values() if user.is_moving}
        for user in sorted(self.state.users.values(), key=lambda user: user.name):
            place = self.state.places.get(user.cluster)
            published = place.published if place else None
            if published is None or published.claim == user.given or (self.state.deleted and not user.claims):
                continue
            if user.claims and published.claim not in user.claims:
                if user.deployment in moving:
                    continue
                moving.add(user.deployment)
            user.given = published.claim

    async def tell_users(self) -> None:
        """Tell everybody what is new to them; who does not run any more is no user."""
        self.give_claims()
        uids: dict[str, str] = {}
        tells: list[SignalRequest] = []
        for uid, user in sorted(self.state.users.items()):
            signal, message = ("cache_report", self.report(user)) if user.cluster else ("cache_changed", self.changed())
            digest = _digest(message)
            if self.state.told.get(user.workflow_id) != digest:
                self.state.told[user.workflow_id] = digest
                uids[user.workflow_id] = uid
                tells.append(SignalRequest(workflow_id=user.workflow_id, signal=signal, payload=message.wire()))
        if not tells:
            return
        self.state.sequence += 1
        for tell in tells:
            tell.payload["sequence"] = self.state.sequence
        if len(tells) == 1:
            missing = [] if await self._tell_one(tells[0]) else [tells[0].workflow_id]
        else:
            told = await workflow.execute_activity_method(
                EntityClient.tell_many,
                SignalBatch(signals=tells),
                **activity_options.remote(activity_options.ENTITY_BATCH, f"tell {len(tells)} users of this cache"),
            )
            missing = told.missing
        for workflow_id in missing:
            self._drop(uids[workflow_id], workflow_id)

    async def _tell_one(self, tell: SignalRequest) -> bool:
        return await workflow.execute_local_activity_method(
            EntityClient.tell, tell, **activity_options.local(activity_options.ENTITY_CALL, f"tell {tell.workflow_id}: {tell.signal}")
        )

    async def look_after_users(self) -> None:
        """Ask those that hold a volume whether they still run: one that was terminated cannot say that it is gone."""
        holding = {user.workflow_id: uid for uid, user in self.state.users.items() if user.cluster}
        if not holding:
            return
        asked = await workflow.execute_activity_method(
            EntityClient.ask_each,
            AskEach(workflow_ids=sorted(holding), query="account"),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"ask {len(holding)} replicas whether they still use this cache"),
        )
        for workflow_id, uid in holding.items():
            gone = (asked.answers.get(workflow_id) or {}).get("gone", False)
            if gone or (workflow_id not in asked.answers and workflow_id not in asked.silent):
                self._drop(uid, workflow_id)

    def _drop(self, uid: str, workflow_id: str) -> None:
        self.state.users.pop(uid, None)
        self.state.told.pop(workflow_id, None)
        self.requeue()

    async def announce(self) -> None:
        """Tell the namespace that this cache exists now: whoever waits for it could not register with what was not there."""
        await workflow.execute_activity_method(
            EntityClient.broadcast,
            Broadcast(
                kinds=list(USER_KINDS), namespace=self.namespace, signal="cache_changed", payload=CacheChanged(cache=self.name).wire()
            ),
            **activity_options.remote(activity_options.ENTITY_BATCH, "tell this namespace that the cache exists"),
        )

    def changed(self) -> CacheChanged:
        """Say what placement reads of this cache."""
        return CacheChanged(
            cache=self.name,
            uid=self.state.uid,
            present=self.state.spec is not None,
            deleting=bool(self.state.deleted),
            match_labels=self.match_labels(),
            phases={name: "Ready" if place.published else phase_of(place)[0] for name, place in self.state.places.items()},
        )

    def report(self, user: User) -> CacheReport:
        """Say what one replica must know of its cluster. What it was given is never taken back: a missing volume stops no pod."""
        place = self.state.places.get(user.cluster)
        published = place.published if place else None
        phase, message = phase_of(place) if place else ("", f"ModelCache {self.name} is not staged on {user.cluster}")
        if self.state.deleted and not user.given:
            message = f"ModelCache {self.name} is being deleted"
        given = next((copy for copy in place.copies if copy.claim == user.given), None) if place else None
        return CacheReport(
            cache=self.name,
            uid=self.state.uid,
            sequence=0,
            cluster=user.cluster,
            phase="Ready" if published else phase,
            claim=user.given,
            artefact_key=given.artefact_key if given else "",
            revision=given.revision if given else "",
            message="" if user.given else message,
        )


def _digest(message: Message) -> str:
    return hashlib.sha256(json.dumps(message.wire(), sort_keys=True).encode()).hexdigest()[:16]
