# Sourced by probe.sh and check.sh: finds or builds the programs to run on this machine's GPU. Sets
#   programs  folder with gputrain and gpu_probe
#   python    a Python that can import torch
#   out       where results go: $OUT, or build/gpu
# A folder .carry/ made by pack.sh on another machine is preferred: then nothing is installed or built here.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

out=${OUT:-$root/build/gpu}
mkdir -p "$out"
packed=$root/.carry

use_packed() {
  python=$(command -v python3)
  local torch
  torch=$("$python" -c 'import torch; print(torch.__path__[0])') ||
    fail "python3 cannot import torch" "The packed programs run with the torch 2.11 that python3 finds."
  [[ $("$python" -c 'import torch; print(torch.__version__)') == 2.11.* ]] || fail "torch 2.11 is needed, $python has another"
  programs=$packed/bin
  LD_LIBRARY_PATH=$packed/lib:$torch/lib:$(echo "$torch"/../nvidia/*/lib | tr ' ' ':')
  export LD_LIBRARY_PATH
  # Tests look for their files, and for .deps/bin/python, in the source folder they were compiled in.
  local source_folder
  source_folder=$(<"$packed/source_folder")
  if [[ ! -e $source_folder ]]; then
    mkdir -p "$(dirname "$source_folder")"
    ln -s "$root" "$source_folder"
  fi
  if [[ ! -e $deps ]]; then
    mkdir -p "$deps/bin"
    printf '#!/bin/sh\nexec %s "$@"\n' "$python" >"$deps/bin/python"
    chmod +x "$deps/bin/python"
  fi
}

# build_programs TARGET...
build_programs() {
  local target options=()
  for target in "$@"; do options+=(--target "$target"); done
  "$root/scripts/setup.sh" --cuda --tests
  "$root/scripts/build.sh" --cuda "${options[@]}"
  python=$deps/bin/python
  programs=$root/build/cuda/bin
}

has_gpu || fail "this machine has no NVIDIA GPU" "nvidia-smi lists none."
