"""Record the answers of Kubernetes to a list of selectors, for comparisons without Go.

`python -m tests.oracle.record [file]` asks about every selector of the corpus again, and about one
more per line of the file. Selectors on which Kubernetes panics are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.oracle.client import KUBERNETES_LIBRARY, Oracle, as_json, library_version
from tests.scheduler.cel.devices import DEVICES
from tests.scheduler.cel.differences import PANIC, kubernetes_outcomes

CORPUS = Path(__file__).parent.parent / "data" / "cel_corpus.json"

# Go walks maps in random order, so some costs differ between evaluations. Those are not
# recorded.
_ASKED_TIMES = 40


def record(oracle: Oracle, selector: str) -> dict[str, Any]:
    """Return a row: the selector, its estimate, and outcome and cost per device."""
    devices = list(DEVICES.values())
    answer = oracle.select(selector, devices)
    row: dict[str, Any] = {"selector": selector}
    outcomes = kubernetes_outcomes(answer, len(devices))
    if PANIC in outcomes:
        return {}
    if set(outcomes) == {"refused"}:
        problem = answer.get("error", "estimate above the limit")
        return {**row, "refused": problem.splitlines()[0]}
    row["estimate"] = answer["max_cost"]
    row["devices"] = {}
    answers = [answer]
    if ".exists" in selector or ".all" in selector:
        answers += [oracle.select(selector, devices) for _ in range(_ASKED_TIMES)]
    for position, name in enumerate(DEVICES):
        costs = {each["devices"][position].get("cost") for each in answers}
        cost = costs.pop() if len(costs) == 1 else None
        row["devices"][name] = [outcomes[position], cost]
    return row


def main(more: list[str]) -> None:
    known = (
        [
            row["selector"]
            for row in json.loads(CORPUS.read_text(encoding="utf-8"))["rows"]
        ]
        if CORPUS.exists()
        else []
    )
    added = [
        line
        for path in more
        for line in Path(path).read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    oracle = Oracle()
    rows = [record(oracle, selector) for selector in dict.fromkeys([*known, *added])]
    rows = [row for row in rows if row]
    oracle.close()
    head = {
        "library": f"{KUBERNETES_LIBRARY} {library_version()}",
        "devices": {name: as_json(each) for name, each in DEVICES.items()},
    }
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    text = (
        json.dumps(head, ensure_ascii=False, indent=1)[:-2]
        + f',\n "rows": [\n  {lines}\n ]\n}}\n'
    )
    CORPUS.parent.mkdir(exist_ok=True)
    CORPUS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
