"""Compiled kernels: how they are built, cached, and read memory by address.

Only the ``kernel`` modules import this one, and only bulk work imports those: loading Numba alone takes 0.2 s.

Kernels take addresses instead of arrays of bytes. So one compiled form serves mappings, bytes and writable buffers, and
fields that lie unaligned in big-endian order are one load each. Whoever calls a kernel has checked the bounds that it
is given, and keeps the buffer alive.
"""

import ctypes
import functools
import hashlib
import importlib.resources
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
_SOURCES = ("jit.py", "kernel", "derived.py", "flat.py", "message.py", "primitives.py", "properties.py")
_SWAP = sys.byteorder == "little"
_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


@functools.cache
def _digest() -> str:
    """Of all that kernels are compiled from. Numba's own cache looks at the one file that holds the entry point."""
    found = hashlib.sha256()
    folder = importlib.resources.files("formats")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.startswith(_SOURCES) and file.name.endswith(".py"):
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def kernel(function: F) -> F:
    """Decorate an entry point: compiled at its first call, kept in Numba's cache where a directory can be written."""
    name = function.__name__
    function.__qualname__ = f"{name}_{_digest()}"  # part of the cache file's name: no stale code after an upgrade
    try:
        compiled = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no directory for a cache: compiled anew in each process
        compiled = numba.njit(nogil=True)(function)

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        try:
            return compiled(*args)
        except OSError:
            # the cache could not be written, as on a full disk; the function was compiled before, and touches no files
            return compiled(*args)

    return cast(F, run)


def part(function: F) -> F:
    """Decorate a function that only kernels call; it becomes part of them."""
    return cast(F, numba.njit(nogil=True)(function))


def inlined(function: F) -> F:
    """As :func:`part`, for a function that takes arrays: a call would count references to each, atomically."""
    return cast(F, numba.njit(nogil=True, inline="always")(function))


_bytes_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))


def address_of(buffer: Any, *, writable: bool = False) -> tuple[int, Any]:
    """(address, what keeps it valid) of a buffer's first byte.

    Raises:
        ValueError: ``writable`` is wanted, and the buffer is not.
    """
    if type(buffer) is bytes and buffer and not writable:
        return _bytes_address(buffer), buffer  # these two take a tenth of what NumPy takes
    if type(buffer) is bytearray and buffer:
        first = ctypes.c_char.from_buffer(buffer)
        return ctypes.addressof(first), first
    view = memoryview(buffer)
    if writable and view.readonly:
        raise ValueError("the buffer is read-only")
    if not view.nbytes:
        return 0, view
    array = np.frombuffer(view, np.uint8)
    return int(array.ctypes.data), array


def function_address(library: str, name: str) -> int:
    """Address of a C function in a shared object that is loaded already; 0 when it is not there."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _swapped(builder: Any, value: Any, *, little: bool) -> Any:
    return builder.bswap(value) if little != _SWAP else value


def _intrinsic(definition: Callable[..., Any]) -> Callable[..., Any]:
    """What Numba makes of a definition has a context less than that, which type checkers must not be told."""
    return cast(Callable[..., Any], intrinsic(definition))


def _loader(kind: Any, result: Any, *, signed: bool, little: bool = False) -> Callable[..., Any]:
    """An intrinsic: address to the integer that lies there, unaligned."""

    def load(_context: Any, address: Any) -> Any:
        def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            value = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            if kind.width > 8:
                value = _swapped(builder, value, little=little)
            if kind.width == 64:
                return value
            return builder.sext(value, _I64) if signed else builder.zext(value, _I64)

        return result(types.int64), codegen

    return _intrinsic(load)


def _storer(kind: Any) -> Callable[..., Any]:
    """An intrinsic: (address, value) stores the value in big-endian order, unaligned."""

    def store(_context: Any, address: Any, value: Any) -> Any:
        def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            value = args[1] if kind.width == 64 else builder.trunc(args[1], kind)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            builder.store(_swapped(builder, value, little=False) if kind.width > 8 else value, pointer, align=1)
            return target.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return _intrinsic(store)


byte_at = _loader(_I8, types.int64, signed=False)
u16_at = _loader(_I16, types.int64, signed=False)  # big-endian, as all that follow but the last
i32_at = _loader(_I32, types.int64, signed=True)
i64_at = _loader(_I64, types.int64, signed=True)
word_at = _loader(_I64, types.uint64, signed=False, little=True)  # eight bytes, the first one lowest
store_byte = _storer(_I8)
store_i16 = _storer(_I16)
store_i32 = _storer(_I32)
store_i64 = _storer(_I64)


@_intrinsic
def trailing_zeros(_context: Any, value: Any) -> Any:
    """Number of zero bits below the lowest set one, of a word that is not zero."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


def _prefetcher(write: int) -> Callable[..., Any]:
    """An intrinsic: has the processor fetch what lies at an address. Any address will do."""

    def expect(_context: Any, address: Any) -> Any:
        def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = _I8.as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
            builder.call(prefetch, [builder.inttoptr(args[0], pointer), _I32(write), _I32(3), _I32(1)])
            return target.get_dummy_value()

        return types.void(types.int64), codegen

    return _intrinsic(expect)


expect_read = _prefetcher(0)
expect_write = _prefetcher(1)


@_intrinsic
def copy_bytes(_context: Any, to: Any, start: Any, length: Any) -> Any:
    """Copy ``length`` bytes from one address to another; the two ranges do not meet."""

    def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = _I8.as_pointer()
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, _I64])
        places = [builder.inttoptr(place, pointer) for place in args[:2]]
        builder.call(copy, [*places, args[2], ir.Constant(ir.IntType(1), 0)])
        return target.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@_intrinsic
def call_crc(_context: Any, function: Any, start: Any, length: Any) -> Any:
    """Call ``uint32_t function(uint32_t 0, const uint8_t *start, uint64_t length)`` by address."""

    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I8.as_pointer(), _I64])
        pointer = builder.inttoptr(args[0], kind.as_pointer())
        value = builder.call(pointer, [_I32(0), builder.inttoptr(args[1], _I8.as_pointer()), args[2]])
        return builder.zext(value, _I64)

    return types.int64(types.int64, types.int64, types.int64), codegen
