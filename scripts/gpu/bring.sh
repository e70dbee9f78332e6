#!/usr/bin/env bash
# Puts the results of a call of first.sh on a machine that is gone into build/gpu, from where the next call takes them.
source "$(dirname "${BASH_SOURCE[0]}")/../steps.sh"

usage() {
  cat <<'END'
usage: scripts/gpu/bring.sh FOLDER
  FOLDER  what first.sh left in $OUT
Prints what to copy to the next machine besides what git tracks, and its size.
END
}

case ${1:-} in
  -h | --help) usage; exit ;;
esac
(($# == 1)) || { usage >&2; exit 2; }
from=$1 out=$root/build/gpu
[[ -e $from/first.json || -e $from/state.tar.gz ]] || fail "$from holds no results of scripts/gpu/first.sh"

rm -rf "$out.before"
[[ ! -e $out ]] || mv "$out" "$out.before"
mkdir -p "$out"
for file in "$from"/*; do
  [[ ! -f $file || ${file##*/} == copying ]] || install -p -m 644 "$file" "$out/"
done
[[ ! -e $out/first.md ]] || sed -n '1,4p' "$out/first.md"
carried=(build/gpu)
[[ ! -e $root/.carry ]] || carried=(.carry build/gpu)
size=$(cd "$root" && du -sch --apparent-size "${carried[@]}" | tail -n 1 | cut -f1)
say "To carry: ${carried[*]} ($size). Then: scripts/gpu/first.sh"
