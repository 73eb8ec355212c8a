"""Machine code for :mod:`formats.jit`, by Numba and LLVM. Nobody else imports this module: it takes long to load.

Numba compiles a kernel and its parts apart, with ways out for exceptions and counts of references. Put together as one
function that only takes and gives integers, LLVM finds that none of them is ever used, and leaves pure code.
"""

import sys
import types as python_types
from collections.abc import Callable, Sequence
from typing import Any, cast

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import types as numba_types
from numba.extending import intrinsic
from numba.np import arrayobj

from formats.jit import ENTRY, MOST_RESULTS, NOTHING, SCALAR, Part, Primitive, used

_SWAP = sys.byteorder == "little"
_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
types, _populate_array = cast(Any, numba_types), cast(Any, arrayobj).populate_array  # hardly typed
_LIBRARY = {"memcpy", "memset", "memmove", "memcmp"}  # what LLVM itself calls; every process has them


def _swapped(builder: Any, value: Any, *, little: bool) -> Any:
    return builder.bswap(value) if little != _SWAP else value


def _intrinsic(definition: Callable[..., Any]) -> Callable[..., Any]:
    """What Numba makes of a definition has a context less than that, which type checkers must not be told."""
    return cast(Callable[..., Any], intrinsic(definition))


def _loader(kind: Any, result: Any, *, signed: bool, little: bool = False) -> Callable[..., Any]:
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
    def store(_context: Any, address: Any, value: Any) -> Any:
        def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            value = args[1] if kind.width == 64 else builder.trunc(args[1], kind)
            pointer = builder.inttoptr(args[0], kind.as_pointer())
            builder.store(_swapped(builder, value, little=False) if kind.width > 8 else value, pointer, align=1)
            return target.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return _intrinsic(store)


def _prefetcher(write: int) -> Callable[..., Any]:
    def expect(_context: Any, address: Any) -> Any:
        def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = _I8.as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
            builder.call(prefetch, [builder.inttoptr(args[0], pointer), _I32(write), _I32(3), _I32(1)])
            return target.get_dummy_value()

        return types.void(types.int64), codegen

    return _intrinsic(expect)


@_intrinsic
def _matches_at(_context: Any, address: Any, byte: Any) -> Any:
    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        many = ir.VectorType(_I8, _I64.width)
        found = builder.load(builder.inttoptr(args[0], many.as_pointer()), align=1)
        one = builder.insert_element(ir.Constant(many, ir.Undefined), builder.trunc(args[1], _I8), _I32(0))
        wanted = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, _I64.width), None))
        bits = builder.bitcast(builder.icmp_unsigned("==", found, wanted), _I64)
        return bits if _SWAP else builder.bitreverse(bits)

    return types.uint64(types.int64, types.int64), codegen


@_intrinsic
def _trailing_zeros(_context: Any, value: Any) -> Any:
    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen


@_intrinsic
def _copy_bytes(_context: Any, to: Any, start: Any, length: Any) -> Any:
    def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        pointer = _I8.as_pointer()
        copy = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, _I64])
        places = [builder.inttoptr(place, pointer) for place in args[:2]]
        builder.call(copy, [*places, args[2], ir.Constant(ir.IntType(1), 0)])
        return target.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@_intrinsic
def _call_crc(_context: Any, function: Any, start: Any, length: Any) -> Any:
    def codegen(_target: Any, builder: Any, _signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I32, _I8.as_pointer(), _I64])
        pointer = builder.inttoptr(args[0], kind.as_pointer())
        value = builder.call(pointer, [_I32(0), builder.inttoptr(args[1], _I8.as_pointer()), args[2]])
        return builder.zext(value, _I64)

    return types.int64(types.int64, types.int64, types.int64), codegen


_PRIMITIVES: dict[str, Callable[..., Any]] = {
    "byte_at": _loader(_I8, types.int64, signed=False),
    "u16_at": _loader(_I16, types.int64, signed=False),
    "i32_at": _loader(_I32, types.int64, signed=True),
    "i64_at": _loader(_I64, types.int64, signed=True),
    "word_at": _loader(_I64, types.uint64, signed=False, little=True),
    "store_byte": _storer(_I8),
    "store_i16": _storer(_I16),
    "store_i32": _storer(_I32),
    "store_i64": _storer(_I64),
    "matches_at": _matches_at,
    "trailing_zeros": _trailing_zeros,
    "expect_read": _prefetcher(0),
    "expect_write": _prefetcher(1),
    "copy_bytes": _copy_bytes,
    "call_crc": _call_crc,
}


def _words(builder: Any, block: Any) -> Callable[[int], Any]:
    """Gives the address of each word of a block."""
    first = builder.inttoptr(block, _I64.as_pointer())
    return lambda number: builder.gep(first, [_I64(number)])


def _unpacker(kinds: Sequence[tuple[str, str, int] | None]) -> Callable[..., Any]:
    """An intrinsic: a block's address to what it holds, a tuple."""
    each = [types.int64 if kind is None else _array_of(*kind) for kind in kinds]

    def arguments(_context: Any, block: Any) -> Any:
        result = types.BaseTuple.from_types(each)

        def codegen(target: Any, builder: Any, _signature: Any, args: Any) -> Any:
            words, at = _words(builder, args[0]), 0
            values = []
            for kind in each:
                loaded = [builder.load(words(at + i)) for i in range(_size_of(kind))]
                at += len(loaded)
                if kind is types.int64:
                    values.append(loaded[0])
                    continue
                array = target.make_array(kind)(target, builder)
                shape, strides = loaded[1 : 1 + kind.ndim], loaded[1 + kind.ndim :]
                size = _I64(np.dtype(str(kind.dtype)).itemsize)
                data = builder.inttoptr(loaded[0], array.data.type)
                _populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
                values.append(array._getvalue())
            return target.make_tuple(builder, result, values)

        return result(types.int64), codegen

    return _intrinsic(arguments)


def _array_of(kind: str, layout: str, dimensions: int) -> Any:
    return types.Array(numba.from_dtype(np.dtype(kind)), dimensions, layout)


def _size_of(kind: Any) -> int:
    return 1 if kind is types.int64 else 1 + 2 * kind.ndim


@_intrinsic
def _answer(_context: Any, block: Any, value: Any) -> Any:
    """Put a result into a block: how many integers, then they."""

    def codegen(target: Any, builder: Any, signature: Any, args: Any) -> Any:
        words, kind = _words(builder, args[0]), signature.args[1]
        if isinstance(kind, types.BaseTuple):
            assert len(kind) <= MOST_RESULTS
            count, found = len(kind), [(builder.extract_value(args[1], i), each) for i, each in enumerate(kind)]
        elif kind is types.none:
            count, found = NOTHING, []
        else:
            count, found = SCALAR, [(args[1], kind)]
        builder.store(_I64(count), words(0))
        for number, (each, its_kind) in enumerate(found, 1):
            builder.store(target.cast(builder, each, its_kind, types.int64), words(number))
        return target.get_dummy_value()

    return types.void(types.int64, value), codegen


def _resolved(function: Callable[..., Any], done: dict[int, Any]) -> Any:
    """A function for Numba, with what its globals stand for here."""
    if id(function) not in done:
        own = {"__builtins__": __builtins__, "__name__": function.__module__}
        for name, value in used(function):
            if isinstance(value, Part):
                own[name] = _resolved(value.function, done)
            else:
                own[name] = _PRIMITIVES[value.name] if isinstance(value, Primitive) else value
        copy = python_types.FunctionType(function.__code__, own, function.__name__, function.__defaults__)
        done[id(function)] = numba.njit(error_model="numpy")(copy)
    return done[id(function)]


def compiled(function: Callable[..., Any], kinds: Sequence[tuple[str, str, int] | None]) -> bytes:
    """Object code for this machine, whose one function is :data:`formats.jit.ENTRY`.

    Args:
        kinds: of the arguments, as :func:`formats.jit.kinds_of` tells them.

    Raises:
        AssertionError: the code would need more than the processor.
    """
    own, arguments, answer = _resolved(function, {}), _unpacker(kinds), _answer

    def entry(block: Any) -> None:
        answer(block, own(*arguments(block)))

    made = numba.cfunc(types.void(types.int64), error_model="numpy")(entry)
    module = llvm.parse_assembly(made.inspect_llvm())
    own_functions = [each for each in module.functions if not each.is_declaration and each.name != made.native_name]
    for each in (*own_functions, *(each for each in module.global_variables if not each.is_declaration)):
        each.linkage = "internal"
    for each in own_functions:
        if not each.name.startswith("NRT_"):  # counts of references, which go
            each.add_function_attribute("alwaysinline")  # a call takes and gives through memory
    module.get_function(made.native_name).name = ENTRY
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="small", jit=True
    )
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    builder.getModulePassManager().run(module, builder)
    needed = {each.name for each in (*module.functions, *module.global_variables) if each.is_declaration}
    foreign = {name for name in needed if not name.startswith("llvm.")} - _LIBRARY
    assert not foreign, f"{function.__name__} needs {sorted(foreign)}"
    return bytes(machine.emit_object(module))
