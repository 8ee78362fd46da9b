#!/bin/sh
# Draws docs/curves/*.svg from a measurements CSV: sh scripts/curves.sh FILE.csv
# ROOFCAST is the path of the program; without it, the program is built first.
set -eu
rows=${1:?the measurements CSV}
cd "$(dirname "$0")/.."
roofcast=${ROOFCAST:-}
if [ -z "$roofcast" ]; then
    cargo build --release --locked -p roofcast-cli --features full
    roofcast=${CARGO_TARGET_DIR:-target}/release/roofcast
fi

draw() {
    "$roofcast" validate "$rows" --group "$2" --curves "docs/curves/$1.svg" >/dev/null
    echo "docs/curves/$1.svg"
}

draw rtx-4090-prefill "noooop_4090_prefill 7b"
draw rtx-4090-decode "noooop_4090_vllm_decode 14b"
draw rtx-4090-decode-small "noooop_4090_vllm_decode 0.5b"
draw fastertransformer-gpt-175b "fastertransformer_docs 175b"
draw llama-cpp-m2-ultra "llamacpp_benches coder static_batch_phases"
draw splitwise-h100 "splitwise_profile 70b h100"

sweep() {
    name=$1
    shift
    "$roofcast" limits "$@" --svg "docs/curves/$name.svg" >/dev/null
    echo "docs/curves/$name.svg"
}

sweep attention-batch --model llama-3.1-8b --hardware a100-sxm-80gb --context 8192 --compare attention --sweep batch=1..64:x2
sweep attention-context --model llama-3.1-8b --hardware a100-sxm-80gb --compare attention --sweep context=1024..65536:x2
sweep output-position --model Qwen/Qwen1.5-14B-Chat --hardware rtx-4090 --weights gptq-int4 --served=false --batch 8 --prefill 1 --sweep position=31,63,127,255,383,511,639,767,895,999 --measured "$rows"
