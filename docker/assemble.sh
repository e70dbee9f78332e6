#!/usr/bin/env bash
# Collects a built gputrain and the libraries it loads in one folder. The folder needs no checkout, Python or compiler,
# only the C and C++ libraries of Debian 12 or Ubuntu 24.04: the distribution of the build, or a newer one.
source "$(dirname "${BASH_SOURCE[0]}")/../scripts/steps.sh"

usage() {
  cat <<'END_OF_USAGE'
usage: docker/assemble.sh --cpu | --cuda | --build FOLDER  TARGET
  --cpu, --cuda   the build that scripts/build.sh made with the same option
  --build         the folder of another build
  TARGET          becomes bin/gputrain, lib/ and share/gputrain/
END_OF_USAGE
}

build=''
case ${1:-} in
  --cpu) build=$root/build/release; shift ;;
  --cuda) build=$root/build/cuda; shift ;;
  --build) build=${2:?--build needs a folder}; shift 2 ;;
  -h | --help) usage; exit ;;
esac
[[ -n $build && $# == 1 ]] || { usage >&2; exit 2; }
target=$1
[[ -e $build/bin/gputrain ]] || fail "nothing is built in $build" "Run scripts/build.sh first."
packages=$(dirname "$(sed -n 's/^GPUTRAIN_TORCH_DIR:PATH=//p' "$build/CMakeCache.txt")")

# The base image has these, and they must not be mixed with another machine's.
is_of_base() { [[ ${1##*/} =~ ^(ld-linux|libc|libm|libdl|librt|libpthread|libutil|libresolv|libgcc_s|libstdc\+\+)[-.] ]]; }

# libtorch_cuda loads these with dlopen() when it first needs them.
opened_later() {
  [[ -n $(ldd "$build/lib/libgputrain.so" | grep libtorch_cuda) ]] || return 0
  printf '%s\n' "$packages"/torch/lib/lib{torch_cuda_linalg,caffe2_nvrtc}.so "$packages"/nvidia/cudnn/lib/lib*.so.* \
    "$packages"/nvidia/cu13/lib/libnvrtc{,-builtins}.so.*
}

# libgputrain.so opens it with the first Parquet file; not every build has it.
parquet=()
if [[ -e $build/lib/libgputrain_parquet.so ]]; then parquet=("$build/lib/libgputrain_parquet.so"); fi

# The given files and all libraries they load. libcuda.so.1 belongs to the driver; the host provides it.
closure() {
  local missing
  missing=$(ldd "$@" | awk '/not found/ && $1 != "libcuda.so.1"')
  [[ -z $missing ]] || fail "libraries are missing:" "$missing"
  { printf '%s\n' "$@"; ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}'; } | xargs -n 1 realpath -s | sort -u
}

place_of() {
  case $1 in
    "$packages"/*) echo "$target/lib/${1#"$packages"/}" ;;  # where torch's run paths look: torch/lib, nvidia/*/lib
    *) echo "$target/lib/${1##*/}" ;;
  esac
}

cmake --install "$build" --prefix "$target" --component runtime --strip >/dev/null
mapfile -t later < <(opened_later)
closure "$build/lib/libgputrain.so" "${parquet[@]}" "${later[@]}" | while read -r library; do
  is_of_base "$library" || [[ $library == */libgputrain*.so ]] || install -D -m 644 "$library" "$(place_of "$library")"
done

licenses=$target/share/gputrain/licenses

# The distribution's packages that are inside: those of the libraries, and those of headers that are compiled in.
package_of() {
  local package
  package=$(dpkg -S "*/${1##*/}" | sed -n '/^diversion/d; s/:.*//p' | head -n 1) || true
  [[ -n $package ]] || fail "no package of the distribution has ${1##*/}, so that its licence is not known" \
    "Build with the libraries of scripts/packages.txt."
  echo "$package"
}
inside=$(for library in "$target"/lib/*.so*; do [[ $library == */libgputrain*.so ]] || package_of "$library"; done)
mapfile -t inside < <(printf '%s\n' "$inside" libcli11-dev nlohmann-json3-dev | sort -u)
for package in "${inside[@]}"; do install -D -m 644 -t "$licenses/$package" "/usr/share/doc/$package/copyright"; done
# Where to get the sources, as some of the licences ask; and the licences that a Debian has once for all packages.
dpkg-query -W -f '${Package} ${Version}, source package ${source:Package} ${source:Version} of '"$(. /etc/os-release && echo "$PRETTY_NAME")\n" \
  "${inside[@]}" >"$licenses/packages.txt"
grep -ohE '/usr/share/common-licenses/[A-Za-z0-9.-]+' "$licenses"/*/copyright | sed 's/\.$//' | sort -u |
  xargs install -D -m 644 -t "$licenses/common-licenses"

install -D -m 644 -t "$target/share/gputrain/configs" "$root"/configs/*.yaml
install -D -m 644 "$root/LICENSE" "$target/share/gputrain/LICENSE"
for folder in "$packages"/{torch,nvidia_*}-*.dist-info/licenses ${parquet:+"$packages"/pyarrow-*.dist-info/licenses}; do
  name=$(basename "$(dirname "$folder")")
  cp -r "$folder" "$licenses/${name%.dist-info}"
done

outside=$(ldd "$target/bin/gputrain" "$target"/lib/libgputrain*.so | awk '$3 ~ /^\// {print $3}' | xargs realpath -s | sort -u |
  while read -r library; do is_of_base "$library" || [[ $library == "$target"/* ]] || echo "$library"; done)
[[ -z $outside ]] || fail "the assembled program still loads libraries from elsewhere:" "$outside"
say "Assembled $(du -sh "$target" | cut -f1) in $target"
