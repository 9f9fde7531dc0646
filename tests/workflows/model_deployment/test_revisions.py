"""The number of earlier templates that a deployment keeps."""

from workflows.model_deployment.revisions import (
    BYTES_MAX,
    REVISIONS_MAX,
    TemplateRevision,
    remember,
)


def test_the_newest_templates_are_kept_and_the_oldest_dropped() -> None:
    kept: list[TemplateRevision] = []
    for generation in range(1, 10):
        kept = remember(
            kept, generation, {"image": f"engine:{generation}"}, "2026-03-01T12:00:00Z"
        )
    assert [revision.generation for revision in kept] == [
        9 - back for back in reversed(range(REVISIONS_MAX))
    ]
    assert kept[-1].template == {"image": "engine:9"}


def test_large_templates_are_kept_only_as_far_as_the_carried_state_allows() -> None:
    kept: list[TemplateRevision] = []
    for generation in (1, 2, 3):
        kept = remember(
            kept, generation, {"args": "x" * (BYTES_MAX // 2)}, "2026-03-01T12:00:00Z"
        )
    assert [revision.generation for revision in kept] == [3]
