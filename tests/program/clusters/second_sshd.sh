#!/usr/bin/env bash
# For batch scripts of slurm.sh: starts an sshd on the second node, runs a command with an ssh that can reach it, and
# returns its exit code.
set -euo pipefail
folder=$1
shift
mkdir -p /run/sshd "$folder/bin"
for key in user host; do ssh-keygen -q -t ed25519 -N '' -f "$folder/$key"; done
cat >"$folder/server" <<END_OF_CONFIG
ListenAddress 10.77.0.2
HostKey $folder/host
AuthorizedKeysFile $folder/user.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
END_OF_CONFIG
echo "n2 $(cut -d ' ' -f 1,2 "$folder/host.pub")" >"$folder/known_hosts"
printf 'IdentityFile %s/user\nUserKnownHostsFile %s/known_hosts\nUser root\n' "$folder" "$folder" >"$folder/client"
printf '#!/bin/sh\nexec /usr/bin/ssh -F %s/client "$@"\n' "$folder" >"$folder/bin/ssh"
chmod +x "$folder/bin/ssh"
unshare --uts bash -c "hostname n2; exec /usr/sbin/sshd -D -e -f $folder/server" &
server=$!
trap 'kill $server' EXIT
until (exec 3<>/dev/tcp/10.77.0.2/22) 2>/dev/null; do sleep 0.05; done
PATH=$folder/bin:$PATH "$@"
