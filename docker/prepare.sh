#!/bin/sh
# Prepares the system of an image (Debian 12 or Ubuntu 24.04).
#   run    tini and a non-root user
#   node   also an sshd and an ssh client
set -eu

export DEBIAN_FRONTEND=noninteractive
install_packages() {
  apt-get update
  apt-get install -y --no-install-recommends "$@"
  rm -rf /var/lib/apt/lists/*
}

case $1 in
  run)
    install_packages tini ca-certificates  # the certificates are for `gputrain fetch`
    # Not 1000: Ubuntu's images already use it.
    useradd --uid 10001 --user-group --create-home --shell /bin/bash gputrain
    # A volume that is mounted here gets this owner.
    install -d -o gputrain -g gputrain /work /home/gputrain/.cache
    ;;
  node)
    install_packages openssh-server openssh-client
    # Each container generates its own host keys: keys in an image would be shared by all.
    rm -f /etc/ssh/ssh_host_*
    install -d -o gputrain -g gputrain -m 700 /cluster /home/gputrain/.ssh
    ;;
  *)
    echo "usage: prepare.sh run|node" >&2
    exit 2
    ;;
esac
rm -f "$0"
