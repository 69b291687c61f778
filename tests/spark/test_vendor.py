"""Pins the APIs that PySpark does not document and `spark/vendor.py` uses, and the file access."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.pandas import types
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ringfaust.spark import vendor
from ringfaust.spark.files import HadoopFolder
from ringfaust.spark.lines import LINE

PACKAGE = Path(vendor.__file__).parents[1]
PRIVATE = re.compile(r"\._(?:jvm|jsc|jsq|jdf|jreader|jwrite|jc|sc|gateway|jsparkSession)\b")


def test_only_the_vendor_module_uses_private_apis_of_pyspark() -> None:
    """The kafka and worker packages have vendor modules of their own, for other libraries."""
    for source in PACKAGE.joinpath("spark").rglob("*.py"):
        text = source.read_text(encoding="utf-8")
        if source != Path(vendor.__file__):
            assert PRIVATE.findall(text) == [], source
            assert "pyspark.sql.pandas.types" not in text, source


def test_pyspark_has_the_private_attributes() -> None:
    assert {"self._jvm", "self._jsc"} <= assigned_in(SparkSession)
    assert "self._jdf" in assigned_in(DataFrame)
    assert hasattr(SparkContext, "_gateway")


def assigned_in(kind: type) -> set[str]:
    """The attributes that a class's `__init__` assigns."""
    lines = inspect.getsource(kind.__init__).splitlines()  # type: ignore[misc]
    return {line.strip().partition(" =")[0].partition(":")[0] for line in lines}


def test_pyspark_names_the_batch_of_a_task_by_the_same_property() -> None:
    assert f'"{vendor._BATCH_ID}"' in inspect.getsource(DataStreamWriter)


def test_arrow_schemas_and_spark_schemas_convert_to_each_other() -> None:
    assert types.from_arrow_schema is vendor.from_arrow_schema
    assert vendor.from_arrow_schema(vendor.to_arrow_schema(LINE)) == LINE


def test_outside_of_a_task_there_is_no_current_batch() -> None:
    with pytest.raises(AssertionError):
        vendor.current_batch()


def test_spark_answers_through_its_private_apis(spark: SparkSession) -> None:
    jvm = vendor.jvm(spark)
    assert vendor.hadoop_configuration(spark).get("fs.defaultFS").startswith("file:")
    array = vendor.java_array(spark, jvm.java.lang.String, "a", "b")
    assert list(array) == ["a", "b"]
    rows = spark.range(1)
    assert vendor.is_deterministic(rows.select(F.col("id") + 1))
    assert not vendor.is_deterministic(rows.select(F.rand()))
    optimizer = jvm.org.apache.spark.sql.catalyst.optimizer
    assert optimizer.ColumnPruning.ruleName() == vendor.COLUMN_PRUNING


def test_a_folder_holds_text_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = HadoopFolder(spark, str(tmp_path / "new"))
    assert not folder.exists()
    assert folder.numbers() == []
    assert folder.read_text("sub/7") is None
    folder.write_text("sub/7", "old")
    folder.write_text("sub/7", "new é")
    folder.write_text("sub/name", "x")
    assert folder.exists()
    assert folder.read_text("sub/7") == "new é"
    assert folder.numbers("sub") == [7]
    folder.delete("sub/7")
    assert folder.numbers("sub") == []
