#!/bin/bash
# The control plane's boot, each time: state volume and fixed interface, k3s server, what the nodes and people need of it.
#
# Promises: state is never formatted over and never opened by an older k3s; k3s never starts without its volume, so that an
# empty cluster cannot take the place of the real one; a machine that replaces another goes on where that one ended.
set -euo pipefail
# shellcheck source=shared.sh
. "$(dirname "$0")/shared.sh"

STATE=/var/lib/rancher/k3s/server
LABEL=paddle-state
DEVICE="/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${STATE_VOLUME/-/}"

# attach KIND ID DESCRIBE ATTACH...: waits until what is described (state, then the machine that has it) is ours.
attach() {
  local kind=$1 id=$2 describe=$3 found state holder problem=
  shift 3
  while :; do
    found=$("$describe" 2>"$SECRETS/error") || found=
    read -r state holder <<<"$found"
    if [ -z "$state" ]; then
      problem="the $kind $id cannot be looked up: $(tail -n 1 "$SECRETS/error")"
    elif [ "$holder" = "$INSTANCE" ]; then
      return 0
    elif [ "$holder" != None ]; then
      # Never by force: the other machine may still be writing.
      problem="the $kind $id is still attached to $holder: stop or terminate that machine"
    elif [ "$state" != available ]; then
      problem="the $kind $id is $state, not available"
    elif "$@" >/dev/null 2>"$SECRETS/error"; then
      return 0
    else
      problem="the $kind $id could not be attached: $(tail -n 1 "$SECRETS/error")"
    fi
    again "$problem (waited $DEADLINE_SECONDS s)"
  done
}

describe_volume() {
  aws ec2 describe-volumes --volume-ids "$STATE_VOLUME" --output text \
    --query 'Volumes[0].[State, Attachments[0].InstanceId]'
}

describe_interface() {
  aws ec2 describe-network-interfaces --network-interface-ids "$STATE_INTERFACE" --output text \
    --query 'NetworkInterfaces[0].[Status, Attachment.InstanceId]'
}

mount_state() {
  local found=0 kind label uuid
  if mountpoint -q "$STATE"; then return 0; fi
  attach 'state volume' "$STATE_VOLUME" describe_volume \
    aws ec2 attach-volume --volume-id "$STATE_VOLUME" --instance-id "$INSTANCE" --device /dev/sdf
  until [ -b "$DEVICE" ]; do
    again "the state volume $STATE_VOLUME is attached, but $DEVICE did not appear within $DEADLINE_SECONDS s: only Nitro instance types name it so"
  done

  # blkid ends with 2 when it recognizes nothing; anything else it says is somebody's data.
  blkid -p "$DEVICE" >"$SECRETS/blkid" 2>&1 || found=$?
  if [ "$found" = 2 ]; then
    cmp -s -n 1048576 "$DEVICE" /dev/zero ||
      fail "the state volume $STATE_VOLUME holds data that is no file system: not formatted, look at it or give the cluster an empty one"
    say "the state volume $STATE_VOLUME is new: making its file system"
    mkfs.ext4 -q -L "$LABEL" "$DEVICE"
  fi
  kind=$(blkid -p -o value -s TYPE "$DEVICE" || true)
  label=$(blkid -p -o value -s LABEL "$DEVICE" || true)
  if [ "$kind" != ext4 ] || [ "$label" != "$LABEL" ]; then
    fail "the state volume $STATE_VOLUME holds ${kind:-something unknown} labelled \"$label\", not this cluster's ext4 \"$LABEL\": not touched"
  fi
  found=0
  e2fsck -p "$DEVICE" >&2 || found=$?
  [ "$found" -lt 4 ] || fail "the file system on the state volume $STATE_VOLUME is damaged: repair it with e2fsck, or restore a snapshot"
  resize2fs "$DEVICE" >/dev/null 2>&1 || say "the state volume's file system could not be grown: it stays as large as it is"

  uuid=$(blkid -p -o value -s UUID "$DEVICE")
  { grep -v " $STATE " /etc/fstab || true; echo "UUID=$uuid $STATE ext4 noatime,nofail,x-systemd.device-timeout=30 0 2"; } |
    write /etc/fstab 644
  install -d -m 700 "$STATE"
  systemctl daemon-reload
  mount -o noatime "$DEVICE" "$STATE"
  chmod 700 "$STATE"
}

# minor v1.35.2+k3s1 -> 35
minor() { echo "$1" | cut -d . -f 2; }

check_state() {
  local before
  [ -e "$STATE/cluster-name" ] || echo "$CLUSTER_NAME" >"$STATE/cluster-name"
  [ "$(cat "$STATE/cluster-name")" = "$CLUSTER_NAME" ] ||
    fail "the state volume $STATE_VOLUME belongs to the cluster $(cat "$STATE/cluster-name"), not to $CLUSTER_NAME: not touched"
  if [ -e "$STATE/distribution-version" ]; then
    before=$(cat "$STATE/distribution-version")
    if [ "$(minor "$DISTRIBUTION_VERSION")" -lt "$(minor "$before")" ]; then
      fail "the state was written by $before, which $DISTRIBUTION_VERSION cannot read: deploy $before or newer"
    fi
    if [ "$(minor "$DISTRIBUTION_VERSION")" -gt $(($(minor "$before") + 1)) ]; then
      fail "the state was written by $before: an upgrade to $DISTRIBUTION_VERSION skips a Kubernetes version, deploy the one between first"
    fi
  fi
}

attach_interface() {
  attach 'network interface' "$STATE_INTERFACE" describe_interface \
    aws ec2 attach-network-interface --network-interface-id "$STATE_INTERFACE" --instance-id "$INSTANCE" --device-index 1
  # Amazon Linux configures it, routes by source address included.
  until INTERFACE=$(ip -o -4 address show to "$PRIVATE_ADDRESS/32" | awk '{print $2; exit}') && [ -n "$INTERFACE" ]; do
    again "the network interface $STATE_INTERFACE is attached, but no device has $PRIVATE_ADDRESS after $DEADLINE_SECONDS s"
  done
}

configure() {
  local suffix=amazonaws.com names labels
  case "$AWS_REGION" in cn-*) suffix=amazonaws.com.cn ;; esac
  read -r -a names <<<"$ALTERNATE_NAMES"
  labels=("topology.kubernetes.io/region=$AWS_REGION" "topology.kubernetes.io/zone=$ZONE" "node.kubernetes.io/instance-type=$INSTANCE_TYPE")
  {
    cat <<END
cluster-init: true
node-name: control-plane
node-ip: $PRIVATE_ADDRESS
advertise-address: $PRIVATE_ADDRESS
flannel-backend: vxlan
flannel-iface: $INTERFACE
cluster-cidr: $POD_CIDR
service-cidr: $SERVICE_CIDR
token-file: $SECRETS/server-token
agent-token-file: $SECRETS/node-token
write-kubeconfig-mode: "600"
secrets-encryption: true
protect-kernel-defaults: true
disable-helm-controller: true
etcd-snapshot-schedule-cron: "$SNAPSHOT_SCHEDULE"
etcd-snapshot-retention: $SNAPSHOT_RETENTION
etcd-snapshot-compress: true
etcd-s3: true
etcd-s3-endpoint: s3.$AWS_REGION.$suffix
etcd-s3-region: $AWS_REGION
etcd-s3-bucket: $SNAPSHOT_BUCKET
etcd-s3-folder: $SNAPSHOT_PREFIX
END
    list tls-san "${names[@]}"
    # No ingress, no load balancers, no volumes on a node's own disk: jobs here use the shared file system.
    list disable traefik servicelb local-storage
    list node-taint node-role.kubernetes.io/control-plane=true:NoSchedule
    list node-label "${labels[@]}"
  } | write /etc/rancher/k3s/config.yaml 600

  # What k3s knows this machine by: it has to outlive the machine, as the node's name does.
  install -d -m 700 "$STATE/node"
  install -d /etc/rancher
  ln -sfn "$STATE/node" /etc/rancher/node
}

place_manifests() {
  local name reference text
  fetch efs-csi-driver.yaml "$HERE/efs-csi-driver.yaml" 644
  text=$(cat "$HERE/efs-csi-driver.yaml")
  while read -r name reference; do
    text=${text//"{{$name}}"/$reference}
  done <<<"$IMAGES"
  case "$text" in *'{{'*) fail "IMAGES lacks an image that efs-csi-driver.yaml names: the stack and its files are of different versions" ;; esac
  echo "$text" | write "$STATE/manifests/paddle-efs-csi-driver.yaml" 600
}

# Nodes whose machine is gone are forgotten: k3s has nobody who asks EC2, and a lost node's pods would stay for ever.
watch_nodes() {
  write /etc/systemd/system/paddle-forget-nodes.service 644 <<END
[Unit]
Description=Forgets the nodes whose machine EC2 has terminated

[Service]
Type=oneshot
ExecStart=$HERE/forget-nodes.sh
END
  write /etc/systemd/system/paddle-forget-nodes.timer 644 <<'END'
[Unit]
Description=Looks for nodes whose machine is gone

[Timer]
OnActiveSec=1min
OnUnitInactiveSec=1min
AccuracySec=5s

[Install]
WantedBy=timers.target
END
  systemctl daemon-reload
  systemctl enable paddle-forget-nodes.timer
  systemctl start paddle-forget-nodes.timer
}

ready() {
  [ "$("$K3S" kubectl get --raw /readyz)" = ok ] &&
    [ "$("$K3S" kubectl get node control-plane -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

publish() {
  local hash now
  # The file's token begins with the hash of the CA, reckoned as k3s does: only that part leaves the file.
  hash=$(sed -n 's/^K10\([0-9a-f]\{64\}\)::.*/\1/p' "$STATE/token")
  [ -n "$hash" ] || fail "$STATE/token has no CA hash in it: this k3s writes its token in another form"
  now=$(aws ssm get-parameter --name "$CA_HASH_PARAMETER" --query Parameter.Value --output text)
  [ "$now" = "$hash" ] || aws ssm put-parameter --name "$CA_HASH_PARAMETER" --value "$hash" --type String --overwrite >/dev/null

  sed "s#^\( *server: \).*#\1$ENDPOINT#" /etc/rancher/k3s/k3s.yaml | write "$SECRETS/kubeconfig" 600
  # Each write makes a version: only when there is something new. A secret without a value yet is no error.
  (umask 077 && aws secretsmanager get-secret-value --secret-id "$KUBECONFIG_SECRET" --query SecretString --output text \
    >"$SECRETS/kubeconfig.now" 2>/dev/null) || true
  if [ "$(sha256 "$SECRETS/kubeconfig")" != "$(sed '/^$/d' "$SECRETS/kubeconfig.now" | sha256sum | cut -d ' ' -f 1)" ]; then
    aws secretsmanager put-secret-value --secret-id "$KUBECONFIG_SECRET" --secret-string "file://$SECRETS/kubeconfig" >/dev/null
  fi
  rm -f "$SECRETS/kubeconfig" "$SECRETS/kubeconfig.now"
}

only_one
know_thyself
need_tools aws blkid cmp curl e2fsck flock ip mkfs.ext4 modprobe mount python3 resize2fs sysctl systemctl
mount_state
check_state
attach_interface
prepare_kernel
install_distribution
read_token "$SERVER_TOKEN_SECRET" server-token
read_token "$NODE_TOKEN_SECRET" node-token
configure
place_manifests
install_service k3s.service server "RequiresMountsFor=$STATE
AssertPathIsMountPoint=$STATE"
start k3s.service 'the control plane' ready
# From here on, older versions cannot read the state.
echo "$DISTRIBUTION_VERSION" >"$STATE/distribution-version"
publish
watch_nodes
signal SUCCESS
say "$CLUSTER_NAME's control plane is ready at $ENDPOINT ($DISTRIBUTION_VERSION)"
