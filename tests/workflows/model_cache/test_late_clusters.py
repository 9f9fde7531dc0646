"""A cache and a cluster that does not answer its query, or sends an unreadable answer."""

from api_types import names
from api_types.messages.caches import CacheSite
from tests.simulation.lives.virtual_plane import on_a_virtual_loop, virtual_plane
from tests.workflows.environment.harness import a_cache
from tests.workflows.environment.simulated_clusters import a_class, a_cluster
from workflows.model_cache.clusters import SURVEYS, read_sites

LATE = names.workflow_id("InferenceCluster", "", "us")


@on_a_virtual_loop
async def test_a_cluster_that_answers_no_survey_is_requested_to_report_once() -> None:
    async with virtual_plane() as plane:
        await plane.apply(a_class())
        for name in ("eu", "us"):
            await plane.apply(a_cluster(name))
            await plane.ready("InferenceCluster", name)
        run = plane.world.server.find(LATE)
        run.silent_until = plane.world.clock.seconds() + 60.0
        await plane.apply(a_cache("qwen", "ml", "example/qwen"))

        def is_on_both(seen: dict[str, object]) -> bool:
            status = seen["status"]
            assert isinstance(status, dict)
            return len(status.get("clusters", ())) == len(("eu", "us"))

        await plane.until("ModelCache", "qwen", is_on_both, "ml")
        scheduled = await plane.activities_scheduled("ModelCache", "qwen", "ml")
        assert scheduled.count("survey") == SURVEYS
        requests = plane.signals(LATE, "resync")
        assert requests.count(None) == 1, "those of the scheduler have an epoch"


def test_an_unreadable_answer_of_a_cluster_is_left_out() -> None:
    site = CacheSite(name="eu", uid="u", sequence=1)
    answers = {"inferencecluster/eu": site.wire(), "inferencecluster/us": ["x"]}
    assert read_sites(answers) == {"inferencecluster/eu": site}
