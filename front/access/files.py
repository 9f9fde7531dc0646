"""Files of users and keys: read in bounded size, checked in full, read again when they change.

What is wrong with one is said with its places and without its values, which may be secret. One that cannot be read changes nothing.
"""

from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from api_types.text.reader import Unreadable, read_one

_FILE_BYTES_MAX = 1024 * 1024
_PROBLEMS_TOLD = 20

Text = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class Section(BaseModel):
    """A part of a file; a key that it does not have is refused."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=False, validate_by_alias=True, extra="forbid", frozen=True)


ContentT = TypeVar("ContentT", bound=Section)


class BadAccessFile(ValueError):
    """The file cannot be used; the text says where it is wrong."""


class WatchedFile(Generic[ContentT]):
    """A file as it was last read."""

    def __init__(self, file: Path, model: type[ContentT]) -> None:
        """Read it. Raises `BadAccessFile`."""
        self._file, self._model = file, model
        self._stamp = _stamp(file)
        self.content = load(file, model)

    def refresh(self) -> str:
        """Read the file again if it has changed; gives what is wrong with it, if it cannot be used."""
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
    """Read a file. Raises `BadAccessFile`."""
    try:
        text = file.expanduser().read_bytes()
    except OSError as error:
        raise BadAccessFile(f"{file}: {error.strerror}") from error
    if len(text) > _FILE_BYTES_MAX:
        raise BadAccessFile(f"{file} has {len(text)} bytes; at most {_FILE_BYTES_MAX} are read")
    try:
        return model.model_validate(read_one(text.decode()) or {})
    except UnicodeDecodeError as error:
        raise BadAccessFile(f"{file} is no text in UTF-8") from error
    except Unreadable as error:
        # Without the text of the line, which may have a token.
        raise BadAccessFile(f"{file} is not YAML: see line {error.line}") from None
    except ValidationError as error:
        # Not the values: a token may have been written in place of its hash.
        places = [f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors()]
        raise BadAccessFile(f"{file}: {'; '.join(places[:_PROBLEMS_TOLD])}") from error


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        found = file.expanduser().stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino
