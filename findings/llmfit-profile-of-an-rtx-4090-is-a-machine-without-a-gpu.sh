#!/usr/bin/env bash
# llmfit: scored against its own profile of an RTX 4090, a model runs on the processor: a profile has no key for the memory of a card.
#
# Guessed: `--profile nvidia-rtx-4090` scores models for a card of 24 GB in a PC of 64 GB, as the help says ("a whole hardware profile
#   instead of this machine").
# Happens (llmfit 1.1.17, on a machine without a GPU): the profile has the card's bandwidth and TFLOP/s and the PC's memory, and nothing of the 24 GB; a profile of
#   one's own with such a key is refused as unknown. The machine it stands for has no GPU: Llama 3.1 8B runs in mode CPU, and
#   sessions are counted in 57.6 GB of host memory: 52 of 8,192 tokens, where `--memory 24G --ram 64G` has 18 on the card. `plan` of the same
#   profile still has a row "gpu". The other two bundled profiles are machines of unified memory, for which this is right.
# Why it matters: the first thing that a buyer asks of such a tool is a machine that he does not have. State the card by --memory, which
#   a profile excludes, and read the line "Mode" before the speed.
# Takes ten seconds, 10 MB. No speeds are compared: llmfit measures the memory of the machine on which it runs.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT
python3 -m venv "$d/v"
"$d/v/bin/pip" install -q --disable-pip-version-check llmfit==1.1.17
"$d/v/bin/python" - "$d" <<'PY'
import importlib.metadata, json, pathlib, subprocess, sys
folder = pathlib.Path(sys.argv[1])
program, model = folder / "v/bin/llmfit", "meta-llama/Llama-3.1-8B-Instruct"
print("llmfit", importlib.metadata.version("llmfit"))
def answer(*arguments):
    run = subprocess.run([program, "--json", *arguments], text=True, capture_output=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
profile = answer("hardware", "show", "nvidia-rtx-4090")["profile"]
print("the profile has", ", ".join(profile["hardware"]))
own = folder / "own.json"
own.write_text(json.dumps({**profile, "name": "own", "hardware": {**profile["hardware"], "gpu_vram_gb": 24.0}}))
said = subprocess.run([program, "hardware", "validate", own], text=True, capture_output=True)
assert said.returncode == 1 and "unknown key(s): hardware.gpu_vram_gb" in said.stdout + said.stderr, said
seen = {}
for name, machine in (("profile", ["--profile", "nvidia-rtx-4090"]), ("memory", ["--memory", "24G", "--ram", "64G"])):
    system = answer(*machine, "system")["system"]
    sessions = answer(*machine, "concurrency", model, "--quant", "Q4_K_M", "--context", "8192")
    estimate = sessions["estimate"]
    seen[name] = (system["has_gpu"], sessions["run_mode"], round(estimate["pool_gb"], 1), estimate["ladder"][0]["max_sessions"])
    print(" ".join(machine), "-> GPU {}, mode {}, pool {} GB, {} sessions of 8,192 tokens".format(*seen[name]))
assert seen["profile"] == (False, seen["profile"][1], 57.6, 52) and "CPU" in seen["profile"][1].upper(), seen
assert seen["memory"] == (True, seen["memory"][1], 24.0, 18) and "GPU" in seen["memory"][1].upper(), seen
paths = {path["path"] for path in answer("--profile", "nvidia-rtx-4090", "plan", model, "--context", "8192")["run_paths"]}
assert "gpu" in paths, paths
print("as stated")
PY
