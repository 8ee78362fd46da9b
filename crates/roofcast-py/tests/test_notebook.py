"""Display of an answer in a notebook, and of progress while it is computed."""

import xml.etree.ElementTree as ElementTree

import roofcast
from jupyter_client.manager import start_new_kernel


def test_pictures_are_the_programs(cli, tmp_path):
    path = tmp_path / "run.svg"
    run = roofcast.simulate(requests=200, rate=8)
    cli("simulate", "--requests=200", "--rate=8", f"--svg={path}")
    assert run._repr_svg_() == run.svg == path.read_text()
    ElementTree.fromstring(run.svg)
    for answer in (
        roofcast.limits(model="llama-3.1-8b", hardware="h100-sxm"),
        roofcast.sweep(requests=50, over={"rate": [1, 2]}),
        roofcast.plan(requests=300),
    ):
        assert ElementTree.fromstring(answer.svg).tag.endswith("svg")


def test_html_has_headline_picture_and_rows():
    sweep = roofcast.sweep(requests=50, over={"rate": [1, 2]})
    html = sweep._repr_html_()
    assert "<p>2 runs over workload.arrivals.rate</p>" in html and "<svg" in html
    assert html.count("<tr>") == 3
    capacity = roofcast.capacity(model="llama-3.1-8b", hardware="h100-sxm")
    assert capacity._repr_svg_() is None
    assert f"<td>kv_tokens</td><td>{capacity.kv_tokens}</td>" in capacity._repr_html_()


def test_a_plan_is_a_table_to_read():
    found = roofcast.plan(requests=300)
    html = found._repr_html_()
    assert html.count("<tr>") == 1 + len(found.ranked[:20])
    for column in ("accelerators", "as", "$/h", "TTFT p99 ms", "chance", "output tok/s"):
        assert f"<th>{column}</th>" in html
    assert html.count("<th>") <= 10
    assert f"<td>{found.best.count} × {found.best.accelerator}</td>" in html and "<th>enable_chunked_prefill</th>" not in html
    none = roofcast.plan(requests=300, ttft_p99="1ms", hardware="h100-sxm")
    assert f"<td>{none.nearest[0].deployment}</td>" in none._repr_html_()


def test_curves_are_a_picture_and_the_best_of_each():
    found = roofcast.curves(hardware="h100-sxm,l40s", max_accelerators=2, requests=200)
    assert [curve.name for curve in found.curves] == ["h100-sxm", "l40s"]
    html = found._repr_html_()
    assert html.count("<tr>") == 3 and html.count("<th>") <= 10 and "<td>tp 1</td>" in html
    assert "throughput against interactivity" in found.svg
    assert len(found.table()) == sum(len(curve.points) for curve in found.curves)


def test_headlines_say_the_answer():
    run = roofcast.simulate(requests=200, rate=8)
    assert f"{run.output_throughput:.4g} output tok/s" in repr(run)
    none = roofcast.plan(requests=300, ttft_p99="1ms", hardware="h100-sxm")
    assert none.best is None and "no deployment meets the SLO" in repr(none)


def test_a_kernel_shows_progress_and_then_picture_and_rows():
    manager, client = start_new_kernel()
    said = []
    try:
        cell = "import roofcast\nroofcast.simulate(requests=5_000_000, rate=8, no_leap=True, time_limit_s=6)"
        client.execute_interactive(cell, timeout=120, output_hook=said.append)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    kinds = [message["msg_type"] for message in said]
    assert "error" not in kinds, said
    # The notebook shows one bar, which is updated, then the answer.
    assert kinds.count("display_data") == 1 and "update_display_data" in kinds
    (bar,) = (message["content"]["data"]["text/html"] for message in said if message["msg_type"] == "display_data")
    assert bar.startswith("<progress ") and bar.endswith("/5000000 requests")
    (shown,) = (message["content"]["data"] for message in said if message["msg_type"] == "execute_result")
    assert ElementTree.fromstring(shown["image/svg+xml"]).tag.endswith("svg")
    assert "<table>" in shown["text/html"] and shown["text/plain"].startswith("<Simulation: ")
