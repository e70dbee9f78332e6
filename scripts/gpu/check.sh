#!/usr/bin/env bash
# What must hold on a GPU: the tests pass, and training is at least as fast as PyTorch. Writes tests.json and bench.json
# into $OUT, or build/gpu; ends with a summary and fails if a test fails.
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

usage() {
  cat <<'END'
usage: scripts/gpu/check.sh [--only tests|bench] [--budget SECONDS] [--compile]
  --only      one of the two
  --budget    stop before this many seconds (default: 540); what was not reached is named
  --compile   compare with torch.compile too
END
}

only='' budget=540 contenders=(--contenders eager gputrain)
while (($#)); do
  case $1 in
    --only) only=${2:?--only needs a name}; shift ;;
    --budget) budget=${2:?--budget needs seconds}; shift ;;
    --compile) contenders=() ;;
    -h | --help) usage; exit ;;
    *) usage >&2; fail "unknown option '$1'" ;;
  esac
  shift
done
[[ $only =~ ^(tests|bench)?$ ]] || { usage >&2; fail "--only takes tests or bench, not '$only'"; }

if [[ -x $packed/bin/gputrain ]]; then use_packed; else build_programs all; fi

status=0
if [[ $only != bench ]]; then
  if [[ $programs == "$packed/bin" ]]; then tests=$packed; else tests=$root/build/cuda; fi
  "$python" "$root/scripts/gpu/run_tests.py" "$tests" "$out" --budget $((budget - SECONDS)) || status=1
fi
if [[ $only != tests ]] && ((SECONDS < budget)); then
  "$root/scripts/bench/compare.sh" --output "$out/bench.json" "${contenders[@]}" --budget $((budget - SECONDS)) || status=1
fi
say "Results are in $out, after $SECONDS s."
exit "$status"
