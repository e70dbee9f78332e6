#!/usr/bin/env bash
# Builds gputrain into build/<preset>/bin. Run scripts/setup.sh once before.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: scripts/build.sh [--cpu | --cuda] [--preset NAME] [--target NAME]...
  --cpu, --cuda  the release build for CPUs, or for CPUs and NVIDIA GPUs
                 without either: --cuda where there is an nvcc or a GPU, else --cpu
  --preset       another preset of CMakePresets.json: debug, dev, asan, tsan, fuzz
  --target       build only this (default: everything, tests included)
END
}

preset='' targets=()
while (($#)); do
  case $1 in
    --cpu) preset=release ;;
    --cuda) preset=cuda ;;
    --preset) preset=${2:?--preset needs a name}; shift ;;
    --target) targets+=(--target "${2:?--target needs a name}"); shift ;;
    -h | --help) usage; exit ;;
    *) usage >&2; fail "unknown option '$1'" ;;
  esac
  shift
done
if [[ -z $preset ]]; then
  preset=$(default_device)
  [[ $preset == cuda ]] || preset=release
fi
[[ -x $deps/bin/python ]] || fail "nothing is set up yet" "Run scripts/setup.sh first."

build=$root/build/$preset
if [[ ! -e $build/build.ninja || $root/CMakePresets.json -nt $build/build.ninja ]]; then
  if [[ $preset == cuda ]]; then
    CUDACXX=$(find_nvcc) || fail "no CUDA 13 compiler" "scripts/setup.sh --cuda installs one; --cpu builds without."
    export CUDACXX
  fi
  (cd "$root" && step "configure, preset $preset" cmake --preset "$preset") ||
    fail "the build could not be configured" "If something is not found, run scripts/setup.sh again."
fi
jobs=$(job_count)
started=$SECONDS
say "  build, preset $preset, $jobs at a time"
cmake --build "$build" --parallel "$jobs" "${targets[@]}" ||
  fail "the build failed" "See the compiler's message above. If it was killed without a message, memory ran out: close other programs."
say "Built in $((SECONDS - started)) s: $(find "${build#"$PWD"/}/bin" -name gputrain 2>/dev/null || true)"
