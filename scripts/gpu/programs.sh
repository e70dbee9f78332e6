# Sourced by probe.sh, check.sh and compare.sh: finds or builds the programs to run on this machine's GPU. Sets
#   programs  folder with gputrain and gpu_probe
#   tests     folder that run_tests.py finds tests in
#   python    a Python that can import torch
#   out       build/gpu, where results are; they are copied to $OUT as they come, where that is set
# Without .deps/, a folder .carry/ that pack.sh made on another machine serves: then nothing is installed or built here.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

out=$root/build/gpu
packed=$root/.carry
plans=$out/cudnn_plans  # of gputrain, beside its choices

# find_programs TARGET...
find_programs() {
  if [[ -e $packed/bin/gputrain && ! -e $deps/pyvenv.cfg ]]; then use_packed; else build_programs "$@"; fi
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
  chmod +x "$packed"/{bin,tests}/*  # copying may have lost that

  # What this machine has itself is taken from there: other programs of its expect that one.
  local library known missing=$root/build/missing
  known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p || true)
  rm -rf "$missing"
  mkdir -p "$missing"
  for library in "$packed"/system/*; do
    [[ $known == *"	${library##*/} "* ]] || ln -s "$library" "$missing/"
  done
  # The driver may be found by this variable alone.
  export LD_LIBRARY_PATH=$missing:$torch/lib:$(printf '%s:' "${torch%/*}"/nvidia/*/lib)${LD_LIBRARY_PATH:-}
  local absent
  absent=$({ ldd "$packed"/{bin,lib,tests}/* 2>/dev/null || true; } | awk '/not found/ {print $1}' | sort -u | xargs)
  [[ -z $absent ]] || fail "libraries are missing here: $absent" "pack.sh packs what is neither the system's nor torch's."

  # Tests look for gputrain, and for their files, where they were built.
  [[ -e $root/build/cuda ]] || ln -s "$packed" "$root/build/cuda"
  local source_folder
  source_folder=$(<"$packed/source_folder")
  if [[ ! -e $source_folder ]]; then
    mkdir -p "${source_folder%/*}"
    ln -s "$root" "$source_folder"
  fi
  [[ -e $source_folder/build/cuda/bin/gputrain ]] || fail "$source_folder is in the way: the tests expect this checkout there"
}

build_programs() {
  local target options=()
  for target in "$@"; do options+=(--target "$target"); done
  "$root/scripts/setup.sh" --cuda --tests ||
    fail "nothing was built" "For a machine that cannot reach the network, scripts/gpu/pack.sh builds on another one."
  "$root/scripts/build.sh" --cuda "${options[@]}"
  python=$deps/bin/python programs=$root/build/cuda/bin tests=$root/build/cuda
}

# Results of other programs, or of another kind of GPU, are set aside: what --continue finds is of these.
begin_results() {
  local identity
  identity=$({ cat "$programs"/* "$programs"/../lib/libgputrain.so; nvidia-smi --query-gpu=name --format=csv,noheader; } 2>/dev/null | sha256sum) || true
  if [[ -e $out/identity && $(<"$out/identity") != "$identity" ]]; then
    say "The results in build/gpu are of other programs or another GPU: they are in build/gpu.before now."
    rm -rf "$out.before"
    mv "$out" "$out.before"
  fi
  mkdir -p "$out"
  printf '%s\n' "$identity" >"$out/identity"
  export GPUTRAIN_KERNEL_CHOICES=$out/kernel_choices.jsonl
  [[ -e $plans || ! -e $plans.tar.gz ]] || tar -C "$out" -xzf "$plans.tar.gz" || true
  [[ -n ${OUT:-} ]] || return 0
  mkdir -p "$OUT"
  (while kill -0 $$; do sleep 3; copy_results; done) </dev/null >/dev/null 2>&1 &  # in no pipe of ours
  copier=$!
  trap 'kill "$copier" 2>/dev/null || true; copy_results' EXIT
}

# One file in place of hundreds, of which few come back from a machine that is lent.
pack_plans() {
  local newer=() begun packing=$plans.$BASHPID
  [[ ! -e $plans.tar.gz ]] || newer=(-newer "$plans.tar.gz")
  [[ -e $plans && -n $(find "$plans" -type f "${newer[@]}" -print -quit) ]] || return 0
  begun=$(date +%s.%N)
  if tar -C "$out" -czf "$packing" "${plans##*/}" 2>/dev/null; then
    touch -d "@$begun" "$packing"  # what has come meanwhile is newer
    mv "$packing" "$plans.tar.gz"
  else
    rm -f "$packing"
  fi
}

# Not by a rename: a call that is killed leaves in $OUT what was copied last.
copy_results() {
  local file
  pack_plans
  for file in "$out"/*.json "$out"/*.jsonl "$out"/*.log "$plans.tar.gz"; do
    [[ ! -e $file ]] || cp -u "$file" "$OUT/" 2>/dev/null || true
  done
}

has_gpu || fail "this machine has no NVIDIA GPU" "nvidia-smi lists none."
