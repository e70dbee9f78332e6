#!/bin/sh
# A host for `gputrain launch`: an sshd for this user alone, by key alone, on port 2222. Needs no root.
#
#   gputrain-node        serves. Who may come in stands in /cluster/authorized_keys; the host's public key is left in
#                        /cluster/known_hosts/NAME, so that others with that volume know it
#   gputrain-node keys   makes a key for this user, once, and lets it in everywhere
set -eu
umask 077
cluster=/cluster port=2222 own=$HOME/.gputrain-node

if [ "${1:-}" = keys ]; then
  [ -e "$HOME/.ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -C gputrain -f "$HOME/.ssh/id_ed25519"
  exec cp "$HOME/.ssh/id_ed25519.pub" "$cluster/authorized_keys"
fi

if [ ! -r "$cluster/authorized_keys" ]; then
  echo "error: $cluster/authorized_keys cannot be read; mount the public key of whoever launches there" >&2
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
# The folder of keys is a volume, which may belong to anybody.
StrictModes no
CONFIG
exec /usr/sbin/sshd -D -e -f "$own/sshd_config"
