#!/usr/bin/env bash
# The first thing to run on a new kind of GPU: measures what it does with the operations training is made of, and
# PyTorch's rates. Writes probe.json and pytorch.json into $OUT, or build/gpu.
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

usage() {
  cat <<'END'
usage: scripts/gpu/probe.sh [--only probe|pytorch] [--budget SECONDS] [SECTION...]
  --only     the C++ measurements, or PyTorch's rates (eager and compiled: GPT-2, ResNet-50, BERT); default: both
  --budget   no new PyTorch run is started that would pass this (default: 540)
  SECTION    of the C++ measurements; gpu_probe without arguments lists them
END
}

only='' budget=540 sections=()
while (($#)); do
  case $1 in
    --only) only=${2:?--only needs a name}; shift ;;
    --budget) budget=${2:?--budget needs seconds}; shift ;;
    -h | --help) usage; exit ;;
    -*) usage >&2; fail "unknown option '$1'" ;;
    *) sections+=("$1") ;;
  esac
  shift
done
[[ $only =~ ^(probe|pytorch)?$ ]] || { usage >&2; fail "--only takes probe or pytorch, not '$only'"; }

if [[ -x $packed/bin/gpu_probe ]]; then use_packed; else build_programs gpu_probe; fi

status=0
if [[ $only != pytorch ]]; then
  timeout "$budget" "$programs/gpu_probe" "$out/probe.json" "${sections[@]}" >"$out/probe.log" 2>&1 || status=1
  grep -c '' "$out/probe.log" | sed 's/$/ measurements in probe.log/'
  grep '"error"' "$out/probe.log" | cut -c1-200 || say "none failed"
  # The allocator's settings are read once per process.
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True timeout 60 "$programs/gpu_probe" "$out/probe_expandable.json" memory \
    >"$out/probe_expandable.log" 2>&1 || status=1
fi
if [[ $only != probe ]] && ((SECONDS < budget)); then
  "$python" "$root/scripts/bench/compare.py" --output "$out/pytorch.json" --rounds 1 \
    --only gpt2 resnet50-bf16 resnet50-fp16 bert-30522 bert-30528 --budget $((budget - SECONDS)) || status=1
fi
say "Results are in $out, after $SECONDS s."
exit "$status"
