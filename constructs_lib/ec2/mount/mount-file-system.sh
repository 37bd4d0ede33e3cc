#!/bin/bash
# Mounts the cluster's file system over TLS, and looks after its tunnel: mount-file-system.sh
# FILE-SYSTEM ACCESS-POINT FOLDER. paddle-file-system.service runs it; the kubelet waits for it.
#
# Promises: systemd hears that it is ready only while the file system is at FOLDER; until then it
# tries again without end, each time with a sentence on the console; where nothing is mounted at
# FOLDER, no pod's user can look into it.
#
# The EFS driver's pod has a watchdog of its own over the machine's /run/efs, which ends every
# tunnel whose mount it does not see (https://github.com/aws/efs-utils/issues/265). So this one gets
# another /run/efs, in a mount namespace that shares everything else with the machine.
# shellcheck disable=SC2317  # `again` runs them.
set -uo pipefail
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
: "${POLL_SECONDS:=10}"
file_system=$1 access_point=$2 folder=$3
apart=/run/paddle-file-system

say() { echo "paddle-cluster: $1" >&2; }

# again SENTENCE COMMAND...: runs COMMAND until it succeeds.
again() {
  local sentence=$1
  shift
  until "$@"; do
    say "$sentence (see the lines above); no pod starts here, tried again in $POLL_SECONDS s"
    sleep "$POLL_SECONDS"
  done
}

# What the machine mounts and unmounts is seen here, what is mounted on /run here is not seen there.
set_apart() {
  mkdir -p /run/efs "$apart" && mount --make-slave /run && mount --bind "$apart" /run/efs
}

# Its own service would look after the driver's tunnels as well.
install_client() {
  systemctl mask --quiet amazon-efs-mount-watchdog.service
  command -v mount.efs >/dev/null || dnf install -q -y amazon-efs-utils >&2
}

mount_it() {
  grep -q " $folder " /proc/self/mounts && return
  [ -d "$folder" ] || { mkdir -p "$folder" && chmod 000 "$folder"; } || return
  mount -t efs -o "tls,noresvport,accesspoint=$access_point" "$file_system:/" "$folder"
}

again "/run/efs could not be set apart" set_apart
again "amazon-efs-utils could not be installed" install_client
# It also clears away the tunnels of tries that failed.
amazon-efs-mount-watchdog &
trap 'kill $! 2>/dev/null' EXIT
again "$file_system could not be mounted at $folder" mount_it
systemd-notify --ready
say "$file_system is mounted at $folder"
wait
say "the watchdog of $file_system ended: started again"
exit 1
