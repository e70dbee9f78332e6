# Sourced by first.sh, probe.sh and compare.sh: finds or builds the programs for this machine's GPU. Sets
#   programs  folder with gputrain and gpu_probe
#   tests     folder in which run_tests.py finds tests
#   python    a Python that can import torch
#   out       build/gpu, the folder of the results; also copies them to $OUT at once, if it is set
# Without .deps/, uses .carry/, which pack.sh made on another machine, and installs or builds nothing.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

out=$root/build/gpu
archive=$root/.carry/packed.tar.xz packed=$root/build/packed
state=state.tar.gz

# find_programs TARGET...
find_programs() {
  local obstacle
  has_gpu || fail "this machine has no NVIDIA GPU" "nvidia-smi lists none."
  obstacle=$(gpu_obstacle)
  [[ -z $obstacle ]] || fail "the GPU of this machine cannot be used: $obstacle"
  if [[ -e $archive && ! -e $deps/pyvenv.cfg ]]; then use_packed; else build_programs "$@"; fi
  begin_results
}

use_packed() {
  python=$(command -v python3) || fail "no python3" "The packed programs run with the torch 2.11 that python3 finds."
  local version torch
  read -r version torch < <("$python" -c '
import importlib.metadata, importlib.util
print(importlib.metadata.version("torch"), importlib.util.find_spec("torch").submodule_search_locations[0])') ||
    fail "$python has no torch" "The packed programs run with the torch 2.11 that python3 finds."
  [[ $version == 2.11.* ]] || fail "torch 2.11 is needed, $python has $version"
  programs=$packed/bin tests=$packed
  unpack

  # Prefers this machine's own libraries, because its other programs expect them.
  local library known missing=$root/build/missing
  known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p || true)
  rm -rf "$missing"
  mkdir -p "$missing"
  for library in "$packed"/system/*; do
    [[ $known == *"	${library##*/} "* ]] || ln -s "$library" "$missing/"
  done
  # The driver may be reachable only through this variable.
  export LD_LIBRARY_PATH=$missing:$torch/lib:$(printf '%s:' "${torch%/*}"/nvidia/*/lib)${LD_LIBRARY_PATH:-}
  local absent
  absent=$({ find "$packed"/{bin,lib,tests} -type f -exec ldd {} + 2>/dev/null || true; } | awk '/not found/ {print $1}' | sort -u | xargs)
  [[ -z $absent ]] || fail "libraries are missing here: $absent" "pack.sh packs what is neither the system's nor torch's."

  # Tests look for gputrain and their files where they were built.
  [[ -e $root/build/cuda ]] || ln -sfn "$packed" "$root/build/cuda"
  local source_folder
  source_folder=$(<"$packed/source_folder")
  if [[ ! -e $source_folder ]]; then
    mkdir -p "${source_folder%/*}"
    ln -s "$root" "$source_folder"
  fi
  [[ -e $source_folder/build/cuda/bin/gputrain ]] || fail "$source_folder is in the way: the tests expect this checkout there"
}

unpack() {
  local sum
  sum=$(sha256sum <"$archive")
  [[ ! -e $packed/sum || $(<"$packed/sum") != "$sum" ]] || return 0
  rm -rf "$packed"
  mkdir -p "$packed"
  "$python" -W ignore -m tarfile -e "$archive" "$packed"
  printf '%s\n' "$sum" >"$packed/sum"
}

build_programs() {
  local target options=()
  for target in "$@"; do options+=(--target "$target"); done
  "$root/scripts/setup.sh" --cuda --tests ||
    fail "nothing was built" "For a machine that cannot reach the network, scripts/gpu/pack.sh builds on another one."
  "$root/scripts/build.sh" --cuda "${options[@]}"
  python=$deps/bin/python programs=$root/build/cuda/bin tests=$root/build/cuda
}

# Moves away results of other programs or another GPU, so that a later call only finds matching ones.
begin_results() {
  local identity
  identity=$({ cat "$programs"/* "$programs"/../lib/libgputrain.so; query_gpus name; } 2>/dev/null | sha256sum) || true
  [[ -e $out/identity || ! -e $out/$state ]] || tar -C "$out" -xzf "$out/$state" || true
  if [[ -e $out/identity && $(<"$out/identity") != "$identity" ]]; then
    say "Moved the results of other programs or another GPU from build/gpu to build/gpu.before."
    rm -rf "$out.before"
    mv "$out" "$out.before"
  fi
  mkdir -p "$out"
  printf '%s\n' "$identity" >"$out/identity"
  export GPUTRAIN_KERNEL_CHOICES=$out/kernel_choices.jsonl
  [[ -n ${OUT:-} ]] || return 0
  mkdir -p "$OUT"
  (while kill -0 $$; do sleep 3; copy_results; done) </dev/null >/dev/null 2>&1 &  # must not hold our pipes open
  copier=$!
  trap 'kill "$copier" 2>/dev/null || true; copy_results' EXIT
}

# What a later call needs besides the files that are read. One archive, because a remote machine returns only a few
# files.
pack_state() {
  local begun name packing=$out/$state.$BASHPID members=(identity)
  for name in tests.json cudnn_plans of_tests; do  # gputrain puts its plans next to its kernel choices
    [[ ! -e $out/$name ]] || members+=("$name")
  done
  [[ ! -e $out/$state || -n $(cd "$out" && find "${members[@]}" -type f -newer "$state" -print -quit) ]] || return 0
  begun=$(date +%s.%N)
  if tar -C "$out" -czf "$packing" "${members[@]}" 2>/dev/null; then
    touch -d "@$begun" "$packing"  # files written meanwhile stay newer
    mv "$packing" "$out/$state"
  else
    rm -f "$packing"
  fi
}

# Renames complete copies, so that a kill leaves no half of a file.
copy_results() {
  local file
  pack_state
  for file in "$out"/{first,compare}.json "$out"/*.jsonl "$out"/*.log "$out"/*.md "$out/$state"; do
    if [[ $file -nt $OUT/${file##*/} ]]; then
      cp -p "$file" "$OUT/copying" 2>/dev/null && mv "$OUT/copying" "$OUT/${file##*/}" || true
    fi
  done
}
