"""The version of the renderer: one number for all code that turns a spec into pods."""

from collections.abc import Mapping

from activities.render.inputs.settings import RenderSettings
from api_types.digests import short_hash

# Raise this with every change that renders other pods for an equal spec. Users see the
# number if such a change waits for their consent.
RENDERER_VERSION = "0.1.2"


def renderer_hash(settings: RenderSettings, *more: str) -> str:
    """Return a digest that is equal for two workers that render the same.

    `more` adds values that distinguish workers.
    """
    values = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in vars(settings).items()
    }
    return short_hash([RENDERER_VERSION, values, *more])
