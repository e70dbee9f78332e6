#!/usr/bin/env bash
# Measures the single operations of training on a new kind of GPU. Adds a line per measurement to probe.log.
source "$(dirname "${BASH_SOURCE[0]}")/programs.sh"

usage() {
  cat <<'END'
usage: scripts/gpu/probe.sh [--budget SECONDS] [--continue] [SECTION...]
  --budget    stop after this many seconds (default: 540); prints what was not reached
  --continue  continue what an earlier call did not finish
  SECTION     what to measure (default: all); gpu_probe without arguments lists them
END
}

budget=540 continues=false sections=()
while (($#)); do
  case $1 in
    --budget) budget=${2:?--budget needs seconds}; shift ;;
    --continue) continues=true ;;
    -h | --help) usage; exit ;;
    -*) usage >&2; fail "unknown option '$1'" ;;
    *) sections+=("$1") ;;
  esac
  shift
done

find_programs gputrain gpu_probe
log=$out/probe.log
if $continues; then
  [[ ! -e $log ]] || sed -i '/^sections .*"error"/d' "$log"  # tries failed sections again
else
  rm -f "$log"
fi
touch "$log"
((${#sections[@]})) || read -r -a sections < <("$programs/gpu_probe") || fail "$programs/gpu_probe does not start"

# left: prints the sections whose end is not in the log
left() {
  local section
  for section in "${sections[@]}"; do
    grep -q "^sections {\"name\": \"$section\"" "$log" || echo "$section"
  done
}

# If a section breaks the GPU or its process, the remaining sections continue in a new process.
mapfile -t remaining < <(left)
while ((${#remaining[@]} > 0 && SECONDS + 5 < budget)); do
  status=0
  timeout --kill-after=5 $((budget - SECONDS)) "$programs/gpu_probe" "${remaining[@]}" >>"$log" 2>&1 || status=$?
  if ((status == 6)); then tail -n 1 "$log" >&2; exit 6; fi
  mapfile -t now < <(left)
  if (((status == 124 || status == 137) && SECONDS + 5 >= budget)); then  # time is up: no failure
    remaining=("${now[@]}")
    break
  fi
  if ((${#now[@]} == ${#remaining[@]})); then
    printf 'sections {"name": "%s", "error": "ended with %d"}\n' "${now[0]}" "$status" >>"$log"
    mapfile -t now < <(left)
  fi
  remaining=("${now[@]}")
done

# A process reads the allocator's settings only once.
if [[ " ${sections[*]} " == *" memory "* ]] && ! grep -q expandable "$log" && ((SECONDS + 20 < budget)); then
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True timeout --kill-after=5 60 "$programs/gpu_probe" memory 2>&1 |
    grep expandable >>"$log" || true
fi

grep '"error"' "$log" | cut -c1-200 || true
say "probe: $(grep -c '^[a-z]* {' "$log") measurements in $log, $(grep -c '"error"' "$log" || true) failed${remaining[*]:+, no time for: ${remaining[*]}}"
((${#remaining[@]} == 0)) || exit 75  # time was short
