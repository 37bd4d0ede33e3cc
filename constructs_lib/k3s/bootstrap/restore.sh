#!/bin/bash
# Brings the cluster's state back from a snapshot in the bucket; run by hand on the control plane
# (docs/self-managed.md).
#
#   sudo /opt/paddle-cluster/restore.sh             lists the snapshots
#   sudo /opt/paddle-cluster/restore.sh SNAPSHOT    restores that one
#   ... SNAPSHOT --token-of-secret                  restores one of another deployment, whose server
#                                                   token was put into the secret
#
# Promises: nothing is stopped before the snapshot is known to be there; the state until now is kept
# beside the restored one.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "restore.sh has to run as root: sudo $0 $*" >&2; exit 1; }
# shellcheck source=boot.sh
. /opt/paddle-cluster/boot.sh
# shellcheck source=shared.sh
. "$HERE/shared.sh"
# Whatever a deploy waits for, it is not this.
SIGNAL_STACK=

if [ $# -eq 0 ] || [ $# -gt 2 ] || [ "${2:---token-of-secret}" != --token-of-secret ]; then
  aws s3 ls "s3://$SNAPSHOT_BUCKET/$SNAPSHOT_PREFIX/" || fail "there is no snapshot in s3://$SNAPSHOT_BUCKET/$SNAPSHOT_PREFIX/ yet"
  say "name one of them (its last column) to go back to it: sudo $0 SNAPSHOT"
  trap - EXIT
  exit 2
fi

only_one
mountpoint -q "$STATE" || fail "the state volume is not mounted at $STATE: sudo systemctl start paddle-cluster.service, and read what it says"
aws s3api head-object --bucket "$SNAPSHOT_BUCKET" --key "$SNAPSHOT_PREFIX/$1" >/dev/null ||
  fail "s3://$SNAPSHOT_BUCKET/$SNAPSHOT_PREFIX/$1 cannot be read: sudo $0 without a name lists the snapshots"
# The token that the snapshot was made under opens what it holds of the cluster's CA.
if [ -n "${2:-}" ]; then
  read_token "$SERVER_TOKEN_SECRET" server-token
else
  read_server_token
fi
read_token "$NODE_TOKEN_SECRET" node-token

systemctl stop paddle-forget-nodes.timer k3s.service
# k3s leaves this mark so that a restart does not reset a second time by mistake; here a second time
# is meant.
rm -f "$STATE/db/reset-flag"
timeout "$DEADLINE_SECONDS" "$K3S" server --cluster-reset --cluster-reset-restore-path="$1" >&2 9>&- ||
  fail "k3s could not restore $1: the lines above are its own; the state until now is in $STATE/db/etcd, or in the newest $STATE/db/etcd-old-*"
# k3s rewrites it, with the token that has just opened the snapshot.
[ -z "${2:-}" ] || rm -f "$STATE/token"
say "restored $1: starting the control plane"
# The boot's own script starts it, waits, and publishes what nodes and people need.
flock -u 9
exec "$HERE/boot.sh"
