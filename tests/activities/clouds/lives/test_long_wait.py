"""A worker that dies during a 40 minute wait for a control plane.

Another one continues.
"""

import random

import pytest

from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.deaths import CREATE, POLLING, Deaths
from tests.activities.clouds.lives.fakes import gke_fake
from tests.activities.clouds.lives.life import Life
from tests.activities.clouds.lives.virtual_time import run

MINUTE = 60.0
WAIT_MINUTES = 40.0
# A read changes no state. The test ends the running operation.
READS = 1_000_000


def waited(dies_at: tuple[int, ...]) -> tuple[float, list[str], int]:
    """Create a cluster whose worker dies at these checks of the wait.

    Returns the minutes of the wait, the created objects, and the deaths.
    """
    with FakeGoogle(reads=READS) as google:
        fake = gke_fake(google)

        async def live() -> tuple[float, list[str], int]:
            looks, at = 0, []

            def dies(moment: str, doing: str, key: str) -> bool:
                nonlocal looks
                if moment != POLLING:
                    return False
                if (doing, key) == (CREATE, "cluster"):
                    looks += 1
                    at.append(life.clock() / MINUTE)
                    if at[-1] - at[0] < WAIT_MINUTES:
                        return looks in dies_at
                google.finish()
                return False

            deaths = Deaths(dies)
            life = Life(fake, random.Random(1), deaths)  # noqa: S311 - repeatable on purpose
            with life.temporal.patched():
                try:
                    life.begin()
                    life.order(fake.pool())
                    assert await life.until_ready(hours=24), life.progress["message"]
                    return at[-1] - at[0], sorted(fake.created()), deaths.struck.total()
                finally:
                    await life.stop()

        return run(live, random.Random(2))  # noqa: S311 - repeatable on purpose


@pytest.mark.slow
def test_another_worker_continues_the_wait_and_creates_nothing() -> None:
    dies_at = (10, 30, 60)
    undisturbed, made, _ = waited(())
    minutes, created, deaths = waited(dies_at)
    assert deaths == len(dies_at)
    assert created == made, "each once"
    # A new worker polls more often at first, so it may even see the end earlier.
    assert WAIT_MINUTES <= undisturbed < WAIT_MINUTES + 1
    assert WAIT_MINUTES <= minutes < WAIT_MINUTES + 1
