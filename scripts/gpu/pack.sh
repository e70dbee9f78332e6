#!/usr/bin/env bash
# Builds for GPUs here and packs what runs elsewhere into .carry/: gputrain, the tests, the probe, and the system libraries
# they load. For a GPU machine that has torch 2.11 but no network to install the rest; copy the checkout with .carry/ there
# and run scripts/gpu/probe.sh or check.sh. LibTorch and CUDA are taken from that machine's torch.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

"$root/scripts/setup.sh" --cuda --tests
"$root/scripts/build.sh" --cuda
"$root/scripts/build.sh" --cuda --target gpu_probe

build=$root/build/cuda packed=$root/.carry
rm -rf "$packed"
mkdir -p "$packed/bin" "$packed/tests" "$packed/lib"
cp "$build"/bin/* "$packed/bin/"
find "$build" -name 'libgputrain*.so*' -exec cp {} "$packed/lib/" \;
# name<TAB>program for every test that is a program of ours
ctest --test-dir "$build" --show-only=json-v1 | "$deps/bin/python" -c '
import json, sys
for test in json.load(sys.stdin)["tests"]:
    labels = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
    if test["command"][0].endswith("_test") and "slow" not in sum(labels, []):
        print(test["name"], test["command"][0], sep="\t")' >"$packed/tests.txt"
while IFS=$'\t' read -r _ program; do cp "$program" "$packed/tests/"; done <"$packed/tests.txt"
strip --strip-unneeded "$packed"/bin/* "$packed"/tests/* "$packed"/lib/* 2>/dev/null || true
echo "$root" >"$packed/source_folder"

# System libraries, except those that every distribution has and those that torch brings.
for program in "$packed"/bin/* "$packed"/tests/*; do ldd "$program"; done 2>/dev/null |
  awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libutil|libgcc_s|libstdc\+\+|ld-linux.*|libgomp|libasan|libubsan)[.-]' |
  grep -vE '/torch/lib/|/nvidia/|/cuda[^/]*/|libgputrain' | xargs -r cp -L -t "$packed/lib/"
say "Packed $(du -sh "$packed" | cut -f1) in .carry/: $(wc -l <"$packed/tests.txt") tests, $(ls "$packed/bin" | tr '\n' ' ')"
