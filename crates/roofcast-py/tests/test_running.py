"""Behaviour while a verb works: the interpreter's lock, Ctrl-C, progress, time limits, errors and warnings."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy
import pytest
import roofcast
from roofcast.progress import Display

LONG = {"requests": 5_000_000, "rate": 8, "no_leap": True}


def test_errors_name_keywords_and_keys():
    for asked, found in [
        (lambda: roofcast.limits(model="no-such-model", hardware="h100-sxm"), "no-such-model"),
        (lambda: roofcast.limits(model="llama-3.1-8b"), "`hardware` is missing"),
        (lambda: roofcast.limits(modle="llama-3.1-8b"), "unexpected argument 'modle'"),
        (lambda: roofcast.simulate(rate="fast"), '`rate` is "fast"'),
        (lambda: roofcast.simulate(max_num_seqs=0.5), '`max_num_seqs` is "0.5"'),
        (lambda: roofcast.simulate({"engine": {"max_num_seq": 4}}), "max_num_seq"),
        (lambda: roofcast.simulate("no-such.toml"), "no-such.toml"),
        (lambda: roofcast.simulate("[engine\n"), "spec:"),
        (lambda: roofcast.limits_sweep(model="llama-3.1-8b", hardware="h100-sxm", over={}), "over: no keys"),
    ]:
        with pytest.raises(roofcast.Error, match=found.replace("[", r"\[")) as caught:
            asked()
        assert isinstance(caught.value, ValueError)


def test_numbers_of_numpy_are_numbers():
    for thousand in (1000.0, numpy.float64(1000.0), numpy.int64(1000)):
        asked = {"model": "llama-3.1-8b", "hardware": "h100-sxm", "context": thousand, "set": {"engine.max_num_seqs": thousand}}
        assert roofcast.limits(**asked).context == 1000
        spec = {"model": {"name": "llama-3.1-8b"}, "hardware": {"accelerator": "h100-sxm"}, "engine": {"max_num_seqs": thousand}}
        assert roofcast.limits(spec, batch=thousand).batch == 1000
    swept = roofcast.limits_sweep(model="llama-3.1-8b", hardware="h100-sxm", over={"batch": numpy.array([1, 2])})
    assert [point.values for point in swept.points] == [[1], [2]]


def test_what_an_engines_command_leaves_out_is_a_warning():
    command = "vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs 128 --enable-log-requests"
    with pytest.warns(UserWarning, match="--from-command"):
        found = roofcast.limits(from_command=command, hardware="h100-sxm")
    assert found.parallelism.tp == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        roofcast.limits(model="llama-3.1-8b", hardware="h100-sxm")


def test_other_threads_run_meanwhile():
    ticks = []
    going = threading.Event()

    def tick():
        while not going.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.01)

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    roofcast.simulate(**LONG, progress=False, time_limit_s=0.5)
    ended = time.monotonic()
    going.set()
    thread.join()
    within = [t for t in ticks if began < t < ended]
    # If the lock were held, the other thread would tick only at the beginning and at the end.
    assert len(within) > 10


def test_a_time_limit_ends_a_run_and_says_so():
    began = time.monotonic()
    run = roofcast.simulate(**LONG, progress=False, time_limit_s=0.3)
    assert run.interrupted and 0 < run.completed < LONG["requests"]
    assert time.monotonic() - began < 10
    with pytest.raises(roofcast.Error, match="time_limit_s"):
        roofcast.simulate(time_limit_s=-1)


def test_progress_is_told_and_may_end_the_work():
    heard = []
    with pytest.raises(LookupError, match="enough"):
        def listen(done, total):
            heard.append((done, total))
            if len(heard) == 3:
                raise LookupError("enough")

        roofcast.simulate(**LONG, progress=listen)
    assert [total for _, total in heard] == [LONG["requests"]] * 3
    assert heard == sorted(heard)


def test_ctrl_c_ends_the_work():
    script = textwrap.dedent(
        f"""
        import roofcast, sys
        def listen(done, total):
            print("going", flush=True)
        try:
            roofcast.simulate(**{LONG!r}, progress=listen)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            # The interpreter goes on, and so does the package.
            print(roofcast.simulate(requests=10, rate=1).completed)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "going\n"
    os.kill(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert rest.splitlines()[-2:] == ["interrupted", "10"]


def test_plans_end_too():
    began = time.monotonic()
    found = roofcast.plan(requests=200_000, exhaustive=True, progress=False, time_limit_s=0.5)
    assert found.interrupted and found.at_least > 0
    assert time.monotonic() - began < 60


def test_several_threads_ask_at_once():
    found = {}

    def ask(rate):
        found[rate] = roofcast.simulate(requests=200, rate=rate, progress=False).json

    threads = [threading.Thread(target=ask, args=(rate,)) for rate in (2, 4, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {rate: roofcast.simulate(requests=200, rate=rate).json for rate in (2, 4, 6)}


def test_a_bar_has_what_is_done():
    bar = Display("requests")
    assert bar.line(50, 200).startswith("|" + "█" * 10 + " " * 30 + "| 50/200 requests")
    assert bar.line(7, 0).startswith("7 requests")


def test_nothing_is_shown_where_nobody_looks(capfd):
    roofcast.simulate(**LONG, time_limit_s=0.8)
    assert capfd.readouterr() == ("", "")


def test_an_import_is_quick():
    """The import takes less than 100 ms of processor time, in the best of five attempts, because other work may disturb one."""
    script = "import time; a = time.process_time(); import roofcast; print(time.process_time() - a)"
    took = [float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(5)]
    assert min(took) < 0.1, took
