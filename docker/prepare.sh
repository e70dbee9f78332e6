#!/bin/sh
# The system's part of an image, Debian 12 or Ubuntu 24.04.
#   run    tini, and a user who is not root
#   node   an sshd and an ssh besides
set -eu

export DEBIAN_FRONTEND=noninteractive
install_packages() {
  apt-get update
  apt-get install -y --no-install-recommends "$@"
  rm -rf /var/lib/apt/lists/*
}

case $1 in
  run)
    install_packages tini
    # Not 1000: Ubuntu's images have a user of that number already.
    useradd --uid 10001 --user-group --create-home --shell /bin/bash gputrain
    install -d -o gputrain -g gputrain /work
    ;;
  node)
    install_packages openssh-server openssh-client
    # Keys in an image would be everybody's: each container makes its own.
    rm -f /etc/ssh/ssh_host_*
    install -d -o gputrain -g gputrain -m 700 /cluster /home/gputrain/.ssh
    ;;
  *)
    echo "usage: prepare.sh run|node" >&2
    exit 2
    ;;
esac
rm -f "$0"
