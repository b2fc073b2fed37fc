"""Every byte that leaves the program: data on stdout, talk on stderr.

A command prints through these functions only. They know the terminal (width, colour, encoding)
and the `--json` contract (strict JSON, NaN and infinities as null); they know nothing of what is
printed. Text from users and models is never read as markup.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

DEFAULT_WIDTH = 80  # columns, where nothing says how wide the output is
DEFAULT_HEIGHT = 24  # lines


class OutputClosed(Exception):
    """The reader of our pipe has gone; not an OSError, so that nothing on the way handles it."""


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """Return `value` as JSON that every parser reads: NaN and infinities become null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def write(text: str, stream: TextIO | None = None) -> None:
    """Write `text` and a newline to stdout (or `stream`), replacing what its encoding lacks."""
    target = sys.stdout if stream is None else stream
    line = text + "\n"
    try:
        target.write(line)
    except UnicodeEncodeError:
        encoding = target.encoding or "ascii"
        target.write(line.encode(encoding, "replace").decode(encoding))
    except BrokenPipeError:
        raise OutputClosed from None


def write_piece(text: str) -> None:
    """Write a part of a line to stdout and flush, for text that streams."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    except BrokenPipeError:
        raise OutputClosed from None
    flush()


def emit(document: Any) -> None:
    """Print one JSON document on stdout."""
    write(strict_json(document, indent=2))


def emit_row(row: Any) -> None:
    """Print one JSON object on its own line and flush, for streams."""
    write(strict_json(row))
    flush()


def flush() -> None:
    """Send what was written on stdout on its way."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def say(text: str = "") -> None:
    """Tell the person something on stderr; plain text, no markup."""
    write(text, sys.stderr)
    sys.stderr.flush()


def show(renderable: RenderableType) -> None:
    """Print a rich renderable (table, text, panel) on stdout."""
    _print(stdout_console(), renderable)


def show_on_stderr(renderable: RenderableType) -> None:
    """Print a rich renderable on stderr."""
    _print(stderr_console(), renderable)


def _print(console: Console, renderable: RenderableType) -> None:
    with console.capture() as capture:
        console.print(renderable, soft_wrap=not console.is_terminal)
    text = capture.get()
    write(text.removesuffix("\n"), sys.stderr if console.stderr else sys.stdout)


def width(stream: TextIO | None = None) -> int:
    """Columns of the output: `COLUMNS`, else the terminal's, else 80."""
    return _size()[0]


def height() -> int:
    """Lines of the terminal: `LINES`, else the terminal's, else 24."""
    return _size()[1]


def _size() -> tuple[int, int]:
    size = shutil.get_terminal_size((DEFAULT_WIDTH, DEFAULT_HEIGHT))
    return max(size.columns, 1), max(size.lines, 1)


def is_interactive() -> bool:
    """True if a person can be asked: stdin and stderr are terminals."""
    return _isatty(sys.stdin) and _isatty(sys.stderr)


def is_pipe_with_data() -> bool:
    """True if stdin is a pipe in which bytes wait."""
    import select
    import stat

    try:
        descriptor = sys.stdin.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        return is_pipe and bool(select.select([descriptor], [], [], 0)[0])
    except (OSError, ValueError, AttributeError):  # closed, or no file at all
        return False


def is_terminal(stream: TextIO | None = None) -> bool:
    """True if `stream` (default stdout) is a terminal that can move its cursor."""
    return _isatty(stream or sys.stdout) and os.environ.get("TERM") != "dumb"


def _isatty(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def supports_unicode(stream: TextIO | None = None) -> bool:
    """True if box drawing, braille and blocks can be written to `stream` (default stdout)."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "ascii"
    try:
        "╭⣿█✓".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def wants_colour(stream: TextIO | None = None) -> bool:
    """`NO_COLOR` wins, then `FORCE_COLOR`, then whether `stream` (default stdout) is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream)


def stdout_console() -> Console:
    """The rich console of stdout: no markup, no emoji codes, no guessing of highlights."""
    return _console(sys.stdout)


def stderr_console() -> Console:
    """The rich console of stderr, set up as `stdout_console` is."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(
        file=stream,
        stderr=stream is sys.stderr,
        markup=False,
        emoji=False,
        highlight=False,
        no_color=not wants_colour(stream),
        color_system="auto" if wants_colour(stream) else None,
        width=width(),
    )
