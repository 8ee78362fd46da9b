"""Real clients against `roofcast emulate`: the openai package, Prometheus' parser, a ZeroMQ subscriber with msgspec.

usage: clients.py URL [KV_EVENTS KV_REPLAY]; prints "agreed" and ends with 0 where all of them understood.
"""

import struct
import sys
import time
import urllib.request
from typing import Optional, Union

import msgspec
import openai
import zmq
from prometheus_client.parser import text_string_to_metric_families

URL = sys.argv[1]
WORDS = "the quick brown fox jumps over the lazy dog and runs home again before it is dark"


def check(held: bool, what: str) -> None:
    if not held:
        sys.exit(f"not so: {what}")


def ask() -> None:
    client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": WORDS}]
    whole = client.chat.completions.create(model=model, messages=messages, max_tokens=12, extra_body={"ignore_eos": True})
    check(whole.usage.completion_tokens == 12 and whole.choices[0].finish_reason == "length", "a whole chat")
    stream = client.chat.completions.create(
        model=model, messages=messages, max_tokens=12, stream=True, stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = list(stream)
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check(said == whole.choices[0].message.content, "the stream says what the whole answer says")
    check(chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices, "usage at the end")
    text = client.completions.create(model=model, prompt=WORDS, max_tokens=5, logprobs=2, n=2, echo=True)
    check(len(text.choices) == 2 and text.choices[0].text.startswith(WORDS), "completions, n and echo")
    logprobs = text.choices[0].logprobs
    check(len(logprobs.tokens) == text.usage.prompt_tokens + 5 and logprobs.token_logprobs[0] is None, "logprobs")
    for call, error in [
        (lambda: client.completions.create(model="nope", prompt="a"), openai.NotFoundError),
        (lambda: client.completions.create(model=model, prompt="a", max_tokens=-1), openai.BadRequestError),
        (lambda: client.completions.create(model=model, prompt=[5] * 5000), openai.BadRequestError),
    ]:
        try:
            call()
            check(False, f"{error} is raised")
        except error:
            pass


def respond() -> None:
    client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    whole = client.responses.create(model=model, input=WORDS, max_output_tokens=7, extra_body={"ignore_eos": True})
    check(whole.usage.output_tokens == 7 and len(whole.output_text) > 0, "a whole response")
    stream = client.responses.create(model=model, input=WORDS, max_output_tokens=7, stream=True, extra_body={"ignore_eos": True})
    events = list(stream)
    said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    check(said == whole.output_text, "the events say what the whole response says")
    check(events[0].type == "response.created" and events[-1].type == "response.completed", "events")
    with client.responses.stream(model=model, input=WORDS, max_output_tokens=7, extra_body={"ignore_eos": True}) as stream:
        check(stream.get_final_response().output_text == whole.output_text, "the final response")


def scrape() -> None:
    text = urllib.request.urlopen(URL + "/metrics").read().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    check(families["vllm:generation_tokens"].type == "counter", "a counter")
    check(families["vllm:time_to_first_token_seconds"].type == "histogram", "a histogram")
    samples = families["vllm:request_success"].samples
    ended = sum(s.value for s in samples if s.name == "vllm:request_success_total")
    check(ended == 4, f"four answers, counted {ended}")
    buckets = [s for s in families["vllm:time_to_first_token_seconds"].samples if s.name.endswith("_bucket")]
    counts = [s.value for s in buckets]
    check(counts == sorted(counts) and buckets[-1].labels["le"] == "+Inf" and counts[-1] == 4, "buckets that grow")


class BlockStored(msgspec.Struct, tag=True, kw_only=True):
    block_hashes: list[int]
    parent_block_hash: Optional[int]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]


class BlockRemoved(msgspec.Struct, tag=True, kw_only=True):
    block_hashes: list[int]
    medium: Optional[str]


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]
    data_parallel_rank: Optional[int] = None


def subscribe(published: str, replayed: str) -> None:
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.connect(published)
    subscriber.setsockopt_string(zmq.SUBSCRIBE, "kv@")
    subscriber.setsockopt(zmq.RCVTIMEO, 20_000)
    time.sleep(1.0)
    client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    client.completions.create(model=model, prompt=list(range(1000, 1040)), max_tokens=1)
    topic, sequence, payload = subscriber.recv_multipart()
    batch = msgspec.msgpack.decode(payload, type=Batch)
    stored = batch.events[0]
    check(topic == b"kv@test" and struct.unpack(">q", sequence)[0] >= 0, "topic and sequence")
    # 40 tokens fill two blocks of 16 and part of a third.
    check(isinstance(stored, BlockStored) and stored.token_ids == list(range(1000, 1032)), "the blocks' tokens")
    check(stored.block_size == 16 and len(stored.block_hashes) == 2 and stored.parent_block_hash is None, "two blocks")
    # A replay request has many answers, which a DEALER socket can receive; it must send the empty frame of a REQ socket itself.
    replay = context.socket(zmq.DEALER)
    replay.connect(replayed)
    replay.setsockopt(zmq.RCVTIMEO, 20_000)
    replay.send_multipart([b"", (0).to_bytes(8, "big")])
    numbers = []
    while True:
        _, number, kept = replay.recv_multipart()
        numbers.append(struct.unpack(">q", number)[0])
        if numbers[-1] == -1:
            break
        msgspec.msgpack.decode(kept, type=Batch)
    check(numbers == list(range(len(numbers) - 1)) + [-1] and len(numbers) > 1, f"a replay in order: {numbers}")


ask()
scrape()
respond()
if len(sys.argv) > 2:
    subscribe(sys.argv[2], sys.argv[3])
print("agreed")
