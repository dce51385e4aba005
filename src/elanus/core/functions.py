"""Functions of a schema: fields whose values the server computes from other fields.

BM25 turns a text field into a sparse vector field, by which full-text search ranks rows. MinHash turns one
into a binary vector field of signatures, by which near duplicates are found (`elanus.core.minhash`).
TextEmbedding has a provider turn one into a vector field (`elanus.core.embedding`). The texts of errors are
the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from elanus.core.embedding import check_embedding_types, embedding_of
from elanus.core.errors import InvalidParameter, NotSupported
from elanus.core.minhash import check_minhash
from elanus.core.types import DataType, type_name

if TYPE_CHECKING:
    from elanus.core.schema import FieldSchema

BM25 = "BM25"
MINHASH = "MinHash"
TEXT_EMBEDDING = "TextEmbedding"
ENABLE_ANALYZER = "enable_analyzer"
ENABLE_MATCH = "enable_match"
ANALYZER_PARAMS = "analyzer_params"
MULTI_ANALYZER_PARAMS = "multi_analyzer_params"
TEXT_PARAMS = frozenset({ENABLE_ANALYZER, ENABLE_MATCH, ANALYZER_PARAMS, MULTI_ANALYZER_PARAMS})
"""The type parameters of text fields that concern the analysis of texts."""
_INPUT_TYPES = frozenset({DataType.VARCHAR, DataType.TEXT})
_OUTPUT_TYPES = {
    BM25: DataType.SPARSE_FLOAT_VECTOR,
    MINHASH: DataType.BINARY_VECTOR,
    TEXT_EMBEDDING: DataType.FLOAT_VECTOR,
}
"""The supported kinds of functions, and the types of their outputs."""


@dataclass(frozen=True)
class Function:
    """``kind``: the wire's name of its type. ``inputs`` and ``outputs``: names of fields."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    description: str = ""
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_stored(self) -> bool:
        """Whether its values are computed once, by the proxy that writes a row, and stored like others.

        Those of other functions are computed by whatever reads the rows or writes their files.
        """
        return self.kind == TEXT_EMBEDDING

    @property
    def input(self) -> str:
        """The only input field."""
        return self.inputs[0]

    @property
    def output(self) -> str:
        """The only output field."""
        return self.outputs[0]


def enables_analyzer(field: FieldSchema) -> bool:
    return _is_true(field, ENABLE_ANALYZER)


def enables_match(field: FieldSchema) -> bool:
    return _is_true(field, ENABLE_MATCH)


def _is_true(field: FieldSchema, name: str) -> bool:
    value = field.params.get(name, "false").strip().lower()
    if value not in ("true", "false"):
        raise InvalidParameter(f"{name} of field {field.name} should be true or false, but got {value}")
    return value == "true"


def check_functions(fields: Sequence[FieldSchema], functions: Sequence[Function]) -> None:
    """Check a schema's functions. Raises `InvalidParameter`, and `NotSupported` for kinds without support."""
    by_name = {one.name: one for one in fields}
    names: set[str] = set()
    outputs: set[str] = set()
    for function in functions:
        _check_names(function)
        if function.name in names:
            raise InvalidParameter(f"duplicate function name: {function.name}")
        names.add(function.name)
        _check_inputs(function, by_name)
        _check_outputs(function, by_name, outputs)
        if function.kind == MINHASH:
            check_minhash(function.params, function.output, by_name[function.output].dim)
        if function.kind == TEXT_EMBEDDING:
            embedding_of(function.name, function.params, function.output, by_name[function.output].dim)
    for one in fields:
        if one.is_function_output and one.name not in outputs:
            raise InvalidParameter(f"field {one.name} is the output of a function, but no function has it")


def with_outputs_marked(
    fields: Sequence[FieldSchema], functions: Sequence[Function]
) -> tuple[FieldSchema, ...]:
    """Return the fields, those that functions compute marked as such."""
    outputs = {name for function in functions for name in function.outputs}
    return tuple(replace(one, is_function_output=True) if one.name in outputs else one for one in fields)


def _check_names(function: Function) -> None:
    name = function.name
    if not name:
        raise InvalidParameter("function name cannot be empty")
    if not function.inputs:
        raise InvalidParameter(f"function input field names cannot be empty, function: {name}")
    if not function.outputs:
        raise InvalidParameter(f"function output field names cannot be empty, function: {name}")
    for one in function.inputs:
        if not one:
            raise InvalidParameter(f"function input field name cannot be empty string, function: {name}")
        if function.inputs.count(one) > 1:
            raise InvalidParameter(
                "each function input field should be used exactly once in the same function, "
                f"function: {name}, input field: {one}"
            )
    for one in function.outputs:
        if not one:
            raise InvalidParameter(f"function output field name cannot be empty string, function: {name}")
        if one in function.inputs:
            raise InvalidParameter(
                "a single field cannot be both input and output in the same function, "
                f"function: {name}, field: {one}"
            )
        if function.outputs.count(one) > 1:
            raise InvalidParameter(
                "each function output field should be used exactly once in the same function, "
                f"function: {name}, output field: {one}"
            )
    if function.kind not in _OUTPUT_TYPES:
        raise NotSupported(
            f"a function of type {function.kind} is not supported by this release: compute the vectors in "
            f"the client, or use one of {', '.join(_OUTPUT_TYPES)}"
        )
    if function.kind == BM25 and function.params:
        raise InvalidParameter("BM25 function accepts no params")


def _check_inputs(function: Function, by_name: Mapping[str, FieldSchema]) -> None:
    fields = []
    for name in function.inputs:
        if name not in by_name:
            raise InvalidParameter(f"function input field not found: {name}")
        if by_name[name].nullable and function.kind == TEXT_EMBEDDING:
            raise InvalidParameter(
                f"function input field cannot be nullable: function {function.name}, field {name}"
            )
        fields.append(by_name[name])
    if function.kind == TEXT_EMBEDDING:
        return  # its types are checked with those of its output
    if len(fields) != 1 or fields[0].data_type not in _INPUT_TYPES:
        raise InvalidParameter(
            f"{function.kind} function input field must be a VARCHAR/TEXT field, got {len(fields)} field "
            f"with type {type_name(fields[0].data_type)}"
        )
    if function.kind == BM25 and not enables_analyzer(fields[0]):
        raise InvalidParameter("BM25 function input field must set enable_analyzer to true")


def _check_outputs(function: Function, by_name: Mapping[str, FieldSchema], taken: set[str]) -> None:
    for name in function.outputs:
        if name not in by_name:
            raise InvalidParameter(f"function output field not found: {name}")
        one = by_name[name]
        for wrong, what in ((one.is_primary, "primary key"), (one.nullable, "nullable")):
            if wrong:
                raise InvalidParameter(
                    f"function output field cannot be {what}: function {function.name}, field {name}"
                )
        if name in taken:
            raise InvalidParameter(f"duplicate function output field: function {function.name}, field {name}")
        taken.add(name)
    if len(function.outputs) != 1:
        raise InvalidParameter(
            f"{function.kind} function only need 1 output field, but got {len(function.outputs)}"
        )
    output, wanted = by_name[function.output], _OUTPUT_TYPES[function.kind]
    if function.kind == TEXT_EMBEDDING:
        check_embedding_types(tuple(by_name[name].data_type for name in function.inputs), output.data_type)
    if output.data_type is not wanted:
        raise InvalidParameter(
            f"{function.kind} function output field must be a {type_name(wanted)} field, but got "
            f"{type_name(output.data_type)}"
        )
