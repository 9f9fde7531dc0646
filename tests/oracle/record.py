"""Record Kubernetes' answers to a list of selectors, so that the corpus can be read and compared without Go.

`python -m tests.oracle.record [file]` asks again about every selector of the corpus, and about one more per line of the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.oracle.client import KUBERNETES_LIBRARY, Oracle, as_json, library_version
from tests.scheduler.cel.devices import DEVICES
from tests.scheduler.cel.differences import kubernetes_outcomes

CORPUS = Path(__file__).parent.parent / "data" / "cel_corpus.json"

# Go walks maps in random order, so some costs differ from one evaluation to the next; those are not recorded.
_ASKED_TIMES = 40


def record(oracle: Oracle, selector: str) -> dict[str, Any]:
    """One row: the selector, its estimate, and outcome and cost per device."""
    devices = list(DEVICES.values())
    answers = [oracle.select(selector, devices) for _ in range(_ASKED_TIMES)]
    row: dict[str, Any] = {"selector": selector}
    outcomes = kubernetes_outcomes(answers[0], len(devices))
    if set(outcomes) == {"refused"}:
        return {**row, "refused": answers[0].get("error", "estimate above the limit").splitlines()[0]}
    row["estimate"] = answers[0]["max_cost"]
    row["devices"] = {}
    for position, name in enumerate(DEVICES):
        costs = {answer["devices"][position].get("cost") for answer in answers}
        row["devices"][name] = [outcomes[position], costs.pop() if len(costs) == 1 else None]
    return row


def main(more: list[str]) -> None:
    """Write the corpus."""
    known = [row["selector"] for row in json.loads(CORPUS.read_text(encoding="utf-8"))["rows"]] if CORPUS.exists() else []
    added = [line for path in more for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    oracle = Oracle()
    rows = [record(oracle, selector) for selector in dict.fromkeys([*known, *added])]
    oracle.close()
    head = {"library": f"{KUBERNETES_LIBRARY} {library_version()}", "devices": {name: as_json(each) for name, each in DEVICES.items()}}
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in rows)
    text = json.dumps(head, ensure_ascii=False, indent=1)[:-2] + f',\n "rows": [\n  {lines}\n ]\n}}\n'
    CORPUS.parent.mkdir(exist_ok=True)
    CORPUS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
