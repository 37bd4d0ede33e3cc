# The control plane's boot, each time: the state volume, k3s server, what the nodes and people need
# of it.
#
# Promises: state is never formatted over and never opened by an older k3s; k3s never starts without
# its volume, so that an empty cluster cannot take the place of the real one; a replacement machine
# continues where the old one ended.
# shellcheck shell=bash source=shared.sh
. "$HERE/shared.sh"

LABEL=paddle-state
DEVICE="/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${STATE_VOLUME/-/}"

# Waits until the volume is this machine's: EC2 lets the one that is being replaced go first. Never
# by force: the other machine may still be writing.
attach_volume() {
  local holder
  while :; do
    holder=$(aws ec2 describe-volumes --volume-ids "$STATE_VOLUME" --output text \
      --query 'Volumes[0].Attachments[0].InstanceId' 2>"$SECRETS/error") || holder=unknown
    case "$holder" in
      "$INSTANCE") return 0 ;;
      None)
        aws ec2 attach-volume --volume-id "$STATE_VOLUME" --instance-id "$INSTANCE" --device /dev/sdf >/dev/null 2>"$SECRETS/error" &&
          return 0
        ;;
      i-*) echo "it is still attached to $holder: stop or terminate that machine" >"$SECRETS/error" ;;
    esac
    again "the state volume $STATE_VOLUME could not be attached within $DEADLINE_SECONDS s: $(tail -n 1 "$SECRETS/error")"
  done
}

# The volume, found to be this cluster's and in order.
check_volume() {
  local found=0 kind label
  attach_volume
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
  # In full, which takes a second for a state's few files: a volume that was made larger may not
  # grow without.
  e2fsck -f -p "$DEVICE" >&2 || found=$?
  [ "$found" -lt 4 ] || fail "the file system on the state volume $STATE_VOLUME is damaged: repair it with e2fsck, or restore a snapshot"
}

mount_state() {
  local uuid
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

# mark NAME WORD: remembered on the volume, also by a machine that is ended in the next second.
mark() {
  echo "$2" | write "$STATE/$1" 644
  sync "$STATE/$1"
}

check_state() {
  local before
  # Empty: a machine that went down before its disk had the word.
  [ -s "$STATE/cluster-name" ] || mark cluster-name "$CLUSTER_NAME"
  [ "$(cat "$STATE/cluster-name")" = "$CLUSTER_NAME" ] ||
    fail "the state volume $STATE_VOLUME belongs to the cluster $(cat "$STATE/cluster-name"), not to $CLUSTER_NAME: not touched"
  [ -s "$STATE/private-address" ] || mark private-address "$PRIVATE_ADDRESS"
  [ "$(cat "$STATE/private-address")" = "$PRIVATE_ADDRESS" ] ||
    fail "the state was made at $(cat "$STATE/private-address"), which etcd and every certificate know: set the private address back from $PRIVATE_ADDRESS"
  if [ -s "$STATE/distribution-version" ]; then
    before=$(cat "$STATE/distribution-version")
    if [ "$(minor "$DISTRIBUTION_VERSION")" -lt "$(minor "$before")" ]; then
      fail "the state was written by $before, which $DISTRIBUTION_VERSION cannot read: deploy $before or newer"
    fi
    if [ "$(minor "$DISTRIBUTION_VERSION")" -gt $(($(minor "$before") + 1)) ]; then
      fail "the state was written by $before: an upgrade to $DISTRIBUTION_VERSION skips a Kubernetes version, deploy the one between first"
    fi
  fi
}

# k3s would begin an empty cluster, which has every node end the pods that it does not know. Looked
# at last: on a new machine restore.sh needs what comes before.
check_database() {
  [ ! -s "$STATE/distribution-version" ] || [ -d "$STATE/db/etcd/member/wal" ] ||
    fail "the state volume $STATE_VOLUME has served before, but holds no etcd database: a restore ended halfway; finish it with sudo $HERE/restore.sh"
}

# place_manifest NAME: into the folder that k3s applies, with IMAGES and the jobs' namespace filled
# in.
place_manifest() {
  sed -f <(sed -E 's#^(\S+) (.*)$#s|{{\1}}|\2|#' <<<"$IMAGES"$'\n'"jobs-namespace $JOBS_NAMESPACE") "$HERE/$1" |
    write "$STATE/manifests/paddle-$1" 600
}

ready() {
  [ "$("$K3S" kubectl --request-timeout=10s get --raw /readyz)" = ok ] &&
    [ "$("$K3S" kubectl --request-timeout=10s get node control-plane -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

# put SECRET FILE: the file's text as the secret's value, if it is another. Each write makes a
# version; no value yet is no error.
put() {
  local now="$2.now"
  (umask 077 && aws secretsmanager get-secret-value --secret-id "$1" --query SecretString --output text >"$now" 2>/dev/null) || true
  # The answer ends with a line break of its own.
  if ! cmp -s <(cat "$2" && echo) "$now"; then
    until aws secretsmanager put-secret-value --secret-id "$1" --secret-string "file://$2" >/dev/null 2>"$SECRETS/error"; do
      again "the secret $1 could not be written within $DEADLINE_SECONDS s: $(tail -n 1 "$SECRETS/error")"
    done
  fi
  rm -f "$2" "$now"
}

# kubeconfig_of ACCOUNT SECRET: what a team's people use: the administrator's file with a service
# account's token in it.
kubeconfig_of() {
  local file="$SECRETS/kubeconfig-$1" get=("$K3S" kubectl --request-timeout=10s -n kube-system get secret "paddle-$1" -o)
  until "${get[@]}" 'go-template={{.data.token | base64decode}}' 2>/dev/null | (umask 077 && cat >"$file.token") && [ -s "$file.token" ]; do
    again "Kubernetes made no token for paddle-$1 within $DEADLINE_SECONDS s"
  done
  {
    sed '/^users:/,$d' "$SECRETS/kubeconfig"
    printf 'users:\n- name: default\n  user:\n    token: '
    cat "$file.token"
    echo
  } | write "$file" 600
  rm -f "$file.token"
  put "$2" "$file"
}

publish() {
  # The file's token begins with the hash of the CA, reckoned as k3s does: only that part leaves the
  # file.
  sed -n 's/^K10\([0-9a-f]\{64\}\)::.*/\1/p' "$STATE/token" | tr -d '\n' | write "$SECRETS/ca-hash" 600
  [ -s "$SECRETS/ca-hash" ] || fail "$STATE/token has no CA hash in it: this k3s writes its token in another form"
  put "$CA_HASH_SECRET" "$SECRETS/ca-hash"

  sed "s#^\( *server: \).*#\1$ENDPOINT#" /etc/rancher/k3s/k3s.yaml | write "$SECRETS/kubeconfig" 600
  [ -z "${TRAINER_KUBECONFIG_SECRET:-}" ] || kubeconfig_of trainer "$TRAINER_KUBECONFIG_SECRET"
  [ -z "${READER_KUBECONFIG_SECRET:-}" ] || kubeconfig_of reader "$READER_KUBECONFIG_SECRET"
  put "$KUBECONFIG_SECRET" "$SECRETS/kubeconfig"
}

prepare_machine control-plane
# After a reboot fstab has been here before.
if ! mountpoint -q "$STATE"; then check_volume; fi
# A volume that was made larger: its file system follows, mounted or not.
resize2fs "$DEVICE" >/dev/null 2>"$SECRETS/error" ||
  say "the state volume's file system stays as large as it is: $(tail -n 1 "$SECRETS/error")"
if ! mountpoint -q "$STATE"; then mount_state; fi
check_state
read_server_token
read_token "$NODE_TOKEN_SECRET" node-token
# What k3s knows this machine by: it has to outlive the machine, as the node's name does.
install -d -m 700 "$STATE/node"
ln -sfn "$STATE/node" /etc/rancher/node
place_manifest efs-csi-driver.yaml
place_manifest people.yaml
check_database
start k3s.service 'the control plane' ready
# From here on, older versions cannot read the state.
mark distribution-version "$DISTRIBUTION_VERSION"
publish
systemctl enable --now paddle-forget-nodes.timer
signal SUCCESS
say "$CLUSTER_NAME's control plane is ready at $ENDPOINT ($DISTRIBUTION_VERSION)"
