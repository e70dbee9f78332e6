#!/usr/bin/env bash
# Builds for GPUs here and packs gputrain, the probe, the tests with the label gpu and the system libraries they load
# into .carry/. For a GPU machine with torch 2.11 but without network: copy the checkout with .carry/ there and run
# scripts/gpu/first.sh. LibTorch and CUDA come from that machine's torch.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

most_mb=60  # with what git tracks: lent machines take no more

"$root/scripts/setup.sh" --cuda
"$root/scripts/build.sh" --cuda --target gputrain --target gpu_probe --target gpu_tests

build=$root/build/cuda packed=$root/.carry
rm -rf "$packed"
mkdir -p "$packed"/{bin,lib,system,tests}
cp "$build"/bin/* "$packed/bin/"
cp "$build/lib/libgputrain.so" "$packed/lib/"
ctest --test-dir "$build" -L '^gpu$' --show-only=json-v1 | python3 -c '
import json, shutil, sys
tests = []
for test in json.load(sys.stdin)["tests"]:
    environment = [entry for p in test["properties"] if p["name"] == "ENVIRONMENT" for entry in p["value"]]
    tests.append({"name": test["name"], "program": test["command"][0], "environment": environment})
    shutil.copy(test["command"][0], sys.argv[1] + "/tests")
json.dump(tests, open(sys.argv[1] + "/tests.json", "w"), indent=1)' "$packed"
strip --strip-unneeded "$packed"/{bin,lib,tests}/*
echo "$root" >"$packed/source_folder"
git -C "$root" describe --always --dirty >"$packed/revision" 2>/dev/null || true

# System libraries, except those of every distribution and those of torch.
{ ldd "$packed"/{bin,lib,tests}/* 2>/dev/null || true; } | awk '$3 ~ /^\// {print $3}' | sort -u |
  sed -E '/\/(libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|ld-linux.*|libgomp)[.-]/d' |
  sed -E '/\/torch\/lib\/|\/nvidia\/|\/cuda[^\/]*\/|libgputrain/d' | xargs -r cp -L -t "$packed/system/"
bytes=$(($(du -sb "$packed" | cut -f1) + $({ git -C "$root" archive HEAD || true; } 2>/dev/null | wc -c)))
((bytes >> 20 <= most_mb)) ||
  fail "the checkout with .carry/ has $((bytes >> 20)) MB, more than the $most_mb that a lent machine takes" \
    "du -a .carry | sort -n shows what is large."
say "Packed $(du -sh "$packed" | cut -f1) in .carry/: $(ls "$packed/bin" "$packed/tests" | grep -v : | xargs)"
