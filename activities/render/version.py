"""The version of the renderer: one number for all that turns a spec into pods."""

from collections.abc import Mapping

from activities.render.inputs.settings import RenderSettings
from api_types.digests import short_hash

# Raised with every change after which an equal spec gives other pods: users see it where such a change waits for their word.
RENDERER_VERSION = "0.1.0"


def renderer_hash(settings: RenderSettings, *more: str) -> str:
    """Digest what two workers must have in common to render the same, and `more` that tells them apart."""
    values = {name: dict(value) if isinstance(value, Mapping) else value for name, value in vars(settings).items()}
    return short_hash([RENDERER_VERSION, values, *more])
