"""Answers as Arrow: pandas, polars, pyarrow and DuckDB read them, without a copy."""

import duckdb
import pandas
import polars
import pyarrow
import pytest
import roofcast


@pytest.fixture(scope="module")
def run():
    return roofcast.simulate(requests=300, rate=8, records=True)


def test_records_are_read_by_all(run):
    records = run.records()
    assert len(records) == 300
    by_arrow = pyarrow.table(records)
    by_polars = polars.DataFrame(records)
    by_pandas = pandas.DataFrame.from_arrow(records) if hasattr(pandas.DataFrame, "from_arrow") else by_arrow.to_pandas()
    (by_duckdb,) = duckdb.sql("select count(*), avg(ttft_ms), max(id) from records").fetchall()
    assert by_arrow.num_rows == len(by_polars) == len(by_pandas) == by_duckdb[0] == 300
    mean = sum(by_arrow["ttft_ms"].to_pylist()) / 300
    assert mean == pytest.approx(run.mean_ttft_ms)
    assert by_duckdb[1] == pytest.approx(mean) and by_polars["ttft_ms"].mean() == pytest.approx(mean)
    assert by_pandas["ttft_ms"].mean() == pytest.approx(mean)
    # Every returned token except the first has a gap before it; the column may be in several chunks.
    assert by_arrow.schema.field("itl_ms").type == pyarrow.list_(pyarrow.field("item", pyarrow.float64()))
    assert sum(by_arrow["output_len"].to_pylist()) == run.total_output_tokens


def test_nothing_is_copied(run):
    records = run.records()
    first, second = (pyarrow.table(records)["finished_ms"].chunk(0).buffers()[1] for _ in range(2))
    assert first.address == second.address
    by_polars = polars.DataFrame(records)["finished_ms"].to_arrow().buffers()[1]
    assert by_polars.address == first.address


def test_what_was_read_outlives_the_answer():
    table = pyarrow.table(roofcast.simulate(requests=50, rate=8, records=True).records())
    assert table["id"].to_pylist() == list(range(50))


def test_rows_of_every_answer_are_tables():
    sweep = roofcast.sweep(requests=50, over={"rate": [1, 2], "scheduler": ["vllm", "orca"]})
    table = pyarrow.table(sweep)
    assert table["workload.arrivals.rate"].to_pylist() == [1, 1, 2, 2]
    assert table["engine.scheduler"].to_pylist() == ["vllm", "orca"] * 2
    assert table["p99_ttft_ms"].to_pylist() == [point.p99_ttft_ms for point in sweep.points]
    assert table["kv_cache.mean_usage"].to_pylist() == [point.kv_cache.mean_usage for point in sweep.points]
    limits = roofcast.limits(model="llama-3.1-8b", hardware="h100-sxm")
    operators = polars.DataFrame(limits)
    assert set(operators["phase"]) == {"decode", "prefill"}
    decode = operators.filter(polars.col("phase") == "decode")
    assert decode["limit_ms"].sum() == pytest.approx(limits.decode.limit_ms)
    assert len(pyarrow.table(limits.table())) == len(limits.decode.operators) + len(limits.prefill.operators)
    with pytest.raises(AttributeError, match="records=True"):
        roofcast.simulate(requests=50).records()
