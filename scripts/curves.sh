#!/bin/sh
# Draws docs/curves/*.svg from a measurements CSV: sh scripts/curves.sh FILE.csv
# ROOFCAST names the program where it is not to be built first.
set -eu
rows=${1:?the measurements CSV}
cd "$(dirname "$0")/.."
roofcast=${ROOFCAST:-}
if [ -z "$roofcast" ]; then
    cargo build --release --locked -p roofcast-cli
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
