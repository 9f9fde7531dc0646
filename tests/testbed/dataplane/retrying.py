"""Services with retries, over an endpoint with scripted failures."""

from collections.abc import Mapping

import httpx

from tests.testbed.dataplane.services import Services
from tests.workflows.environment.harness import Json, condition, eventually
from tests.workflows.environment.simulated_control import a_service, selecting

TOLD, SILENT = {"tier": "told"}, {"tier": "silent"}
ALL_CODES = {"attempts": 2, "backoffMilliseconds": 0, "codes": [429, 502, 503, 504]}
RETRYING: Mapping[str, tuple[list[Json], Json | None]] = {
    "once": ([selecting(TOLD)], None),
    "again": ([selecting(TOLD)], {"attempts": 2, "backoffMilliseconds": 0}),
    "codes": ([selecting(TOLD)], ALL_CODES),
    "lost": ([selecting(TOLD), selecting(SILENT)], None),
    "saved": ([selecting(TOLD), selecting(SILENT)], {}),
}
LARGE = "x" * ((1 << 20) + 1)
# The service, the script of the endpoint, the answer for a client, and the number of
# requests at the endpoint.
RETRIED = [
    ("once", "503-200", 503, 1),
    ("again", "503-200", 503, 1),
    ("again", "close-200", 502, 1),
    ("codes", "503-200", 200, 2),
    ("codes", "503", 503, 3),
    ("codes", "500-200", 500, 1),
    ("codes", "close-200", 200, 2),
    ("codes", "reset-200", 200, 2),
    ("codes", "slow", 200, 1),
]


async def a_retrying_service(services: Services, name: str) -> None:
    """Apply a service of the table, and wait until the gateway routes to its endpoint."""
    entries, retries = RETRYING[name]
    await services.plane.apply(with_retries(a_service(name, *entries), retries))
    seen = await services.ready(name, len(entries))
    assert condition(seen, "RetriesReady") == ("" if retries is None else "True")
    async with httpx.AsyncClient(timeout=60) as http:

        async def status() -> int:
            return (await services.ask(http, name, "/plan/live/200")).status_code

        await eventually(
            status,
            lambda found: found == httpx.codes.OK,
            what=f"the gateway's route of {name}",
        )


def with_retries(service: Json, retries: Json | None) -> Json:
    return (
        service
        if retries is None
        else {**service, "spec": {**service["spec"], "retries": retries}}
    )


async def arrived(services: Services, http: httpx.AsyncClient, case: str) -> list[str]:
    """Return the bodies that the endpoint received."""
    found: list[str] = (await services.ask(http, "once", f"/seen/{case}")).json()
    return found
