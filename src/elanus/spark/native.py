"""A collection as Spark's own scan of Parquet files, without Python in the executors.

Spark prunes columns, skips row groups, and generates code, as for any table of Parquet files. Deletes are a
left anti join with the delta logs. `elanus.spark.scan` says which files need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from elanus.core.errors import NotSupported
from elanus.core.rows import absent_column
from elanus.core.schema import ROW_ID_FIELD, TIMESTAMP_FIELD, FieldSchema
from elanus.core.schema import DataType as ElanusType
from elanus.core.timestamps import NO_TIMESTAMP
from elanus.spark.scan import FileFacts, FileGroup, ScanPlan, facts_table, location
from elanus.storage.delta_log import PARTITION_COLUMN, PRIMARY_KEY_COLUMN

_PLAIN = re.compile(r"[\w./-]+", re.ASCII)
"""Paths that are the same in a URL."""
_SIMPLE: tuple[tuple[pa.DataType, DataType], ...] = (
    (pa.bool_(), BooleanType()),
    (pa.int8(), ByteType()),
    (pa.int16(), ShortType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (pa.string(), StringType()),
)


def native_frame(spark: SparkSession, plan: ScanPlan, url: str) -> DataFrame:
    """Return the rows of a plan as a frame. ``url``: of the store.

    Columns have the types in which they are stored, except that a Timestamptz is a timestamp: vectors of
    floats are arrays, all other vectors their bytes. Raises `NotSupported` when two columns differ in case
    only while Spark ignores case.
    """
    _check_names(spark, plan)
    deletes = _deletes(spark, plan, url) if plan.deletes else None
    frames = [_group(spark, plan, group, deletes, url) for group in plan.groups]
    if not frames:
        empty = StructType([StructField(f.name, stored_type(f.arrow_type)) for f in plan.fields])
        return spark.createDataFrame([], empty).select([_shown(f, frozenset()) for f in plan.fields])
    return reduce(DataFrame.unionAll, frames)


def stored_type(arrow: pa.DataType) -> DataType:
    """Return the type in which Spark reads a column of a Parquet file that has this Arrow type."""
    for known, found in _SIMPLE:
        if arrow == known:
            return found
    if pa.types.is_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return ArrayType(stored_type(arrow.value_type))
    return BinaryType()


def _group(
    spark: SparkSession, plan: ScanPlan, group: FileGroup, deletes: DataFrame | None, url: str
) -> DataFrame:
    key = plan.schema.primary_field
    read = {f.name: f for f in plan.fields} | ({plan.expiry.name: plan.expiry} if plan.expiry else {})
    stored = [f for f in read.values() if f.name not in group.absent]
    if not group.whole and key.name not in read:
        stored.append(key)
    fields = [StructField(f.name, stored_type(f.arrow_type)) for f in stored]
    if not group.whole:
        fields.append(StructField(TIMESTAMP_FIELD, LongType()))
    frame = _files(spark, StructType(fields), group.files, url)
    if not group.whole:
        frame = _with_facts(spark, frame, group.files)
        frame = frame.where(sf.col("__ts") <= sf.col("__shown_until"))
        frame = frame.where(sf.col("__ts") > plan.expired_until)
    if group.deletable and deletes is not None:
        applies = sf.greatest(sf.col("__ts"), sf.col("__deletes_from")) < sf.col("__deleted_ts")
        there = (sf.col("__deleted_in") == 0) | (sf.col("__deleted_in") == sf.col("__partition"))
        same = sf.col(_quoted(key.name)) == sf.col("__deleted")
        frame = frame.join(deletes, same & applies & there, "left_anti")
    if plan.expiry is not None and plan.expiry.name not in group.absent:
        moment = sf.col(_quoted(plan.expiry.name))
        frame = frame.where(moment.isNull() | (moment <= 0) | (moment > plan.now_us))
    return frame.select([_shown(f, group.absent) for f in plan.fields])


def _deletes(spark: SparkSession, plan: ScanPlan, url: str) -> DataFrame:
    key = stored_type(plan.schema.primary_field.arrow_type)
    fields = [
        StructField(PRIMARY_KEY_COLUMN, key),
        StructField(TIMESTAMP_FIELD, LongType()),
        StructField(PARTITION_COLUMN, LongType()),
    ]
    frame = _with_facts(spark, _files(spark, StructType(fields), plan.deletes, url), plan.deletes)
    return frame.where(sf.col("__ts") <= sf.col("__shown_until")).select(
        sf.col(PRIMARY_KEY_COLUMN).alias("__deleted"),
        sf.col("__ts").alias("__deleted_ts"),
        sf.col(PARTITION_COLUMN).alias("__deleted_in"),
    )


def _files(spark: SparkSession, schema: StructType, files: Iterable[FileFacts], url: str) -> DataFrame:
    scheme = "file:" if url.startswith("file:") else ""
    paths = [scheme + location(url, file.path, s3="s3a") for file in files]
    return spark.read.schema(schema).parquet(*paths)


def _with_facts(spark: SparkSession, frame: DataFrame, files: tuple[FileFacts, ...]) -> DataFrame:
    """Add the columns of `facts_table` and ``__ts``, the timestamp of the row."""
    (parts,) = {file.path.count("/") + 1 for file in files}
    if odd := [file.path for file in files if not _PLAIN.fullmatch(file.path)]:
        raise NotSupported(f"Spark would not recognize {odd[0]}, which is quoted in a URL")
    name = sf.substring_index(sf.col("_metadata.file_path"), "/", -parts)
    facts = sf.broadcast(spark.createDataFrame(facts_table(files)))
    fixed = sf.col("__fixed")
    stamp = sf.when(fixed != NO_TIMESTAMP, fixed).otherwise(sf.col(TIMESTAMP_FIELD))
    return frame.withColumn("__file", name).join(facts, "__file").withColumn("__ts", stamp)


def _shown(field: FieldSchema, absent: frozenset[str]) -> Column:
    column = sf.col(_quoted(field.name))
    if field.name in absent:
        value = absent_column(field, 1)[0].as_py()
        column = sf.lit(value).cast(stored_type(field.arrow_type))
    if field.data_type is ElanusType.TIMESTAMPTZ:
        column = sf.timestamp_micros(column)
    return column.alias(field.name)


def _quoted(name: str) -> str:
    return f"`{name}`"


def _check_names(spark: SparkSession, plan: ScanPlan) -> None:
    """The files have columns of the system, which Spark would confuse with a field ``timestamp``."""
    if str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true":
        return
    names = [ROW_ID_FIELD, TIMESTAMP_FIELD, *plan.schema.by_name]
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            raise NotSupported(
                f"the files have more than one column {name} when case is ignored: set "
                "spark.sql.caseSensitive to true"
            )
