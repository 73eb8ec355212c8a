"""Kernels: functions that run as machine code, made by Numba once and loaded without it ever after.

Loading Numba takes a quarter of a second and its first kernel as long again; machine code that lies ready is mapped, or
takes LLVM's linker, once that is loaded, a few milliseconds. So a kernel is compiled at its first call on a machine
(:mod:`formats.jit_compile`), its object code kept (:mod:`formats.jit_cache`), and laid out by ourselves where that is
all it takes (:mod:`formats.jit_link`). Only the ``kernel`` modules import this one, and only bulk work imports those.

Kernels take integers, and NumPy arrays (or :class:`Held` ones); they give one integer, a tuple of them, or nothing.
Bytes come as addresses: so one compiled form serves mappings, bytes and writable buffers, and fields that lie unaligned
in big-endian order are one load each. Whoever calls a kernel has checked the bounds that it is given, and keeps the
buffer alive.
"""

import ctypes
import functools
import hashlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from formats import jit_cache
from formats.jit_link import laid_out

F = TypeVar("F", bound=Callable[..., Any])
ENTRY = "rmqtool_kernel"  # what machine code names its one function: void (int64_t *block)
MOST_RESULTS = 4
NOTHING, SCALAR = -1, 0  # how many integers a result has otherwise: the first word of a block when a kernel returns
_COMPILER = "formats.jit_compile"
_Code = Callable[[Any], None]


class Primitive:
    """What a kernel can do and Python cannot; :mod:`formats.jit_compile` has the code of each name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_args: Any) -> Any:
        raise TypeError(f"{self.name} is for kernels only")


class Part:
    """A function that only kernels call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *_args: Any) -> Any:
        raise TypeError(f"{self.function.__name__} is for kernels only")


def part(function: F) -> F:
    """Decorate a function that only kernels call; it becomes part of them."""
    return cast(F, Part(function))


class Kernel:
    """An entry point; called as the function would be."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._code: dict[str, _Code] = {}

    def __call__(self, *args: Any) -> Any:
        words: list[int] = []
        kinds = ""
        for arg in args:
            if type(arg) is int:
                words.append(arg)
                kinds += "-"
                continue
            held = arg if type(arg) is Held else Held(arg)
            words += held.words
            kinds += held.kind
        code = self._code.get(kinds)
        if code is None:
            code = self._made(kinds)
        words += [0] * (1 + MOST_RESULTS - len(words))
        block = (ctypes.c_int64 * len(words))(*words)
        code(block)
        count = block[0]
        if count > 0:
            return tuple(block[1 : 1 + count])
        return block[1] if count == SCALAR else None

    def _made(self, kinds: str) -> _Code:
        with jit_cache.LOCK:
            if kinds in self._code:
                return self._code[kinds]
            name = f"{self._function.__module__}.{self._function.__name__.strip('_')}"
            name += f"-{digest(self._function, kinds, *_machine())}"
            code = jit_cache.stored(name)
            if code is None:
                compiler = importlib.import_module(_COMPILER)
                code = compiler.compiled(self._function, kinds_of(kinds))
                jit_cache.store(name, code)
            self._code[kinds] = _linked(name, code)
            return self._code[kinds]


def kernel(function: F) -> F:
    """Decorate an entry point: compiled at its first call for each kinds of arguments, as long as no cache has it."""
    return cast(F, Kernel(function))


class Held:
    """An array for kernels, or an integer, whose facts are looked up once: for calls that come by the thousand.

    Args:
        value: an array whose memory stays where it is.

    Raises:
        ValueError: an array of anything but the machine's own integers.

    Attributes:
        kind: as :func:`kinds_of` reads it.
        words: what a kernel is given.
    """

    __slots__ = ("_keep", "kind", "words")

    def __init__(self, value: Any) -> None:
        self._keep = value
        if not isinstance(value, np.ndarray):
            self.words: tuple[int, ...] = (int(value),)
            self.kind = "-"
            return
        if not (value.flags.aligned and value.dtype.isnative and value.dtype.kind in "biu"):
            raise ValueError("kernels take arrays of the machine's own integers")
        self.words = (value.ctypes.data, *value.shape, *value.strides)
        self.kind = f"{value.dtype.kind}{value.dtype.itemsize}{'C' if value.flags.c_contiguous else 'A'}{value.ndim}"


def kinds_of(kinds: str) -> list[tuple[str, str, int] | None]:
    """What each argument is: None for an integer, else an array's type, layout and dimensions."""
    found: list[tuple[str, str, int] | None] = []
    while kinds:
        if kinds[0] == "-":
            found.append(None)
            kinds = kinds[1:]
        else:
            found.append((kinds[:2], kinds[2], int(kinds[3])))
            kinds = kinds[4:]
    return found


def used(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The global names that a function uses, with what they stand for."""
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield name, function.__globals__[name]


def digest(function: Callable[..., Any], *more: str) -> str:
    """Of all that machine code is made from, so that none is used that was made from something else.

    Raises:
        TypeError: a global value, or an inner function, that kernels cannot use.
    """
    found = hashlib.sha256("\0".join(more).encode())
    seen: set[int] = set()

    def take(function: Callable[..., Any]) -> None:
        if id(function) in seen:
            return
        seen.add(id(function))
        code = function.__code__
        if any(isinstance(value, types.CodeType) for value in code.co_consts):
            raise TypeError(f"{code.co_name}: kernels cannot use functions of their own")
        found.update(repr((code.co_name, code.co_code, code.co_consts, code.co_names, code.co_varnames)).encode())
        for name, value in used(function):
            found.update(f"{name}\0".encode())
            if isinstance(value, Part):
                take(value.function)
            elif isinstance(value, np.ndarray):
                found.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
            elif isinstance(value, (int, str, bytes, np.generic)):
                found.update(repr(value).encode())
            elif not isinstance(value, (Primitive, types.ModuleType)):
                raise TypeError(f"{code.co_name}: kernels cannot use {name}")

    take(function)
    return found.hexdigest()[:24]


@functools.cache
def _machine() -> Sequence[str]:
    """What machine code is made for, and by what."""
    compiler = importlib.util.find_spec(_COMPILER)
    assert compiler is not None
    assert compiler.origin is not None
    source = hashlib.sha256(cast(Any, compiler.loader).get_data(compiler.origin)).hexdigest()
    makers = [importlib.util.find_spec(name) for name in ("llvmlite", "numba")]
    stamps = [jit_cache.stamp(None if maker is None else maker.origin) for maker in makers]
    processor = jit_cache.processor()
    if processor and all(stamps):
        return sys.platform, processor, *stamps, source
    llvm = _llvm()
    version = ".".join(map(str, llvm.llvm_version_info))
    features = llvm.get_host_cpu_features().flatten()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), features, version, source


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding

    llvmlite.binding.initialize_native_target()
    llvmlite.binding.initialize_native_asmprinter()
    return llvmlite.binding


@functools.cache
def _linker() -> Any:
    return _llvm().create_lljit_compiler()


_libraries: list[Any] = []  # the code goes when these do


def _linked(name: str, code: bytes) -> _Code:
    """The function in object code, callable; it does not hold Python's lock."""
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int64))
    laid = laid_out(code, ENTRY)
    if laid is not None and (memory := jit_cache.executable(laid[0])) is not None:
        _libraries.append(memory)
        return cast(_Code, kind(address_of(memory)[0] + laid[1]))
    builder = _llvm().JITLibraryBuilder().add_object_img(code).add_current_process().export_symbol(ENTRY)
    library = builder.link(_linker(), f"{name}#{len(_libraries)}")
    _libraries.append(library)
    return cast(_Code, kind(library[ENTRY]))


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


# integers that lie at an address, unaligned, big-endian
byte_at = Primitive("byte_at")
u16_at = Primitive("u16_at")
i32_at = Primitive("i32_at")
i64_at = Primitive("i64_at")
word_at = Primitive("word_at")  # eight bytes, the first one lowest
# (address, value)
store_byte = Primitive("store_byte")
store_i16 = Primitive("store_i16")
store_i32 = Primitive("store_i32")
store_i64 = Primitive("store_i64")
# (address, byte): which of 64 bytes are that one; a bit each, the first one lowest
matches_at = Primitive("matches_at")
trailing_zeros = Primitive("trailing_zeros")  # below the lowest set bit of a word that is not zero
# have the processor fetch what lies at an address; any address will do
expect_read = Primitive("expect_read")
expect_write = Primitive("expect_write")
copy_bytes = Primitive("copy_bytes")  # (to, start, length); the two ranges do not meet
call_crc = Primitive("call_crc")  # (function, start, length): uint32_t function(uint32_t 0, const uint8_t *, uint64_t)
