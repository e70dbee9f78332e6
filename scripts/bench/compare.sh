#!/usr/bin/env bash
# Compares gputrain with PyTorch, eager and compiled: GPT-2 124M and ResNet-50 on a GPU. Without a GPU, runs tiny models
# on the CPU, which only tests the comparison itself. Sets up and builds first. Takes the options of compare.py: --only
# NAME..., --contenders NAME..., --steps N, --rounds N, --output FILE, --continue.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

if has_gpu; then
  source "$root/scripts/gpu/programs.sh"
  find_programs gputrain
  only=()
else
  "$root/scripts/setup.sh" --cpu --tests
  "$root/scripts/build.sh" --cpu --target gputrain
  python=$deps/bin/python programs=$root/build/release/bin out=$root/build/bench
  only=(--only tiny-gpt-fp32 tiny-gpt-bf16 tiny-resnet18-fp32)
fi
"$python" "$root/scripts/bench/compare.py" --binary "$programs/gputrain" --output "$out/compare.json" "${only[@]}" "$@"
