"""The wait for copied Secrets ends when all of them are in the store.

No cluster is contacted.
"""

from pathlib import Path
from typing import Any

import pytest

from activities.clients.secrets.directory import SecretDirectory
from activities.render.inputs.settings import RenderSettings
from activities.secrets.store import StoredSecret
from activities.workloads.activities import WorkloadActivities
from api_types.errors import TransientError
from tests.activities.environment.asking import asked_by
from tests.activities.environment.orders import an_apply
from tests.activities.render.builders import a_member, an_engine


def a_reference(kind: str, name: str) -> dict[str, Any]:
    return {"name": name.upper(), "valueFrom": {kind: {"name": name, "key": "x"}}}


async def test_the_wait_ends_when_the_last_missing_secret_exists(
    tmp_path: Path,
) -> None:
    store, no_clusters = SecretDirectory(tmp_path), None
    activities = WorkloadActivities(
        no_clusters,  # type: ignore[arg-type]
        store,
        RenderSettings(secrets_propagation="all"),
    )
    env = [a_reference("secretKeyRef", "hub"), a_reference("configMapKeyRef", "tuning")]
    order = an_apply("qwen-eu-0", an_engine("main", a_member(env=env)))

    async def look() -> None:
        await asked_by("modelreplica/ml/qwen-eu-0").run(activities.await_copies, order)

    with pytest.raises(
        TransientError,
        match=r"ConfigMap ml/tuning does not exist.*Secret ml/hub does not exist",
    ):
        await look()
    await store.put(StoredSecret("ml", "hub", {"x": b"value"}))
    with pytest.raises(TransientError) as caught:
        await look()
    # Temporal retries, and its error contains no value.
    assert not caught.value.non_retryable
    assert "value" not in str(caught.value)
    await store.put(StoredSecret("ml", "tuning", {"x": b"fast"}, kind="ConfigMap"))
    await look()
