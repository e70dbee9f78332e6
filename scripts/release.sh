#!/usr/bin/env bash
# Makes a release: sets the version where it stands, cuts the changelog, makes the packages and the notes, commits, tags.
# Publishes nothing.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: scripts/release.sh VERSION --tested COMMIT  [--cpu] [--cuda] [--dry-run]
  VERSION        1.2.3, higher than that of the last release
  --tested       the commit that passed .ci/run. It has to be the one that is checked out
  --cpu, --cuda  makes the packages of this build alone (default: of both)
  --dry-run      checks, and prints what it would do
Writes wheels, archives, SHA256SUMS and NOTES.md into dist/VERSION. If the packages cannot be made, nothing is changed.
Environment: GPUTRAIN_PACKAGE, a program that makes packages instead of scripts/package.sh, by the same options.
END
}

version='' tested='' devices=() dry=false
while (($#)); do
  case $1 in
    --tested) tested=${2:?--tested needs a commit}; shift ;;
    --cpu | --cuda) devices+=("$1") ;;
    --dry-run) dry=true ;;
    -h | --help) usage; exit ;;
    -*) usage >&2; fail "unknown option '$1'" ;;
    *) version=$1 ;;
  esac
  shift
done
[[ -n $version && -n $tested ]] || { usage >&2; exit 2; }
((${#devices[@]} > 0)) || devices=(--cuda --cpu)

cd "$root"
tag=v$version into=$root/dist/$version head=$(git rev-parse HEAD)
current=$(sed -n 's/^project(gputrain VERSION \([^ ]*\).*/\1/p' CMakeLists.txt)
released=$(git tag --list 'v[0-9]*' --sort=-version:refname | sed -n '1s/^v//p')
pages=(README.md README.zh-CN.md configs/install.md)  # which name the version

# unreleased: what the changelog says under [Unreleased].
unreleased() { awk '/^## / {inside = /^## \[Unreleased\]/; next} inside' CHANGELOG.md; }

check() {
  [[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] || fail "'$version' is no version" "It is written 1.2.3."
  [[ -z $(git tag --list "$tag") ]] || fail "the tag $tag exists" "That version is released; take a higher one."
  if [[ -n $released ]] && ! older_than "$released" "$version"; then
    fail "$version is not higher than $released, the last release" "Take a higher one."
  fi
  ! older_than "$version" "$current" || fail "$version is lower than $current, which CMakeLists.txt has" "Take a higher one."
  [[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed" "git status lists them."
  [[ $(git rev-parse --verify --quiet "$tested^{commit}") == "$head" ]] ||
    fail "what was tested is $tested, but ${head:0:12} is checked out" "Run .ci/run on it, then: --tested ${head:0:12}"
  unreleased | grep -q '^- ' || fail "CHANGELOG.md has no entries under [Unreleased]" "Say there what users see of this version."
  [[ ! -e $into ]] || fail "$into exists" "Move it away: packages of this version go there."
}

set_version() {
  sed -i "s/^\(project(gputrain VERSION \)[^ ]*/\1$version/" CMakeLists.txt
  sed -i -E "s/((version|版本|gputrain)[ -]?)${current//./\\.}/\1$version/g" "${pages[@]}"
  sed -i "s/^## \[Unreleased\]\$/&\n\n## [$version] - $(date -u +%F)/" CHANGELOG.md
}

# stamp_of ARCHIVE: the lines that a plug-in must have in common with the program in it.
stamp_of() {
  tar -xzOf "$1" --wildcards '*/lib/libgputrain.so' |
    grep -aoE '(headers of gputrain|LibTorch|compiler|C\+\+ ABI|C\+\+ library|_GLIBCXX_USE_CXX11_ABI)'$'\t[^\t]+$' || true
}

write_notes() {
  local changes=$1 archive stamp file glibc
  archive=$(find "$into" -name "gputrain-$version*.tar.gz" | sort | head -n 1)
  stamp=$(stamp_of "$archive")
  glibc=$(find "$into" -name '*.whl' | sed -nE 's/.*-manylinux_([0-9]+)_([0-9]+)_.*/\1.\2/p' | sort -V | tail -n 1)
  [[ -n $stamp && -n $glibc ]] || fail "the packages in $into name no stamp for plug-ins, or no glibc"
  {
    printf '# gputrain %s\n%s\n\n## Files\n\n' "$version" "$changes"
    for file in "$into"/gputrain-*; do printf -- '- `%s` (%s)\n' "${file##*/}" "$(du -h "$file" | cut -f1)"; done
    printf '\n`sha256sum --check SHA256SUMS` checks them. They need %s, glibc %s or newer%s; ' \
      "$(uname -m)" "$glibc" ", and C and C++ libraries of that age"
    printf 'wheels also Python 3.10 and torch %s, which pip installs.\n' "$(sed -n 's/^LibTorch\t//p' <<<"$stamp")"
    printf '\n## Plug-ins\n\nBuild them again: a plug-in of another version is refused. Its stamp has to say:\n\n```\ngputrain\t%s\n%s\n```\n' \
      "$version" "$stamp"
  } >"$into/NOTES.md"
}

make_packages() {
  local device
  for device in "${devices[@]}"; do "${GPUTRAIN_PACKAGE:-$root/scripts/package.sh}" "$device" --into "$into"; done
  (cd "$into" && sha256sum --check --strict --quiet SHA256SUMS)
}

check
if $dry; then
  say "Would, from ${head:0:12}:" \
    "  set $version instead of $current in CMakeLists.txt ${pages[*]}" \
    "  move $(unreleased | grep -c '^- ') entries of CHANGELOG.md from [Unreleased] to [$version], $(date -u +%F)" \
    "  make the packages with ${GPUTRAIN_PACKAGE:-scripts/package.sh} ${devices[*]}, SHA256SUMS and NOTES.md, in dist/$version" \
    "  commit, and tag the commit $tag"
  exit
fi

changes=$(unreleased)
undo() { git reset --quiet --hard "$head"; rm -rf "$into"; say "Nothing was released; files are as they were." >&2; }
trap undo EXIT
set_version
make_packages
write_notes "$changes"
git commit --quiet --all --message "Version $version"
git tag --annotate --message "gputrain $version" "$tag"
trap - EXIT
say "Released $version in dist/$version. To publish it: git push origin HEAD $tag, and upload the folder."
