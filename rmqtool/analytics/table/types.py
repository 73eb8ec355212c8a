"""Compares the types of columns as far as tables tell them apart."""

import pyarrow as pa


def is_same(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether types are the same, but for widths of offsets, names of elements, nulls and order of fields."""
    return _matches(one, other, may_add=False)


def is_wider(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether the other type is the same but for fields that its structs have besides."""
    return _matches(one, other, may_add=True) and not is_same(one, other)


def _matches(one: pa.DataType, other: pa.DataType, *, may_add: bool) -> bool:
    if pa.types.is_map(one) and pa.types.is_map(other):
        return _matches(one.key_type, other.key_type, may_add=may_add) and _matches(
            one.item_type, other.item_type, may_add=may_add
        )
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        mine, yours = ({field.name: field.type for field in each} for each in (one, other))
        names = mine.keys() <= yours.keys() if may_add else mine.keys() == yours.keys()
        return names and all(_matches(kind, yours[name], may_add=may_add) for name, kind in mine.items())
    if _is_list(one) and _is_list(other):
        return _matches(one.value_type, other.value_type, may_add=may_add)
    for kinds in (
        (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    ):
        if any(kind(one) for kind in kinds):
            return any(kind(other) for kind in kinds)
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.unit, one.tz is None) == (other.unit, other.tz is None)
    return bool(one == other)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
