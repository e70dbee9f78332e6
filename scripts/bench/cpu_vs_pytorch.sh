#!/usr/bin/env bash
# Compares speed, startup time and memory with PyTorch on this machine's CPU. Sets up and builds first; takes about ten
# minutes on two cores. Takes the options of cpu_vs_pytorch.py: --pairs N, --only gpt|resnet, --compile.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

"$root/scripts/setup.sh" --cpu --tests
"$root/scripts/build.sh" --cpu --target gputrain
exec "$deps/bin/python" "$root/scripts/bench/cpu_vs_pytorch.py" --binary "$root/build/release/bin/gputrain" \
  --output "$root/build/bench/cpu_vs_pytorch.json" "$@"
