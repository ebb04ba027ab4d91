"""Records what SQLite writes, by a VFS layer that is installed through its C interface.

A power cut strikes here: what was written and not synced may be on the disk, or not, or partly.
"""

import _sqlite3
import ctypes
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

SHM_EVERY = 40  # writes between two copies of the shared memory file


class Step(StrEnum):
    """A step: a file operation or an acknowledgement."""

    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    DELETE = "delete"
    SHARED = "shared"  # what was in the file of the shared memory
    CREATED = "created"  # a job was acknowledged
    ENDED = "ended"  # a result was


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One recorded step."""

    step: Step
    name: str  # of a file, or the id of a run
    offset: int = 0  # or the new size
    data: bytes = b""


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = (
        ("version", ctypes.c_int),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("close", "read", "write", "truncate", "sync", "file_size", "lock", "unlock", "check_reserved_lock"),
                *("file_control", "sector_size", "device_characteristics"),
                *("shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch"),
            )
        ),
    )


class _File(ctypes.Structure):
    """`sqlite3_file`, the common head of all implementations."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("path_length", ctypes.c_int),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("next", "name", "data", "open", "delete", "access", "full_pathname"),
                *("dl_open", "dl_error", "dl_sym", "dl_close", "randomness", "sleep", "current_time"),
                *("last_error", "current_time_64", "set_system_call", "get_system_call", "next_system_call"),
            )
        ),
    )


_FILE = ctypes.POINTER(_File)
_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, _FILE, ctypes.c_int, ctypes.c_void_p)
_DELETE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_WRITE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class Journal:
    """Records every write, truncation and sync of the databases of this process."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._names: dict[int, str] = {}  # address of an open file → its name
        self._tables: dict[int, _Methods] = {}  # address of SQLite's methods → ours
        self._kept: list[Any] = []  # what C points to
        self._writes = 0
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self._below = library.sqlite3_vfs_find(None)
        ours = _Vfs.from_buffer_copy(self._below.contents)
        name = ctypes.create_string_buffer(b"journal")
        ours.name, ours.next = ctypes.addressof(name), None
        ours.open = self._callback(_OPEN, self._open)
        ours.delete = self._callback(_DELETE, self._delete)
        self._kept += [name, ours]
        assert library.sqlite3_vfs_register(ctypes.byref(ours), 1) == 0

    def note(self, step: Step, name: str) -> None:
        """Record an acknowledgement."""
        self.records.append(Record(step, name))

    def _callback(self, kind: Any, method: Callable[..., int]) -> int:
        made = kind(method)
        self._kept.append(made)
        address = ctypes.cast(made, ctypes.c_void_p).value
        assert address is not None
        return address

    def _open(self, _: int, path: int | None, file: Any, flags: int, out_flags: int) -> int:
        code = _OPEN(self._below.contents.open)(ctypes.addressof(self._below.contents), path, file, flags, out_flags)
        if code == 0 and path is not None and file.contents.methods:  # files without a name are temporary
            self._names[ctypes.addressof(file.contents)] = ctypes.string_at(path).decode()
            file.contents.methods = ctypes.pointer(self._methods_over(file.contents.methods))
        return int(code)

    def _delete(self, _: int, path: int, sync: int) -> int:
        code = _DELETE(self._below.contents.delete)(ctypes.addressof(self._below.contents), path, sync)
        self.records.append(Record(Step.DELETE, ctypes.string_at(path).decode()))
        return int(code)

    def _methods_over(self, methods: Any) -> _Methods:
        """The methods of a file, with recording ones before those that change it."""
        address = ctypes.addressof(methods.contents)
        if address in self._tables:
            return self._tables[address]
        below = methods.contents
        write, truncate, sync = _WRITE(below.write), _TRUNCATE(below.truncate), _SYNC(below.sync)

        def on_write(file: int, data: int, size: int, offset: int) -> int:
            code = write(file, data, size, offset)
            name = self._names[file]
            self.records.append(Record(Step.WRITE, name, offset, ctypes.string_at(data, size)))
            self._writes += 1
            if self._writes % SHM_EVERY == 0:
                self._look_at_shared(name.removesuffix("-wal") + "-shm")
            return int(code)

        def on_truncate(file: int, size: int) -> int:
            code = truncate(file, size)
            self.records.append(Record(Step.TRUNCATE, self._names[file], size))
            return int(code)

        def on_sync(file: int, flags: int) -> int:
            code = sync(file, flags)
            self.records.append(Record(Step.SYNC, self._names[file]))
            return int(code)

        ours = _Methods.from_buffer_copy(below)
        ours.write = self._callback(_WRITE, on_write)
        ours.truncate = self._callback(_TRUNCATE, on_truncate)
        ours.sync = self._callback(_SYNC, on_sync)
        self._tables[address] = ours
        return ours

    def _look_at_shared(self, name: str) -> None:
        """Closing the file drops the locks of this process, which has no other user here."""
        with suppress(FileNotFoundError):
            self.records.append(Record(Step.SHARED, name, 0, Path(name).read_bytes()))
