"""A record reader of the user's own: `DATA_FORMAT=module:function`, found in the training program's folder.

    def function(stream: BinaryIO, name: str) -> Iterable[bytes]

gets each file of the source, unpacked, and yields its records as they are to lie in the shard, the same ones each time.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from paddle_node import own_code
from paddle_node.contract import ExitCode, Variable
from paddle_node.failure import Failure, SettingError

LONGEST = 16 << 20
"""Bytes of one record: a few of them must fit into 100 MB."""

RecordReader = Callable[[BinaryIO, str], Iterable[bytes]]


def load(name: str, program: Path) -> RecordReader:
    """Raises `SettingError` when there is no such module or function, or the module does not import."""
    module_name, _, function_name = name.partition(":")
    sys.path.insert(0, str(program))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise SettingError(f"{Variable.DATA_FORMAT} is {name!r}, but {program} has no module {error.name}") from None
    except BaseException as error:  # Also sys.exit(): it must not end the data job as if that were done.
        raise SettingError(
            f"{Variable.DATA_FORMAT} is {name!r}, and importing {module_name} fails: {own_code.told(error)}"
        ) from None
    finally:
        sys.path.remove(str(program))
    function = getattr(module, function_name, None)
    if not callable(function):
        raise SettingError(f"{Variable.DATA_FORMAT} is {name!r}, but {module_name} has no function {function_name}")
    reader: RecordReader = function
    return reader


def records(reader: RecordReader, stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The reader's records, each checked. Raises `Failure` (BAD_DATA) for whatever the reader raises, sys.exit() included."""
    own = _records(reader, stream, name)
    while True:
        try:
            record = next(own, None)
        except (Failure, KeyboardInterrupt):
            raise  # The source's, told already; Ctrl-C.
        except BaseException as error:
            raise Failure(ExitCode.BAD_DATA, f"the record reader failed on {name}: {own_code.told(error)}") from None
        if record is None:
            return
        yield record


def _records(reader: RecordReader, stream: BinaryIO, name: str) -> Iterator[bytes]:
    for record in reader(stream, name):
        if not isinstance(record, bytes):
            raise TypeError(f"it yielded a {type(record).__name__}, records are bytes")
        if len(record) > LONGEST:
            raise ValueError(f"it yielded a record of {len(record)} bytes, {LONGEST} are the most")
        yield record
