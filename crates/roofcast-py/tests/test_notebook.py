"""What a notebook shows of an answer."""

import xml.etree.ElementTree as ElementTree

import roofcast


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


def test_headlines_say_the_answer():
    run = roofcast.simulate(requests=200, rate=8)
    assert f"{run.output_throughput:.4g} output tok/s" in repr(run)
    none = roofcast.plan(requests=300, ttft_p99=1, hardware="h100-sxm")
    assert none.best is None and "no deployment meets the SLO" in repr(none)
