"""Reading a text file, with whatever goes wrong as a problem that names the file."""

from pathlib import Path

from reach_worker.errors import BadInput, Problem


def read_text(path: Path) -> str:
    """The text of a UTF-8 file. Raises ``BadInput``."""
    text = find_text(path)
    if text is None:
        raise BadInput(Problem("there is no such file", file=str(path)))
    return text


def find_text(path: Path) -> str | None:
    """The text of a UTF-8 file, ``None`` if there is no such file. Raises ``BadInput``."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadInput(Problem(f"cannot be read: {error.strerror or error}", file=str(path))) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(Problem("is not UTF-8 text", file=str(path), line=line)) from None
