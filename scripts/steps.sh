# Sourced by the other scripts: paths, and steps that print one line each and write their output to a log.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
logs=$root/build/logs

say() { printf "%s\n" "$@"; }

# fail WHAT [WHAT_TO_DO...]: prints what is wrong and what to do, and exits.
fail() {
  printf '\nerror: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit 1
}

# step TEXT COMMAND...: runs the command with its output in a log and prints "TEXT  12 s". Returns the command's status;
# if it failed, first prints the end of the log.
step() {
  local text=$1 started=$SECONDS status=0 ticker=
  shift
  mkdir -p "$logs"
  step_log=$logs/$(printf '%s' "$text" | tr -cs 'a-zA-Z0-9' '-' | cut -c1-40).log
  printf '  %-66s' "$text"
  if [[ -t 1 ]]; then
    (while sleep 1; do printf '\r  %-66s%5d s' "$text" $((SECONDS - started)); done) &
    ticker=$!
  fi
  "$@" >"$step_log" 2>&1 </dev/null || status=$?
  if [[ -n $ticker ]]; then
    kill "$ticker" 2>/dev/null || true
    wait "$ticker" 2>/dev/null || true
    printf '\r  %-66s' "$text"
  fi
  if ((status == 0)); then
    printf '%5d s\n' $((SECONDS - started))
  else
    printf ' failed after %d s\n' $((SECONDS - started))
    { printf '\nThe end of %s:\n' "$step_log"; tail -n 25 "$step_log" | sed 's/^/  | /'; } >&2
  fi
  return "$status"
}

has_gpu() { [[ -e /dev/nvidia0 ]] || { command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; }; }

# Prints the path of a CUDA 13 nvcc (LibTorch's headers need 13): the system's, otherwise the one in .deps/.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc /usr/local/cuda-13*/bin/nvcc \
    "$deps"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    if [[ -x $candidate ]] && "$candidate" --version 2>/dev/null | grep -q 'release 13\.'; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# Prints why LibTorch cannot use the GPUs of this machine; nothing if one can be used, or if nvidia-smi does not tell.
# The CUDA version counts, not the driver's: with NVIDIA's package cuda-compat an older driver supports a newer CUDA.
gpu_obstacle() {
  local driver cuda name capability
  read -r driver < <(query_gpus driver_version) || return 0
  cuda=$(nvidia-smi 2>/dev/null | sed -nE 's/.*CUDA[A-Za-z ]*Version *: *([0-9]+\.[0-9]+).*/\1/p' | head -n 1) || true
  if [[ -n $cuda ]] && older_than "$cuda" 13.0; then
    echo "driver $driver supports CUDA up to $cuda; LibTorch 2.11 needs CUDA 13.0, driver 580 or newer"
  elif [[ -z $cuda && $driver =~ ^[0-9]+\. ]] && older_than "$driver" 580; then
    echo "the driver is $driver; LibTorch 2.11 needs driver 580 or newer, for CUDA 13.0"
  elif IFS=, read -r capability name < <(query_gpus compute_cap,name | sort -t, -k1,1Vr) &&
    [[ $capability =~ ^[0-9]+\.[0-9]+$ ]] && older_than "$capability" 7.5; then
    echo "${name# } has compute capability $capability; LibTorch 2.11 has code for 7.5 and newer, whatever the driver"
  fi
}

query_gpus() { nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null; }

# older_than VERSION MINIMUM
older_than() { [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) != "$2" ]]; }

# cpu or cuda: the default of the build. Fails where there are GPUs, but none that LibTorch can use.
default_device() {
  local obstacle
  obstacle=$(gpu_obstacle)
  [[ -z $obstacle ]] || fail "the GPU of this machine cannot be used: $obstacle" \
    "$0 --cpu    trains on the CPU, which works here" \
    "$0 --cuda   builds for other machines with GPUs"
  if has_gpu || find_nvcc >/dev/null; then echo cuda; else echo cpu; fi
}

# One compile job per core, but at most one per 1.5 GB of memory.
job_count() {
  local jobs available limit=max
  jobs=$(nproc)
  available=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  if [[ -r /sys/fs/cgroup/memory.max ]]; then read -r limit </sys/fs/cgroup/memory.max; fi
  if [[ $limit != max ]] && ((limit / 1048576 < available)); then available=$((limit / 1048576)); fi
  if ((available / 1536 < jobs)); then jobs=$((available / 1536)); fi
  echo $((jobs > 0 ? jobs : 1))
}
