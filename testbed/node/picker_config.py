"""The configuration of the pinned endpoint picker, for the older picker that runs here.

Both read the same plugins and profiles. The group of the configuration had another
name, and there was one parser instead of a list. The parser that passes unknown paths
through takes the place of the list (`testbed/programs/tools/picker/passthrough.go`).
"""

import json

API_VERSION = "inference.networking.x-k8s.io/v1alpha1"
LATER_PLUGINS = frozenset({"anthropic-parser", "vllmhttp-parser"})


def for_older_picker(text: str) -> str:
    """Return the configuration in the older form. Nothing else changes."""
    config = json.loads(text)
    config["apiVersion"] = API_VERSION
    if handler := config.pop("requestHandler", None):
        config["parser"] = handler["parsers"][-1]
    config["plugins"] = [
        each for each in config["plugins"] if each["type"] not in LATER_PLUGINS
    ]
    return json.dumps(config, indent=2)
