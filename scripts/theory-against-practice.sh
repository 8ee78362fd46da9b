#!/usr/bin/env bash
# Compares forecasts with measurements on this machine: measures the machine, serves a model with llama.cpp on its CPU, benchmarks
# the server, calibrates on half of the points and prints the errors of the forecasts for the other half.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  cat >&2 <<'TEXT'
usage: theory-against-practice.sh FOLDER [NAME]
NAME is a model of llama-cpp.sh [0.5b-q8_0]. Everything is written under FOLDER.
From the environment: ROOFCAST, the binary [built from this checkout]; REPEATS of every point [3];
THREADS of the server [1]; PORT [8080]
Exit code 1: decode is off by more than 15 %, or prefill by more than 20 %, in the median of the other half.
TEXT
  exit 2
fi

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
name=${2:-0.5b-q8_0}
repeats=${REPEATS:-3}
export THREADS=${THREADS:-1} PORT=${PORT:-8080}
url="http://127.0.0.1:$PORT"

case $name in
  0.5b-*) model=Qwen/Qwen2.5-0.5B weights=${name#0.5b-} ;;
  gemma-3-270m) model=google/gemma-3-270m-it weights=q4_k_m ;;
  *) echo "no model $name; accepted: those of llama-cpp.sh" >&2; exit 2 ;;
esac

roofcast=${ROOFCAST:-$folder/bin/roofcast}
if [ ! -x "$roofcast" ]; then
  cargo install --quiet --locked --path "$scripts/../crates/roofcast-cli" --features full --root "$folder" --target-dir "$folder/target"
fi

run="$folder/$name"
rm -rf "$run"
mkdir -p "$run"
machine="$run/my-machine.toml"
printf '[engine]\nname = "llama.cpp"\nversion = "b11434"\n' > "$run/engine.toml"

echo "== the machine"
"$roofcast" hardware measure --threads "$THREADS" --output "$machine"

echo "== what its limits allow"
"$roofcast" limits --model "$model" --hardware "$machine" --weights "$weights" --batch 1 --context 256 | sed -n '1,11p'

echo "== the server"
"$scripts/llama-cpp.sh" "$folder" install > "$run/server.log" 2>&1
"$scripts/llama-cpp.sh" "$folder" model "$name" >> "$run/server.log" 2>&1
"$scripts/llama-cpp.sh" "$folder" serve "$name" >> "$run/server.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
for _ in $(seq 120); do
  ! curl -sf "$url/health" > /dev/null || break
  kill -0 "$server" 2>/dev/null || { echo "the server ended: see $run/server.log" >&2; exit 1; }
  sleep 1
done

engine=$(pgrep -P "$server" -x llama-server)

# Measures one point: `bench FILE OPTION…`. An invalid run (exit code 3) writes no row. Linux's counts of the time in which the
# server's thread ran, and waited for a processor, are written next to the result.
bench() {
  local file="$run/$1" before
  before=$(< "/proc/$engine/schedstat")
  "$roofcast" bench "$run/engine.toml" --url "$url" --model "$model" --served-model "$name" --hardware "$machine" \
    --weights "$weights" --max-lag 50 --measurements "$file.csv" --json "${@:2}" > "$file.json" || [ $? -eq 3 ]
  echo "$1 $before $(< "/proc/$engine/schedstat")" >> "$run/waits.txt"
}

for ((round = 1; round <= repeats; round++)); do
  echo "== round $round of $repeats"
  for length in 64 128 192 256 384 512; do
    bench "prefill-1x$length-$round" --concurrency 1 --requests 2 --input-len "$length" --output-len 1
  done
  for users in 1 2 4 8; do
    for length in 16 64 128; do
      bench "decode-${users}x$length-$round" --concurrency "$users" --requests $((2 * users)) \
        --input-len "$length" --output-len 32
    done
  done
done

python3 "$scripts/halves.py" "$run"
echo "== calibrated on half of the points"
"$roofcast" calibrate "$run/fit.csv" --catalog "$machine" --out "$run/calibration.toml" > "$run/calibrate.txt"
sed -n '/fitted to every group/,/^every group/p' "$run/calibrate.txt" | sed '$d'
for half in decode prefill; do
  echo "== the other half: $half"
  "$roofcast" validate "$run/check-$half.csv" --catalog "$machine" --calibration "$run/calibration.toml" \
    --per-row "$run/$half-rows.csv"
done
python3 "$scripts/halves.py" "$run" verdict
