#!/usr/bin/env bash
# From a fresh clone to a trained model: sets up, builds, and trains a small character GPT on this repository's own
# sources. Passes --cpu or --cuda to scripts/setup.sh and scripts/build.sh.
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
