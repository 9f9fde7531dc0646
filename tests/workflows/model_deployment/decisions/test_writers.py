"""Which autoscalers set the count of a deployment, and when several of them do."""

from datetime import timedelta

import pytest

from api_types.messages.entities import WEBHOOK_REQUEST, Scale
from tests.workflows.model_deployment.exchange import NOW, a_controller, state_of
from workflows.entity.conditions import condition_of
from workflows.model_deployment.controller import (
    DeploymentController,
)
from workflows.model_deployment.decisions.writers import (
    SCALED_BY_ONE,
    WITHIN_SECONDS,
    WRITERS_MAX,
    scaled_by_one,
    with_writer,
)
from workflows.model_deployment.state import DeploymentState, ScaleWriter

START = NOW.timestamp()
BURST, OTHER = ("burst", f"{WEBHOOK_REQUEST}1"), ("other", f"{WEBHOOK_REQUEST}2")
KEDA = ("system:serviceaccount:keda:keda-operator", "r")
HPA = ("system:serviceaccount:kube-system:horizontal-pod-autoscaler", "r")
KEDA_ELSEWHERE = ("system:serviceaccount:scaling:keda-operator", "r")
NAMED_ALIKE = ("system:serviceaccount:scaling:not-keda-operator", "r")
ANN, BEN = ("ann", "r"), ("ben", "r")
Written = list[tuple[float, tuple[str, str]]]


def written(*orders: tuple[float, tuple[str, str]]) -> list[ScaleWriter]:
    """Return the recorded writers after these writes, each at a time in seconds after the start."""
    writers: list[ScaleWriter] = []
    for number, (after, (by, request_id)) in enumerate(orders):
        writers = with_writer(
            writers, Scale(replicas=number, by=by, request_id=request_id), START + after
        )
    return writers


@pytest.mark.parametrize(
    ("orders", "at", "named"),
    [
        ([(0, BURST), (1, BURST), (2, BURST)], 2, ""),
        ([(0, BURST), (1, OTHER)], 1, "burst and other"),
        ([(0, BURST), (1, OTHER), (2, BURST)], WITHIN_SECONDS, "burst and other"),
        ([(0, BURST), (1, OTHER), (2, BURST)], WITHIN_SECONDS + 1, ""),
        ([(0, BURST), (WITHIN_SECONDS, OTHER)], WITHIN_SECONDS, ""),
        (
            [(0, KEDA), (1, BURST)],
            1,
            "burst and system:serviceaccount:keda:keda-operator",
        ),
        ([(0, KEDA), (1, HPA), (2, KEDA)], 2, ""),
        ([(0, KEDA_ELSEWHERE), (1, ("system:kube-controller-manager", "r"))], 1, ""),
        ([(0, NAMED_ALIKE), (1, HPA)], 1, f"{HPA[0]} and {NAMED_ALIKE[0]}"),
        ([(0, BURST), (1, HPA)], 1, f"burst and {HPA[0]}"),
        ([(0, KEDA), (1, HPA), (2, BURST)], 2, f"burst and {KEDA[0]}"),
        (
            [(0, KEDA), (300, HPA), (590, BURST)],
            WITHIN_SECONDS + 1,
            f"burst and {HPA[0]}",
        ),
        ([(0, BURST), (1, ANN), (2, BEN)], 2, ""),
        ([(0, BURST), (1, ANN), (2, ANN)], 2, ""),
        ([(0, BURST), (1, ANN), (2, ANN), (3, ANN)], 3, "ann and burst"),
        (
            [(0, BURST), (1, ANN), (2, ANN), (3, ANN)],
            WITHIN_SECONDS - 1,
            "ann and burst",
        ),
        (
            [(0, ANN), (1, ANN), (2, ANN), (500, ANN), (900, BURST), (901, ANN)],
            901,
            "ann and burst",
        ),
        (
            [(0, ANN), (1, ANN), (WITHIN_SECONDS, ANN), (WITHIN_SECONDS + 1, BURST)],
            WITHIN_SECONDS + 1,
            "",
        ),
        (
            [
                (0, ANN),
                (1, ANN),
                (2, ANN),
                (WITHIN_SECONDS + 2, ANN),
                (WITHIN_SECONDS + 3, BURST),
            ],
            WITHIN_SECONDS + 3,
            "",
        ),
        (
            [(0, ANN), (1, BEN), (2, ANN), (3, BEN), (4, ANN), (5, BEN)],
            5,
            "ann and ben",
        ),
    ],
    ids=[
        "one",
        "two callers",
        "two, and the last moment",
        "one of them is too old",
        "one after the other",
        "a service account",
        "KEDA with its own HPA",
        "KEDA of another namespace, and a controller manager without accounts",
        "an account with a longer name besides an HPA",
        "a caller besides an HPA",
        "a caller besides KEDA",
        "a caller besides an HPA, long after KEDA",
        "users besides one",
        "a person twice",
        "a user again and again",
        "a writer stays an autoscaler while it continues",
        "with pauses",
        "a user at intervals",
        "a writer is no autoscaler after a pause",
        "two users again and again",
    ],
)
def test_several_autoscalers_within_ten_minutes_are_named(
    orders: Written, at: float, named: str
) -> None:
    verdict, seconds = scaled_by_one(written(*orders), START + at)
    assert (verdict.message.partition(" have set")[0] if verdict else "") == named
    assert (seconds > 0) is bool(named)


def test_few_writers_are_kept() -> None:
    writers = written(
        *((number, (f"caller-{number:02}", WEBHOOK_REQUEST)) for number in range(20))
    )
    assert [writer.by for writer in writers] == [
        f"caller-{number:02}" for number in range(20 - WRITERS_MAX, 20)
    ]
    assert len(written(*[(number, BURST) for number in range(20)])[0].times) == 3


def test_a_name_with_control_characters_is_shown_without() -> None:
    verdict, _ = scaled_by_one(
        written((0, ("a\x1b[1m", WEBHOOK_REQUEST)), (1, BURST)), START + 1
    )
    assert verdict
    assert "\x1b" not in verdict.message


# The condition


def scaled_by(*writers: tuple[str, str]) -> DeploymentController:
    controller = a_controller()
    for number, (by, request_id) in enumerate(writers, 2):
        controller.scale(Scale(replicas=number, by=by, request_id=request_id))
    return controller


def shown(controller: DeploymentController) -> str:
    """Run the end of a pass; return the reason of the condition, or ""."""
    controller._context.requeue_time = None
    controller.show_writers()
    condition = condition_of(state_of(controller).conditions, SCALED_BY_ONE)
    assert condition is None or condition.status == "False"
    return condition.reason if condition else ""


def test_the_condition_exists_while_several_autoscalers_write_and_ends_automatically() -> (
    None
):
    controller = scaled_by(BURST, OTHER)
    assert shown(controller) == "SeveralAutoscalers"
    context = controller._context
    end = NOW + timedelta(seconds=WITHIN_SECONDS)
    assert context.requeue_time == end
    before = state_of(controller).resource_version
    assert shown(controller) == "SeveralAutoscalers"
    assert state_of(controller).resource_version == before
    context.moment = lambda: end
    assert shown(controller) == ""
    assert context.requeue_time is None
    assert state_of(controller).resource_version > before


def test_one_autoscaler_and_users_cause_no_condition_and_users_are_not_recorded() -> (
    None
):
    assert shown(scaled_by(BURST, ANN, BURST, BEN)) == ""


def test_a_rejected_count_records_no_writer() -> None:
    controller = scaled_by(BURST)
    controller.scale(Scale(replicas=-1, by="other", request_id=OTHER[1]))
    assert shown(controller) == ""


def test_a_deployment_under_deletion_has_no_such_condition() -> None:
    controller = scaled_by(BURST, OTHER)
    assert shown(controller)
    state_of(controller).deletion_timestamp = "2026-01-01T00:00:00Z"
    assert shown(controller) == ""


def test_keda_and_its_hpa_are_one_autoscaler() -> None:
    assert shown(scaled_by(KEDA, HPA)) == ""


def test_the_writers_are_carried_over() -> None:
    state = state_of(scaled_by(BURST, OTHER))
    carried = DeploymentState.model_validate_json(state.model_dump_json(by_alias=True))
    assert carried.scale_writers == state.scale_writers
    assert len(carried.scale_writers) == 2
