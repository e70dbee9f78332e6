#!/usr/bin/env bash
# Installs only what the build needs: system packages with apt, and LibTorch with its CUDA libraries as pinned Python
# wheels in .deps/. Run it as often as you like: if nothing is missing, it takes less than a second.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: scripts/setup.sh [--cpu | --cuda] [--parquet] [--package] [--tests] [--skip-system]
  --cpu          only what a CPU build needs (1.3 GB)
  --cuda         also the CUDA libraries (4 GB), and the CUDA 13 compiler if there is none
                 without either: --cuda where there is an nvcc or a GPU, else --cpu. GPUs need compute
                 capability 7.5 (T4, RTX 20 and newer) and driver 580: others are refused before anything is done
  --parquet      also what reads Parquet files: data.train.format: parquet (60 MB to download)
  --package      also what scripts/package.sh makes wheels with
  --tests        also what tests run (Open MPI, Slurm, ...) and compare with (torchvision, transformers, ...);
                 includes --parquet and --package
  --skip-system  do not install system packages (install those of scripts/packages.txt yourself, and those of
                 scripts/packages-tests.txt for the tests that need them)
Environment: PYTHON, the python3 to make .deps/ with (default: /usr/bin/python3, else python3).
END
}

device='' parquet=false package=false tests=false system=true
while (($#)); do
  case $1 in
    --cpu) device=cpu ;;
    --cuda) device=cuda ;;
    --parquet) parquet=true ;;
    --package) package=true ;;
    --tests) tests=true parquet=true package=true ;;
    --skip-system) system=false ;;
    -h | --help) usage; exit ;;
    *) usage >&2; fail "unknown option '$1'" ;;
  esac
  shift
done
device=${device:-$(default_device)}
obstacle=$(gpu_obstacle)
if [[ $device == cuda && -n $obstacle ]]; then
  say "note: the GPU of this machine cannot run what is built here: $obstacle" "  --cpu builds for the CPU"
fi

# --- system packages -------------------------------------------------------------------------------------------------

# Prints the entries ("a" or "a|b") of the lists for which no alternative is installed.
missing_packages() {
  local lists=("$root/scripts/packages.txt")
  if $tests; then lists+=("$root/scripts/packages-tests.txt"); fi
  local installed names
  installed=" $(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' 2>/dev/null | sed -n 's/^ii *//p' | tr '\n' ' ')"
  while read -r names _; do
    local name found=false
    for name in ${names//|/ }; do [[ $installed == *" $name "* ]] && found=true; done
    $found || echo "$names"
  done < <(grep -hv '^#' "${lists[@]}")
}

# For each argument, the first alternative that this distribution has.
available_packages() {
  local names name
  for names in "$@"; do
    for name in ${names//|/ }; do
      if apt-cache show "$name" >/dev/null 2>&1; then echo "$name"; continue 2; fi
    done
    echo "${names%%|*}"  # apt then reports the name
  done
}

install_system_packages() {
  if ! command -v apt-get >/dev/null; then
    fail "this system has no apt-get" "Install what scripts/packages.txt lists, under your system's names," \
      "then run: scripts/setup.sh --skip-system"
  fi
  local missing as_root=()
  mapfile -t missing < <(missing_packages)
  ((${#missing[@]} > 0)) || return 0
  say "System packages (scripts/packages*.txt say what each is for):"
  say "  ${missing[*]%%|*}"
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
      fail "installing them needs root" "Run this as root, then run this script again:" \
        "apt-get update && apt-get install -y --no-install-recommends ${missing[*]%%|*}"
    fi
    sudo true || fail "sudo refused" "Ask an administrator to run:" \
      "apt-get update && apt-get install -y --no-install-recommends ${missing[*]%%|*}"
    as_root=(sudo)
  fi
  step "apt-get update" "${as_root[@]}" apt-get update ||
    fail "the package lists could not be read" "Is the network up? Does 'apt-get update' work by itself?"
  mapfile -t missing < <(available_packages "${missing[@]}")
  step "apt-get install, ${#missing[@]} packages" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install them" "The log above says which. Debian 12 and Ubuntu 24.04 have them all" \
      "(Ubuntu: component 'universe')."
}

check_tools() {
  local gcc cmake
  gcc=$("${CXX:-g++}" -dumpfullversion -dumpversion 2>/dev/null) ||
    fail "no C++ compiler: '${CXX:-g++}' does not run" "Install g++ 12 or newer, or name another in CXX."
  ! older_than "$gcc" 12 || fail "g++ 12 or newer is needed, '${CXX:-g++}' is $gcc" \
    "Install a newer one (g++-12) and run again with CXX=g++-12, which the build reads too."
  cmake=$(cmake --version 2>/dev/null | awk 'NR == 1 {print $3}')
  [[ -n $cmake ]] || fail "no cmake" "Install CMake 3.25 or newer."
  ! older_than "$cmake" 3.25 || fail "CMake 3.25 or newer is needed, found $cmake" \
    "A newer one comes with: pip install cmake   (put its folder first in PATH)"
}

# --- LibTorch in .deps/ ----------------------------------------------------------------------------------------------

python_for_deps() {
  local python=${PYTHON:-/usr/bin/python3}
  [[ -x $python ]] || python=$(command -v "${PYTHON:-python3}") || fail "no python3" "Install Python 3.10 to 3.14."
  "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' ||
    fail "torch 2.11 needs Python 3.10 to 3.14, $python is $("$python" -V 2>&1)" "Name another in PYTHON."
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments" "Install python3-venv, or name another Python in PYTHON."
  echo "$python"
}

# A set is up to date if its stamp equals the requirements file.
is_installed() { cmp -s "$root/scripts/requirements-$1.txt" "$deps/installed/$1"; }

require_space() {
  local needed_gb=$1 free_gb
  free_gb=$(($(df -Pk "$root" | awk 'NR == 2 {print $4}') / 1048576))
  ((free_gb >= needed_gb)) || fail "$needed_gb GB of free disk are needed for LibTorch and the build, $root has $free_gb" \
    "Make room, or put the checkout on a larger disk."
}

install_set() {
  local name=$1 text=$2
  ! is_installed "$name" || return 0
  if [[ $wheels_announced == no ]]; then
    say "Python wheels, into .deps/ (delete the folder to undo):"
    if [[ $device == cuda ]] || $tests; then require_space 12; else require_space 6; fi
    wheels_announced=yes
  fi
  step "$text" "$deps/bin/python" -m pip install --disable-pip-version-check --no-deps \
    --require-hashes --only-binary :all: -r "$root/scripts/requirements-$name.txt" || explain_pip_failure
  mkdir -p "$deps/installed"
  cp "$root/scripts/requirements-$name.txt" "$deps/installed/$name"
}

explain_pip_failure() {
  local network=("Is the network up? A mirror goes in PIP_INDEX_URL, a proxy in HTTPS_PROXY."
    "Run the script again to go on from here.")
  if grep -q 'No space left' "$step_log"; then
    fail "the disk is full" "Make room; 'pip cache purge' frees what pip keeps. TMPDIR moves its temporary files."
  elif grep -qiE 'ConnectionError|NameResolutionError|Timeout|timed out|ProxyError|SSLError|unreachable' "$step_log"; then
    fail "the Python package index could not be reached" "${network[@]}"
  elif grep -q 'from versions: none' "$step_log"; then
    fail "the Python package index could not be reached, or has no wheel for $(uname -m) and $("$deps/bin/python" -V)" \
      "${network[@]}"
  elif grep -q 'DO NOT MATCH THE HASHES' "$step_log"; then
    fail "a wheel is not the one that was published" \
      "Nothing of it was installed. Ask who runs the index or the proxy (PIP_INDEX_URL); 'pip cache purge' if it was cached."
  fi
  fail "pip could not install the pinned wheels" "The log above says why."
}

# Creates the names that a linker looks for; the wheels' toolkit lacks them.
link_toolkit() {
  local cuda library
  cuda=$(echo "$deps"/lib/python3*/site-packages/nvidia/cu13)
  ln -sfn lib "$cuda/lib64"
  for library in "$cuda"/lib/lib*.so.*; do ln -sf "${library##*/}" "${library%%.so.*}.so"; done
}

install_wheels() {
  if [[ ! -x $deps/bin/python ]] || ! "$deps/bin/python" -m pip --version >/dev/null 2>&1; then
    local python
    python=$(python_for_deps)
    step "virtual environment .deps/ ($("$python" -V))" "$python" -m venv --clear "$deps" ||
      fail "the virtual environment could not be made" "The log above says why."
  fi
  install_set torch "LibTorch 2.11.0 (600 MB to download)"
  if [[ $device == cuda ]] || $tests; then
    install_set cuda "CUDA libraries that LibTorch loads (1.8 GB to download)"
  fi
  if [[ $device == cuda ]] && ! find_nvcc >/dev/null; then
    install_set toolkit "CUDA 13 compiler, as none is installed (100 MB to download)"
    link_toolkit
  fi
  if $parquet; then install_set parquet "Arrow, which reads Parquet files (60 MB to download)"; fi
  if $package; then install_set package "auditwheel, which makes wheels"; fi
  if $tests; then
    install_set test "Python references that tests compare with (110 MB to download)"
    if has_gpu; then install_set compile "Triton, for comparing with torch.compile (190 MB to download)"; fi
  fi
}

wheels_announced=no
if $system; then install_system_packages; fi
check_tools
install_wheels
say "Set up for $device in $SECONDS s."
