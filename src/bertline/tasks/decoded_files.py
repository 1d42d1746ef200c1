"""A file's whole text, whatever its encoding, compressed or not."""

from __future__ import annotations

import codecs
import gzip
import zlib
from pathlib import Path

from bertline.foundation.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"


def decoded_text(path: Path, encoding: str) -> str:
    """The text without a byte order mark; gzip is told by its first bytes.

    Raises:
        DataError: No such file, no such encoding, a line that is not text in it, or a torn gzip file.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file. Put the data there, or a link to it, or change the task's source.")
    content = path.read_bytes()
    try:
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
        return content.decode(codecs.lookup(encoding).name).removeprefix("\ufeff")
    except LookupError as error:
        raise DataError(
            f"source.encoding is {encoding!r}, which Python does not know (utf-8, latin-1, ...)."
        ) from error
    except UnicodeDecodeError as error:
        line = 1 + content[: error.start].count(b"\n")
        raise DataError(
            f"{path}:{line} is not text in {encoding}. Set source.encoding (latin-1, cp1252, utf-16, ...) or mend "
            "the file."
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not a whole gzip file ({error}). Copy it again.") from error
