#!/usr/bin/env bash
# Trains recipes of configs/ with several seeds and compares the mean of the final metric with the expected range.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: scripts/recipes.sh [--seeds N] [--data DIR] [RECIPE...]
  RECIPE   mnist_cnn, shakespeare_char_small, cifar10_tiny (default: the first two; the third takes half an hour)
  --seeds  seeds 1 to N each (default 3)
  --data   the folder with mnist/, tinyshakespeare.txt, cifar10-jpg.tar (default: $GPUTRAIN_TEST_DATA)
Uses build/release (scripts/build.sh makes it). Exit code 4 when a mean misses its band.
END
}

declare -A data_of=([mnist_cnn]=mnist [shakespeare_char_small]=tinyshakespeare.txt [cifar10_tiny]=cifar10-jpg.tar)
declare -A metric_of=([mnist_cnn]=val/top1 [shakespeare_char_small]=val/loss [cifar10_tiny]=val/top1)

seeds=3 data=${GPUTRAIN_TEST_DATA:-} recipes=()
while (($#)); do
  case $1 in
    --seeds) seeds=${2:?--seeds needs a number}; shift ;;
    --data) data=${2:?--data needs a folder}; shift ;;
    -h | --help) usage; exit ;;
    *) [[ -n ${data_of[$1]:-} ]] || fail "unknown recipe '$1'"; recipes+=("$1") ;;
  esac
  shift
done
((${#recipes[@]})) || recipes=(mnist_cnn shakespeare_char_small)
[[ -d $data ]] || fail "no data folder" "--data DIR, or GPUTRAIN_TEST_DATA"
program=$root/build/release/bin/gputrain
[[ -x $program ]] || fail "no $program" "scripts/build.sh --cpu"

runs=$(mktemp -d "${TMPDIR:-/tmp}/gputrain-recipes.XXXXXX")
trap 'rm -rf "$runs"' EXIT
status=0
for recipe in "${recipes[@]}"; do
  for ((seed = 1; seed <= seeds; ++seed)); do
    DATA=$data/${data_of[$recipe]} "$program" run "$root/configs/$recipe.yaml" --set "seed=$seed" \
      --output-dir "$runs/$recipe-$seed" >"$runs/$recipe-$seed.log" || { cat "$runs/$recipe-$seed.log"; exit 1; }
  done
  python3 - "$recipe" "${metric_of[$recipe]}" "$root/configs/$recipe.yaml" "$runs/$recipe"-*/summary.json <<'END' || status=4
import json, re, sys
recipe, metric, config, *summaries = sys.argv[1:]
runs = [json.load(open(path)) for path in summaries]
values = [run["metrics"][metric] for run in runs]
low, high = map(float, re.search(re.escape(metric) + r": \[([^,]+), ([^\]]+)\]", open(config).read()).groups())
mean = sum(values) / len(values)
met = low <= mean <= high
print(f"{recipe}: {metric} mean {mean:.4f} of {len(values)} seeds ({min(values):.4f} to {max(values):.4f}), "
      f"expected {low:g} to {high:g}: {'met' if met else 'MISSED'}; {sum(run['wall_seconds'] for run in runs) / len(runs):.0f} s each")
sys.exit(0 if met else 4)
END
done
exit "$status"
