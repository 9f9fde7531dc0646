"""What every group of settings is."""

from pydantic import BaseModel, ConfigDict


def camel(name: str) -> str:
    """Write the name of a field as its key in a file: `max_age` is `maxAge`."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


class Section(BaseModel):
    """A group of settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=camel, validate_by_name=True)
