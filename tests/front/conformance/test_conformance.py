"""The front compared with a kube-apiserver that has the same kinds as custom resources.

Both receive the same requests, one group at a time. An answer differs only as the table
of docs/reference/api-differences.md says.
"""

import asyncio
from collections.abc import Collection

import pytest

from tests.front.conformance.cases import Case, answers, groups, outcome
from tests.front.conformance.comparing import differing
from tests.front.conformance.differences import differences, without
from tests.front.conformance.generated import drawn
from tests.front.conformance.servers import Server
from tests.random_cases import FACTOR, SEED, cases

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

AT_ONCE = 8
REQUESTS_MIN = 400
# A campaign, which multiplies the numbers of cases by seven, draws 10,010.
GENERATED = 300 if FACTOR <= 1 else 1_430
_FAILURE = 400


async def problem_of(
    case: Case,
    front: Server,
    real: Server,
    namespace: str,
    keys: Collection[str] | None,
) -> str:
    """Send a case to both servers; return the undocumented differences, or "".

    `keys` names the documented differences that may occur. Without it, all may occur.
    """
    mine, theirs = await asyncio.gather(
        *(answers(server, case.requests, namespace) for server in (front, real))
    )
    for number, pair in enumerate(zip(mine[:-1], theirs[:-1], strict=True)):
        if any(answer.status >= _FAILURE for answer in pair):
            told = [answer.body[:500] for answer in pair]
            return f"{case.name}: request {number} has failed: {told}"
    found, expected = outcome(case.requests, mine), outcome(case.requests, theirs)
    found, expected, used = without(case.requests, found, expected, keys)
    lines = differing(found, expected)
    if unused := set(keys or ()) - set(used):
        lines.append(f"these documented differences do not show: {sorted(unused)}")
    if not lines:
        return ""
    told = [answer.body[:500] for answer in (mine[-1], theirs[-1])]
    return "\n  ".join([f"{case.name}:", *lines, *map(str, told)])


@pytest.mark.parametrize("group", groups())
async def test_a_request_has_the_answer_of_a_kube_apiserver(
    front: Server, real: Server, group: str
) -> None:
    few = asyncio.Semaphore(AT_ONCE)

    async def problem(number: int, case: Case) -> str:
        async with few:
            name = f"{group}-{number}"
            return await problem_of(case, front, real, name, case.differs)

    found = await asyncio.gather(
        *(problem(number, case) for number, case in enumerate(groups()[group]))
    )
    problems = [each for each in found if each]
    assert not problems, "\n\n".join(problems)


@pytest.mark.random
async def test_a_random_request_has_the_answer_of_a_kube_apiserver(
    front: Server, real: Server
) -> None:
    few = asyncio.Semaphore(AT_ONCE)

    async def problem(number: int) -> str:
        async with few:
            case = drawn(f"{SEED} {number}")
            return await problem_of(case, front, real, f"random-{number}", None)

    found = await asyncio.gather(*map(problem, range(cases(GENERATED))))
    problems = [each for each in found if each]
    assert not problems, "\n\n".join(problems)


def test_each_row_of_the_table_shows_in_a_request() -> None:
    shown = {
        key for group in groups().values() for case in group for key in case.differs
    }
    assert shown == {each.key for each in differences() if not each.common}


def test_the_suite_has_enough_requests_with_names_of_their_own() -> None:
    for group in groups().values():
        names = [case.name for case in group]
        assert len(names) == len(set(names))
    assert sum(map(len, groups().values())) >= REQUESTS_MIN
