"""Each data type has an entry in every table of the edges, and no table knows another type."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from elanus.core.errors import InvalidParameter
from elanus.core.given_types import ACCEPTED
from elanus.core.ids import FieldID
from elanus.core.schema import FieldSchema
from elanus.core.schema_rules import check_takes_default
from elanus.core.types import KINDS, DataType
from elanus.index.kinds import exact_kind, kinds_on
from elanus.pipeline.import_columns import CONVERT
from elanus.proxy.wire.codecs import CODECS, ScalarCodec, VectorCodec
from elanus.spark.source import TYPES


@pytest.mark.parametrize(
    "table", [CODECS, ACCEPTED, CONVERT, TYPES], ids=["wire", "given", "import", "spark"]
)
def test_every_table_has_the_keys_of_the_kinds(table: Mapping[DataType, object]) -> None:
    assert set(table) == set(KINDS)


@pytest.mark.parametrize("data_type", KINDS)
def test_every_vector_type_travels_as_one_and_has_an_exact_index(data_type: DataType) -> None:
    is_vector = KINDS[data_type].vector is not None
    assert isinstance(CODECS[data_type], VectorCodec) == is_vector == data_type.is_vector
    assert not is_vector or exact_kind(data_type).over_rows is not None
    assert is_vector or not any(kind.over_rows for kind in kinds_on(data_type))


def test_the_types_with_defaults_are_those_whose_defaults_travel() -> None:
    """The rules of `elanus.core.schema_rules`, and the members that the wire has for default values.

    Long texts take none any more, but a schema of an earlier release is shown with its own.
    """
    for data_type, codec in CODECS.items():
        takes = True
        try:
            check_takes_default(FieldSchema(FieldID(100), "x", data_type))
        except InvalidParameter:
            takes = False
        travels = isinstance(codec, ScalarCodec) and codec.default_member is not None
        assert (takes or data_type is DataType.TEXT) == travels, data_type.name
