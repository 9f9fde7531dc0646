"""What tests of the command line on a real fleet share: the example manifests, in a namespace of the test's own, and polling."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ruamel.yaml import YAML

from tests.environment.waiting import pauses

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "examples" / "testbed" / "demo.yaml"
TOO_BIG = ROOT / "examples" / "testbed" / "too-big.yaml"
SeenT = TypeVar("SeenT")


def manifest(tenant: str, file: Path = DEMO, **spec: object) -> str:
    """Write an example into a tenant's namespace; gives the text."""
    yaml = YAML(typ="safe", pure=True)
    tree = yaml.load(file)
    tree["metadata"]["namespace"] = tenant
    tree["spec"] |= spec
    return json.dumps(tree)


def eventually(look: Callable[[], SeenT], holds: Callable[[SeenT], bool]) -> SeenT:
    """Look again and again until it holds; fails with what was seen last."""
    for pause in pauses():
        if holds(seen := look()):
            return seen
        time.sleep(pause)
    raise AssertionError(seen)
