#!/usr/bin/env bash
# Makes in dist/ what users install: a Python wheel, which takes LibTorch, CUDA and Arrow from other wheels, and an
# archive that holds all of them.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: scripts/package.sh --cpu | --cuda | --build FOLDER  [--wheel | --archive] [--into FOLDER]
  --cpu, --cuda   sets up, builds, and packs that build; --cuda: for GPUs and CPUs
  --build         packs this build as it is
  --wheel, --archive  makes only this
  --into          the folder of the packages (default: dist/)
Needs the Python packages of scripts/requirements-package.txt, which scripts/setup.sh --package installs.
END
}

build='' device='' only='' into=$root/dist
while (($#)); do
  case $1 in
    --cpu) device=cpu build=$root/build/release ;;
    --cuda) device=cuda build=$root/build/cuda ;;
    --build) build=${2:?--build needs a folder}; shift ;;
    --wheel | --archive) only=${1#--} ;;
    --into) into=${2:?--into needs a folder}; shift ;;
    -h | --help) usage; exit ;;
    *) usage >&2; fail "unknown option '$1'" ;;
  esac
  shift
done
[[ -n $build ]] || { usage >&2; exit 2; }
if [[ -n $device ]]; then
  "$root/scripts/setup.sh" "--$device" --parquet --package
  "$root/scripts/build.sh" "--$device" --target gputrain
fi

# pinned PACKAGE: its version in the requirements.
pinned() { sed -n "s/^$1==\([^ ]*\).*/\1/p" "$root"/scripts/requirements-*.txt; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$into"
version=$(sed -n 's/^project(gputrain VERSION \([^ ]*\).*/\1/p' "$root/CMakeLists.txt")
grep -q '^GPUTRAIN_CUDA:BOOL=ON' "$build/CMakeCache.txt" || version+=+cpu  # as torch names its wheels
name=gputrain-$version
folder=$work/$name-linux-$(uname -m)
"$root/docker/assemble.sh" --build "$build" "$folder"
built=$("$folder/bin/gputrain" --version)
[[ $built == "gputrain ${version%+cpu}" ]] || fail "what is built is $built, but CMakeLists.txt says ${version%+cpu}" "Build again."

pack_archive() {
  tar --sort=name --owner=0 --group=0 --numeric-owner -C "$work" -czf "$into/${folder##*/}.tar.gz" "${folder##*/}"
}

# The tag of the wheel says the oldest glibc that has the symbols of all libraries in it, by auditwheel.
pack_wheel() {
  local tree=$work/wheel info=$work/wheel/$name.dist-info platform
  mkdir -p "$tree/gputrain/lib" "$info" "$work/packed"
  cp -r "$folder/bin" "$folder/share" "$tree/gputrain"
  rm -rf "$tree"/gputrain/share/gputrain/licenses/{torch-*,nvidia_*,pyarrow-*}
  cp "$folder"/lib/*.so* "$tree/gputrain/lib"
  cp "$root/scripts/package/__main__.py" "$tree/gputrain"
  sed "s/@TORCH@/$(pinned torch)/" "$root/scripts/package/__init__.py" >"$tree/gputrain/__init__.py"
  sed "s/@VERSION@/$version/; s/@TORCH@/$(pinned torch)/; s/@PYARROW@/$(pinned pyarrow)/" \
    "$root/scripts/package/METADATA" | cat - "$root/README.md" >"$info/METADATA"
  install -D -m 644 "$root/LICENSE" "$info/licenses/LICENSE"
  printf '[console_scripts]\ngputrain = gputrain:main\n' >"$info/entry_points.txt"
  printf 'Wheel-Version: 1.0\nGenerator: scripts/package.sh\nRoot-Is-Purelib: false\nTag: py3-none-linux_%s\n' \
    "$(uname -m)" >"$info/WHEEL"
  "$deps/bin/wheel" pack "$tree" --dest-dir "$work/packed"
  "$deps/bin/auditwheel" show "$work/packed/"*.whl | tee "$work/audit"
  platform=$(tr '\n' ' ' <"$work/audit" | sed -n 's/.*constrains the platform tag to "\(manylinux_[^"]*\)".*/\1/p')
  [[ -n $platform ]] || fail "auditwheel names no platform" "Its words are above."
  "$deps/bin/wheel" tags --remove --platform-tag "$platform" "$work/packed/"*.whl
  cp "$work/packed/"*.whl "$into"
}

[[ -x $deps/bin/auditwheel ]] || fail "auditwheel is missing" "Run scripts/setup.sh --package."
[[ $only == wheel ]] || step "archive" pack_archive
[[ $only == archive ]] || step "wheel" pack_wheel
(cd "$into" && sha256sum gputrain-* >SHA256SUMS)
(cd "$into" && du -h gputrain-* | sed 's/^/  /')
