#!/usr/bin/env bash
# Sets up, builds and runs the tests. The last lines give per preset: passed, failed, skipped, and why they were
# skipped.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: scripts/test.sh [--cpu | --cuda] [--all] [--only-listed]
  --cpu, --cuda  test the build for CPUs, or the one for NVIDIA GPUs (default: as scripts/build.sh)
  --all          also the slow tests, and everything again under AddressSanitizer and ThreadSanitizer
  --only-listed  build and test with a PATH of nothing but a bare Debian's programs and those of the packages in
                 scripts/packages*.txt, so that one which needs another program fails here too
END
}

device='' all=false only_listed=false
while (($#)); do
  case $1 in
    --cpu) device=cpu ;;
    --cuda) device=cuda ;;
    --all) all=true ;;
    --only-listed) only_listed=true ;;
    -h | --help) usage; exit ;;
    *) usage >&2; fail "unknown option '$1'" ;;
  esac
  shift
done

device=${device:-$(default_device)}
summary=() status=0 parallel=$((($(nproc) * 3 + 1) / 2))

# run_tests NAME PRESET FOLDER [COMMAND...]: runs ctest with COMMAND in front. One thread per test program, three programs
# at a time on two cores, because many of them wait more than they compute. FOLDER is below build/.
run_tests() {
  local name=$1 preset=$2 folder=$3 line
  (cd "$root" && OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "${@:4}" ctest --preset "$preset" --parallel "$parallel") || status=1
  line=$("$deps/bin/python" "$root/scripts/summarize_tests.py" "$name" "$root/build/$folder") || status=1
  summary+=("$line")
}

"$root/scripts/setup.sh" "--$device" --tests
if $only_listed; then
  command -v dpkg-query >/dev/null || fail "--only-listed needs dpkg, which knows what packages bring"
  step "PATH of listed packages alone, in build/listed/" \
    "$deps/bin/python" "$root/scripts/listed_programs.py" "$root/build/listed" "$root"/scripts/packages{,-tests}.txt
  export PATH=$root/build/listed
fi
preset=release
[[ $device == cpu ]] || preset=cuda
"$root/scripts/build.sh" --preset "$preset"
if $all; then export GPUTRAIN_COLD_STARTS=1; fi  # the other tests start copies of the program (tests/support/warm_start.hpp)
run_tests "$preset" "$preset" "$preset"
if $all; then
  run_tests slow "$preset-slow" "$preset"
  # Without ASLR, because kernels with 32 random address bits (Ubuntu 24.04) use addresses that GCC 13's sanitizers
  # need.
  orderly=()
  if setarch --addr-no-randomize true 2>/dev/null; then orderly=(setarch --addr-no-randomize); fi
  for sanitizer in asan tsan; do
    "$root/scripts/build.sh" --preset "$sanitizer"
    run_tests "$sanitizer" "$sanitizer" "$sanitizer" "${orderly[@]}"
  done
fi

printf '\n'
printf '%s\n' "${summary[@]}"
if ((status != 0)); then
  say "Tests FAILED after $SECONDS s. To look closer: build/<preset>/Testing/Temporary/LastTest.log"
else
  say "All tests passed, in $SECONDS s."
fi
exit "$status"
