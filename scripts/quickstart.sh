#!/usr/bin/env bash
# From a fresh clone to a model that learns: sets up, builds, and trains a small character GPT on this repository's own
# sources. Options are handed to scripts/setup.sh and scripts/build.sh: --cpu or --cuda.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

case ${1:-} in
  '' | --cpu | --cuda) ;;
  *) fail "usage: scripts/quickstart.sh [--cpu | --cuda]" ;;
esac
option=${1:---$(default_device)}
"$root/scripts/setup.sh" "$option"
"$root/scripts/build.sh" "$option" --target gputrain
preset=release
[[ $option == --cpu ]] || preset=cuda
cd "$root"
say "" "$ build/$preset/bin/gputrain run configs/quickstart.yaml"
"build/$preset/bin/gputrain" run configs/quickstart.yaml
