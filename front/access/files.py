"""Files of users and keys that are reloaded when they change.

Their size is limited and their content is fully validated. Error messages name the
position of a problem but never the value, which may be a secret. The front keeps the
previous content if a new file is invalid.
"""

from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from api_types.text.reader import Unreadable, read_one

_FILE_BYTES_MAX = 1024 * 1024
_PROBLEMS_TOLD = 20

Text = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class FileSection(BaseModel):
    """A section of a file. Unknown keys are rejected."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=False,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
    )


ContentT = TypeVar("ContentT", bound=FileSection)


class BadAccessFile(ValueError):
    """The file cannot be used. The message names the position of the problem."""


class WatchedFile(Generic[ContentT]):
    """A file as it was last read."""

    def __init__(self, file: Path, model: type[ContentT]) -> None:
        """Read the file. Raises `BadAccessFile`."""
        self._file, self._model = file, model
        self._stamp = _stamp(file)
        self.content = load(file, model)

    def refresh(self) -> str:
        """Reload the file if it has changed; return its error, or an empty string."""
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return ""
        self._stamp = stamp
        try:
            self.content = load(self._file, self._model)
        except BadAccessFile as error:
            return str(error)
        return ""


def load(file: Path, model: type[ContentT]) -> ContentT:
    """Read and validate a file. Raises `BadAccessFile`."""
    try:
        text = file.expanduser().read_bytes()
    except OSError as error:
        raise BadAccessFile(f"{file}: {error.strerror}") from error
    if len(text) > _FILE_BYTES_MAX:
        raise BadAccessFile(
            f"{file} has {len(text)} bytes; the limit is {_FILE_BYTES_MAX}"
        )
    try:
        return model.model_validate(read_one(text.decode()) or {})
    except UnicodeDecodeError as error:
        raise BadAccessFile(f"{file} is not UTF-8 text") from error
    except Unreadable as error:
        # The text of the line may contain a token, so the message omits it.
        raise BadAccessFile(f"{file} is not valid YAML at line {error.line}") from None
    except ValidationError as error:
        # Values are omitted: somebody may have written a token in place of its hash.
        places = [
            f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}"
            for each in error.errors()
        ]
        raise BadAccessFile(f"{file}: {'; '.join(places[:_PROBLEMS_TOLD])}") from error


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        found = file.expanduser().stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino
