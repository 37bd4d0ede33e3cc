# A node's boot, each time: the distribution's files, the control plane's CA, k3s agent.
#
# Promises: a node gives its token only to the control plane whose CA the cluster's own secret
# names, and joins only with the file system mounted where its group mounts it.
# shellcheck shell=bash source=shared.sh
. "$HERE/shared.sh"

read_ca_hash() {
  while :; do
    CA_HASH=$(aws secretsmanager get-secret-value --secret-id "$CA_HASH_SECRET" --query SecretString --output text 2>"$SECRETS/error") || CA_HASH=
    [[ "$CA_HASH" =~ ^[0-9a-f]{64}$ ]] && return 0
    again "$CA_HASH_SECRET holds no CA hash after $DEADLINE_SECONDS s: the control plane has not come up ($(tail -n 1 "$SECRETS/error"))"
  done
}

# k3s checks the same by the token's first part; here it is said in a sentence, before any token is
# sent.
check_ca() {
  local shown
  # -k: the certificate is not trusted yet, its hash is what this is about.
  until curl -skf --max-time 10 "$SERVER_URL/cacerts" -o "$SECRETS/cacerts"; do
    again "the control plane at $SERVER_URL did not answer within $DEADLINE_SECONDS s: it is down, or a security group closes its port"
  done
  shown=$(sha256 "$SECRETS/cacerts")
  [ "$shown" = "$CA_HASH" ] ||
    fail "the control plane at $SERVER_URL shows a CA with hash $shown, but $CA_HASH_SECRET holds $CA_HASH: not joined"
}

# Volumes of kind `nfs` are mounted by the machine itself; the EFS driver brings its own client.
install_nfs() {
  command -v mount.nfs4 >/dev/null || timeout 120 dnf install -q -y nfs-utils >&2 ||
    say "nfs-utils could not be installed: volumes of kind nfs cannot be mounted here, EFS volumes by their driver can"
}

# k3s waits for the mount anyway (a drop-in of its unit): a pod that found an empty folder would
# train on it.
mount_file_system() {
  [ -e /etc/systemd/system/paddle-file-system.service ] || return 0
  systemctl start --no-block paddle-file-system.service
  until systemctl --quiet is-active paddle-file-system.service; do
    again "the file system could not be mounted within $DEADLINE_SECONDS s: $(journalctl -u paddle-file-system -n 1 --no-pager -o cat)"
  done
}

ready() {
  [ "$("$K3S" kubectl --request-timeout=10s --kubeconfig "$AGENT/kubelet.kubeconfig" get node "$INSTANCE" \
    -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

prepare_machine "$INSTANCE"
install_nfs
mount_file_system
read_ca_hash
check_ca
read_token "$NODE_TOKEN_SECRET" node-token
{ printf 'K10%s::node:' "$CA_HASH"; cat "$SECRETS/node-token"; } | write "$SECRETS/join-token" 600
rm -f "$SECRETS/node-token"
start k3s-agent.service "the node $INSTANCE" ready
signal SUCCESS
say "$INSTANCE is a node of $CLUSTER_NAME ($DISTRIBUTION_VERSION)"
