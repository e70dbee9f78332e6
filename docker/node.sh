#!/bin/sh
# A host for `gputrain launch`: an sshd on port 2222 that accepts only this user and only keys. Needs no root.
#
#   gputrain-node        runs the sshd. /cluster/authorized_keys lists who may log in. Writes the host's public key to
#                        /cluster/known_hosts/NAME for the others that share the volume
#   gputrain-node keys   creates a key for this user, once, and authorises it on all hosts
set -eu
umask 077
cluster=/cluster port=2222 own=$HOME/.gputrain-node

if [ "${1:-}" = keys ]; then
  [ -e "$HOME/.ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -C gputrain -f "$HOME/.ssh/id_ed25519"
  exec cp "$HOME/.ssh/id_ed25519.pub" "$cluster/authorized_keys"
fi

if [ ! -r "$cluster/authorized_keys" ]; then
  echo "error: $cluster/authorized_keys cannot be read; put the public key of the user who runs gputrain launch there" >&2
  exit 2
fi
mkdir -p "$own"
[ -e "$own/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C '' -f "$own/host_key"
if [ -w "$cluster" ]; then
  name=$(hostname)
  mkdir -p "$cluster/known_hosts"
  printf '[%s]:%s %s\n' "$name" "$port" "$(cat "$own/host_key.pub")" >"$cluster/known_hosts/.$name"
  mv "$cluster/known_hosts/.$name" "$cluster/known_hosts/$name"
fi
cat >"$own/sshd_config" <<CONFIG
Port $port
HostKey $own/host_key
AuthorizedKeysFile $cluster/authorized_keys
AuthenticationMethods publickey
UsePAM no
AllowUsers $(id -un)
AllowTcpForwarding no
PidFile none
# The keys are on a volume that may have any owner.
StrictModes no
CONFIG
exec /usr/sbin/sshd -D -e -f "$own/sshd_config"
