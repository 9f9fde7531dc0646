"""The product's configuration in the form of the older picker."""

import json

from activities.render.routing.picker_config import FILE
from testbed.node.picker_config import API_VERSION, for_older_picker
from tests.activities.render.builders import render

PARSERS = ["openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser"]


def test_only_the_group_and_the_parsers_change() -> None:
    """The list of parsers becomes its last one, and parsers of later releases leave."""
    (rendered,) = [
        json.loads(each.manifest["data"][FILE])
        for each in render().objects
        if each.manifest["kind"] == "ConfigMap"
    ]
    kept = [each for each in rendered["plugins"] if each["type"] not in PARSERS]
    full = {
        **rendered,
        "plugins": [*kept, *({"type": name} for name in PARSERS)],
        "requestHandler": {"parsers": [{"pluginRef": name} for name in PARSERS]},
    }
    expected = {
        **full,
        "apiVersion": API_VERSION,
        "plugins": [*kept, {"type": PARSERS[0]}, {"type": PARSERS[-1]}],
        "parser": {"pluginRef": PARSERS[-1]},
    }
    del expected["requestHandler"]
    assert json.loads(for_older_picker(json.dumps(full))) == expected
