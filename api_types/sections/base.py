"""The base class of the groups of settings."""

from pydantic import BaseModel, ConfigDict


def camel(name: str) -> str:
    """Return the key of a field in a settings file: `max_age` becomes `maxAge`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


class SettingsSection(BaseModel):
    """A group of settings. It rejects unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=camel, validate_by_name=True
    )
