#!/usr/bin/env bash
# What to run first on a GPU, and all that needs one: first runs, tests, GPT-2 and ResNet-50 against PyTorch, single
# operations; the most telling first. It may be cut off at any moment: the same command goes on where it ended.
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

stage_names() { python3 "$root/scripts/gpu/first.py" --list; }

usage() {
  cat <<END
usage: scripts/gpu/first.sh [--budget SECONDS] [STAGE...]
  STAGE     only these, of: $(stage_names | fold -s -w 90 | sed '2,$s/^/            /')
  --budget  end after so many seconds (default: 540)
Results are in build/gpu: read first.md. A stage that has passed there is not run again; rm -r build/gpu begins anew.
END
}

budget=540 stages=()
while (($#)); do
  case $1 in
    --budget) budget=${2:?--budget needs seconds}; shift ;;
    -h | --help) usage; exit ;;
    *)
      [[ " $(stage_names) " == *" $1 "* ]] || { usage >&2; fail "there is no stage '$1'"; }
      stages+=("$1")
      ;;
  esac
  shift
done

find_programs gputrain gpu_probe gpu_tests
status=0
"$python" "$root/scripts/gpu/first.py" --programs "$programs" --tests "$tests" --out "$out" \
  --budget $((budget - SECONDS)) "${stages[@]}" || status=$?
say "" "$(<"$out/first.md")" "" "In $out, after $SECONDS s: first.md is the page above."
exit "$status"
