#!/usr/bin/env python3
"""Measures, on one NVIDIA GPU, figures of a machine that datasheets lack; prints a JSON object a part.

* `watts`: mean board power of idling, reading memory and computing, from NVML's energy counter.
* `sustained`: TFLOP/s of GEMMs of a layer of Llama-3.1-8B, in prompts alone and alternating with decodes, on random
  numbers: a second after the start, the clock has fallen to what the board power allows.
* `layer`: microseconds that small kernels and gaps add to a layer's GEMMs and attention in a captured graph.
* `link`: bytes per second of copies between pinned host memory and the device.

Needs PyTorch with CUDA and nvidia-ml-py; about one minute. Changes no setting of the GPU.
"""

import json
import statistics
import time

import pynvml
import torch
import torch.nn.functional as F

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 4096, 14336, 32, 32, 8, 128
QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM
GPU = torch.device("cuda")
pynvml.nvmlInit()
BOARD = pynvml.nvmlDeviceGetHandleByIndex(0)


def normal(*shape):
    return torch.randn(*shape, device=GPU, dtype=torch.bfloat16)


def captured(work):
    """A CUDA graph of `work`."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.work = work  # Keeps the tensors that the graph reads.
    return graph


def milliseconds(work):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def median_us(graph, tries=9):
    graph.replay()
    return round(statistics.median(milliseconds(graph.replay) for _ in range(tries)) * 1e3, 1)


def joules():
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(BOARD) / 1e3


def repeated(work, seconds):
    """Repeats `work` for at least `seconds`; returns the number of repetitions and the seconds."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(4):
            work()
        torch.cuda.synchronize()
        count += 4
    return count, time.perf_counter() - start


def drawn(work, seconds=1.0):
    """Mean watts and microseconds of `work`, repeated."""
    repeated(work, 0.5)
    before = joules()
    count, took = repeated(work, seconds)
    return {"watts": round((joules() - before) / took), "us": round(took / count * 1e6, 1)}


def watts():
    time.sleep(1.5)
    before = joules()
    time.sleep(2)
    rows = {"idle": {"watts": round((joules() - before) / 2)}}
    one = torch.zeros(1, device=GPU)
    rows["launches alone"] = drawn(captured(lambda: [one.add_(1) for _ in range(2000)]).replay)
    weights = [normal(HIDDEN, 2 * INNER) for _ in range(16)]
    for m in (1, 16, 64, 256, 1024, 4096):
        x = normal(m, HIDDEN)
        rows[f"GEMM of {m} rows"] = drawn(captured(lambda x=x: [x @ w for w in weights]).replay)
    q, k, v = normal(64, HEADS, 1, HEAD_DIM), normal(64, KV_HEADS, 4096, HEAD_DIM), normal(64, KV_HEADS, 4096, HEAD_DIM)
    rows["attention, decode"] = drawn(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
    return rows


def layers():
    return [(normal(HIDDEN, QKV), normal(HIDDEN, HIDDEN), normal(HIDDEN, 2 * INNER), normal(INNER, HIDDEN)) for _ in range(LAYERS)]


def gemms(weights, m):
    x, y = normal(m, HIDDEN), normal(m, INNER)
    return captured(lambda: [(x @ a, x @ b, x @ c, y @ d) for a, b, c, d in weights])


def sustained():
    """TFLOP/s of the GEMMs of prompts: alone from rest, and between `count` decodes of `batch` sequences."""
    weights, rows = layers(), {}
    decodes = {64: gemms(weights, 64), 256: gemms(weights, 256)}
    for tokens in (512, 2048, 8192):
        prompt = gemms(weights, tokens)
        flop = 2.0 * tokens * LAYERS * (HIDDEN * QKV + HIDDEN**2 + 3 * HIDDEN * INNER)
        time.sleep(1.5)
        rows[f"{tokens} tokens from rest"] = round(flop / milliseconds(prompt.replay) / 1e9)
        for batch, count in ((64, 0), (64, 1), (64, 4), (64, 16), (256, 1), (256, 4), (256, 16)):
            times, end = [], time.perf_counter() + 0.8
            while time.perf_counter() < end:
                times.append(milliseconds(prompt.replay))
                for _ in range(count):
                    decodes[batch].replay()
            late = times[len(times) // 3 :]
            rows[f"{tokens} tokens, {count} decodes of {batch}"] = round(flop / statistics.mean(late) / 1e9)
    rows["median of mixes"] = round(statistics.median(v for k, v in rows.items() if "rest" not in k))
    return rows


def layer():
    """Decode steps of 512 tokens of context in one graph; Inductor fuses the small kernels as engines' kernels do."""

    def add_norm(x, residual, weight):
        residual = x + residual
        wide = residual.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (wide * scale).to(torch.bfloat16) * weight, residual

    def activation(both):
        gate, up = both.chunk(2, -1)
        return F.silu(gate) * up

    def rotation(qkv, cos, sin):
        heads = qkv[:, : (HEADS + KV_HEADS) * HEAD_DIM].view(-1, HEADS + KV_HEADS, HEAD_DIM)
        a, b = heads.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    add_norm, activation, rotation = (torch.compile(f, dynamic=False) for f in (add_norm, activation, rotation))
    weights, scale, rows = layers(), torch.ones(HIDDEN, device=GPU, dtype=torch.bfloat16), {}
    for batch in (1, 16, 64):
        x0, cos, sin = normal(batch, HIDDEN), normal(batch, 1, 64), normal(batch, 1, 64)
        keys = [normal(batch, KV_HEADS, 512, HEAD_DIM) for _ in range(2 * LAYERS)]
        cache, slots = normal(2 * batch, 2 * KV_HEADS * HEAD_DIM), torch.arange(batch, device=GPU)
        query, inner = normal(batch, HEADS, 1, HEAD_DIM), normal(batch, INNER)

        def attend(q, i):
            return F.scaled_dot_product_attention(q, keys[2 * i], keys[2 * i + 1], enable_gqa=True)

        def whole():
            x, residual = x0, x0
            for i, (qkv, out, up, down) in enumerate(weights):
                y, residual = add_norm(x, residual, scale)
                projected = y @ qkv
                rotated = rotation(projected, cos, sin)
                cache.index_copy_(0, slots, projected[:, HEADS * HEAD_DIM :])
                attended = attend(rotated[:, :HEADS].unsqueeze(2), i).reshape(batch, HIDDEN)
                y, residual = add_norm(attended @ out, residual, scale)
                x = activation(y @ up) @ down
            return x

        products = captured(lambda: [(x0 @ a, x0 @ b, x0 @ c, inner @ d) for a, b, c, d in weights])
        attention = captured(lambda: [attend(query, i) for i in range(LAYERS)])
        step, alone, attended = median_us(captured(whole)), median_us(products), median_us(attention)
        added = round((step - alone - attended) / LAYERS, 1)
        rows[f"{batch} sequences"] = {"step us": step, "GEMMs us": alone, "attention us": attended, "added a layer us": added}
    return rows


def link():
    size = 1 << 28
    host = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    device = [torch.empty(size, dtype=torch.uint8, device=GPU) for _ in range(2)]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def load():
        with torch.cuda.stream(streams[0]):
            device[0].copy_(host[0], non_blocking=True)

    def store():
        with torch.cuda.stream(streams[1]):
            host[1].copy_(device[1], non_blocking=True)

    def rate(*copies):
        count, took = repeated(lambda: [copy() for copy in copies], 0.5)
        return round(size * count / took / 1e9, 1)

    return {"load GB/s": rate(load), "store GB/s": rate(store), "both at once, each GB/s": rate(load, store)}


print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
for part in (link, watts, sustained, layer):
    print(json.dumps({part.__name__: part()}), flush=True)
