#!/usr/bin/env bash
# Checks everything that needs a GPU, the most informative part first: probe of single operations, GPT-2 and ResNet-50
# against PyTorch, tests. Writes each result at once, so that an interrupted call keeps its results.
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

usage() {
  cat <<'END'
usage: scripts/gpu/check.sh [--only probe|bench|tests]... [--budget SECONDS] [--continue]
  --only      these parts (default: all)
  --budget    stop before this many seconds (default: 540); prints what was not reached
  --continue  continue what an earlier call did not finish, with its results in build/gpu
END
}

parts='' budget=540 continue=()
while (($#)); do
  case $1 in
    --only)
      [[ ${2:-} =~ ^(probe|bench|tests)$ ]] || { usage >&2; fail "--only takes probe, bench or tests, not '${2:-}'"; }
      parts+=" $2"
      shift
      ;;
    --budget) budget=${2:?--budget needs seconds}; shift ;;
    --continue) continue=(--continue) ;;
    -h | --help) usage; exit ;;
    *) usage >&2; fail "unknown option '$1'" ;;
  esac
  shift
done
asked=" ${parts:-probe bench tests} " parts=''
for name in probe bench tests; do  # in the order in which they run
  [[ $asked != *" $name "* ]] || parts+=" $name"
done

find_programs gputrain gpu_probe gpu_tests
incomplete=''
# part NAME SHARE COMMAND...: runs COMMAND with --budget, until SHARE percent of the budget are used.
part() {
  local name=$1 seconds=$((budget * $2 / 100 - SECONDS))
  shift 2
  [[ " $parts " == *" $name "* ]] || return 0
  if ((seconds < 10)); then
    say "no time for: $name"
    incomplete+=" $name"
    return 0
  fi
  say "" "== $name, ${SECONDS} s so far"
  "$@" --budget "$seconds" "${continue[@]}" || incomplete+=" $name"
}

# The last part gets the rest of the budget.
share() { if [[ $parts == *"$1" ]]; then echo 100; else echo "$2"; fi; }
part probe "$(share probe 25)" "$root/scripts/gpu/probe.sh"
part bench "$(share bench 80)" "$python" "$root/scripts/bench/compare.py" --binary "$programs/gputrain" --output "$out/compare.json"
part tests 100 "$python" "$root/scripts/gpu/run_tests.py" "$tests" "$out"
say "" "Results are in $out, after $SECONDS s."
[[ -z $incomplete ]] || fail "failed or not finished:$incomplete" "scripts/gpu/check.sh --continue goes on, and tries again what failed."
