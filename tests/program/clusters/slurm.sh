#!/usr/bin/env bash
# Starts a Slurm cluster of two nodes, n1 and n2, on this machine, runs a command in it, and returns its exit code.
#
#   unshare --fork --pid --mount --net --uts --mount-proc --kill-child tests/program/clusters/slurm.sh FOLDER COMMAND...
#
# In its own namespaces it uses no port, file or host name of the machine. When its first process ends, the kernel
# kills every daemon, step and task.
set -euo pipefail
folder=$1
shift
mkdir -p "$folder"/{state,munge}
chmod 755 "$folder/munge"

# Two addresses on one interface simulate two hosts. Not on the loopback interface, because MPI's agents refuse it.
ip link set lo up
ip link add cluster type veth peer name other-end
for node in 1 2; do ip address add "10.77.0.$node/24" dev cluster; done
ip link set cluster up
ip link set other-end up
printf '127.0.0.1 localhost\n10.77.0.1 n1\n10.77.0.2 n2\n' >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs tmpfs /run
hostname n1

cat >"$folder/slurm.conf" <<END
ClusterName=two
SlurmctldHost=n1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=n1 NodeAddr=10.77.0.1 NodeHostname=n1 CPUs=4 Port=17001
NodeName=n2 NodeAddr=10.77.0.2 NodeHostname=n2 CPUs=4 Port=17002
PartitionName=all Nodes=n[1-2] Default=YES State=UP
END
export SLURM_CONF=$folder/slurm.conf

(umask 077 && head --bytes 64 /dev/urandom >"$folder/munge/key")
munged --foreground --force --key-file "$folder/munge/key" --socket "$folder/munge/socket" \
  --pid-file "$folder/munge/pid" --log-file "$folder/munge/log" --seed-file "$folder/munge/seed" \
  >"$folder/munged.out" 2>&1 &
until [[ -S $folder/munge/socket ]]; do sleep 0.05; done
slurmctld -D -c >"$folder/slurmctld.out" 2>&1 &
for node in n1 n2; do
  unshare --uts bash -c "hostname $node; exec slurmd -D -N $node" >"$folder/slurmd-$node.out" 2>&1 &
done
for ((tries = 0; tries < 200; ++tries)); do
  [[ $(sinfo --noheader --format '%D %t' 2>/dev/null) != '2 idle' ]] || break
  sleep 0.1
done
if ((tries == 200)); then
  echo "Slurm does not come up:" >&2
  tail -n 5 "$folder"/*.log "$folder"/*.out >&2
  exit 99
fi
"$@"
