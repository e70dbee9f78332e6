#!/usr/bin/env bash
# Builds for GPUs here and packs gputrain, the probe, the tests with the label gpu and the system libraries they load
# into .carry/. For a GPU machine with torch 2.11 but without network: copy the checkout with .carry/ there and run
# scripts/gpu/first.sh. LibTorch and CUDA come from that machine's torch.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

usage() {
  cat <<'END'
usage: scripts/gpu/pack.sh [--most MB]
  --most  fail if what git tracks and .carry/ are larger together (default: 60, what lent machines take)
END
}

most_mb=60
while (($#)); do
  case $1 in
    --most) most_mb=${2:?--most needs a number}; shift ;;
    -h | --help) usage; exit ;;
    *) usage >&2; fail "unknown option '$1'" ;;
  esac
  shift
done

"$root/scripts/setup.sh" --cuda
"$root/scripts/build.sh" --cuda --target gputrain --target gpu_probe --target gpu_tests

build=$root/build/cuda packed=$root/build/packed
rm -rf "$packed" "$root/.carry"
mkdir -p "$packed"/{bin,lib,system,tests} "$root/.carry"
cp "$build"/bin/* "$packed/bin/"
cp "$build/lib/libgputrain.so" "$packed/lib/"
# Programs of tests go into one folder; the libraries beside them, which they open, keep their place below the build.
ctest --test-dir "$build" -L '^gpu$' --show-only=json-v1 | python3 -c '
import json, pathlib, shutil, sys
build, packed = (pathlib.Path(name).resolve() for name in sys.argv[1:])
tests, libraries = [], set()
for test in json.load(sys.stdin)["tests"]:
    environment = [entry for p in test["properties"] if p["name"] == "ENVIRONMENT" for entry in p["value"]]
    tests.append({"name": test["name"], "program": test["command"][0], "environment": environment})
    shutil.copy(test["command"][0], packed / "tests")
    libraries.update(pathlib.Path(test["command"][0]).resolve().parent.glob("*.so"))
for library in libraries:
    place = packed / library.relative_to(build)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(library, place)
json.dump(tests, open(packed / "tests.json", "w"), indent=1)' "$build" "$packed"
find "$packed"/{bin,lib,tests} -type f -exec strip --strip-unneeded {} +
echo "$root" >"$packed/source_folder"
git -C "$root" describe --always --dirty >"$root/.carry/revision" 2>/dev/null || true

# System libraries, except those of every distribution and those of torch.
{ find "$packed"/{bin,lib,tests} -type f -exec ldd {} + 2>/dev/null || true; } | awk '$3 ~ /^\// {print $3}' | sort -u |
  sed -E '/\/(libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|ld-linux.*|libgomp)[.-]/d' |
  sed -E '/\/torch\/lib\/|\/nvidia\/|\/cuda[^\/]*\/|libgputrain/d' | xargs -r cp -L -t "$packed/system/"

# Several programs hold the same kernels; the window is large enough to find them again.
python3 -c '
import lzma, sys, tarfile
window = [{"id": lzma.FILTER_LZMA2, "preset": 4, "dict_size": 128 << 20}]
with lzma.open(sys.argv[2], "w", filters=window) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
    archive.add(sys.argv[1], ".")' "$packed" "$root/.carry/packed.tar.xz"
bytes=$(($(du -sb "$root/.carry" | cut -f1) + $({ git -C "$root" archive HEAD || true; } 2>/dev/null | wc -c)))
((bytes >> 20 < most_mb)) ||
  fail "the checkout with .carry/ has $((bytes >> 20)) MB; a lent machine takes less than $most_mb" \
    "du -a build/packed | sort -n shows what is large."
say "Packed $(du -sh "$packed" | cut -f1) into $(du -sh "$root/.carry" | cut -f1) in .carry/"
