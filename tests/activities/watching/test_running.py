"""How the runs of a watch are numbered."""

from activities.watching.running import run_number

NOW_MS = 1_800_000_000_000


def test_a_run_has_a_higher_number_than_those_of_earlier_attempts_and_watches() -> None:
    counted = [run_number(watch, attempt) for watch, attempt in ((1, 1), (1, 2), (2, 1))]
    dated = [run_number(1, attempt, began) for attempt, began in ((1, NOW_MS), (2, NOW_MS), (1, NOW_MS + 1000))]
    assert counted + dated == sorted({*counted, *dated})
