#!/usr/bin/env bash
# Checks that the README works on a bare machine: creates an empty Debian 12 with debootstrap, clones this repository
# into it, runs each command there and prints the minutes it took.
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

usage() {
  cat <<'END'
usage: scripts/fresh_machine.sh [--suite NAME] [--keep] [COMMAND...]
  COMMAND   a command to run in the clone, one argument each (default: the lines of the README's first fenced block
            after the comment <!-- fresh machine -->)
  --suite   the Debian release (default: bookworm)
  --keep    keep the system's folder, and print it
Needs root and debootstrap. Everything runs in separate mount and process namespaces, so that nothing stays mounted or
running, however it ends. Copies only the proxy and certificate settings of this machine.
Does not test Ubuntu 24.04: scripts/packages.txt has names that exist in both, or both names.
END
}

suite=bookworm keep=false commands=()
while (($#)); do
  case $1 in
    --suite) suite=${2:?--suite needs a name}; shift ;;
    --keep) keep=true ;;
    -h | --help) usage; exit ;;
    -*) usage >&2; fail "unknown option '$1'" ;;
    *) commands+=("$1") ;;
  esac
  shift
done

if ((${#commands[@]} == 0)); then
  mapfile -t commands < <(awk '/<!-- fresh machine -->/ {marked = 1; next}
    marked && /^```/ {if (inside) exit; inside = 1; next}
    inside && NF && !/^#/ {sub(/^\$ /, ""); print}' "$root/README.md")
fi
((${#commands[@]} > 0)) || fail "no commands" "README.md marks none with <!-- fresh machine -->; give them as arguments."
((EUID == 0)) || fail "a new root folder needs root"
command -v debootstrap >/dev/null || fail "no debootstrap" "apt-get install debootstrap"

machine=$(mktemp -d "${TMPDIR:-/var/tmp}/gputrain-fresh.XXXXXX")
chmod 755 "$machine"  # like a root folder: packages test access as other users
remove_machine() {
  if $keep; then say "Kept: $machine"; else rm -rf --one-file-system "$machine"; fi
}
trap remove_machine EXIT

make_machine() {
  # A mount namespace, because debootstrap mounts /proc and leaves it mounted if it is interrupted.
  unshare --mount debootstrap --variant=minbase "$suite" "$machine" http://deb.debian.org/debian
  cp /etc/resolv.conf "$machine/etc/resolv.conf"
  # Installers and cloud images write this file, debootstrap does not.
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$machine/etc/hosts"
  # Trust this machine's own certificates there too (a proxy may sign with one), in the distribution's way.
  mkdir -p "$machine/usr/local/share/ca-certificates"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$machine/usr/local/share/ca-certificates/" \;
  git clone --quiet --no-local "$root" "$machine/root/gputrain"
}

# Runs one command line like a user logged in there, and kills everything it started when it ends. Changes the root of
# the mount namespace instead of using chroot, because chroot forbids programs there to create namespaces.
run_there() {
  unshare --mount --pid --fork --kill-child /bin/bash -c '
    mount --bind "$1" "$1" && cd "$1" && mount -t proc proc proc && mount --rbind /sys sys &&
    mount -t tmpfs tmpfs dev/shm && mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts &&
    pivot_root . mnt && umount --lazy /mnt &&
    exec /usr/bin/env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
      ${PIP_INDEX_URL:+PIP_INDEX_URL="$PIP_INDEX_URL"} /bin/bash -c "cd /root/gputrain && $2"' bash "$machine" "$1"
}

say "An empty $suite, with a clone of $(git -C "$root" describe --always --dirty) in /root/gputrain"
step "debootstrap and clone" make_machine || fail "the system could not be made" "The log above says why."
[[ -z $(git -C "$root" status --porcelain) ]] || say "  note: uncommitted changes are not in the clone"

report=() status=0
for command in "${commands[@]}"; do
  say "" "fresh machine $ $command"
  started=$SECONDS outcome=passed
  run_there "$command" </dev/null || { outcome="FAILED ($?)" status=1; }
  report+=("$(printf '%6.1f min  %-12s %s' "$(awk "BEGIN {print ($SECONDS - $started) / 60}")" "$outcome" "$command")")
  ((status == 0)) || break
done
say "" "On $(nproc) cores, $suite, $(du -sh "$machine" | cut -f1) on disk at the end:" "${report[@]}"
exit "$status"
