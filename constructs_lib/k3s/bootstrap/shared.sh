# What control plane and nodes need at boot, and what an operator's restore needs too. Read by the others, never run.
#
# Promises: whatever goes wrong ends the boot with one sentence on the console and, while a deploy waits for this machine, a
# FAILURE signal, and systemd tries the boot again; all the waiting together ends at the deadline; no secret is in an argument, a
# variable or a log.

# shellcheck shell=bash disable=SC2034  # What is set here, the others read.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022

HERE=/opt/paddle-cluster
# Gone with the power: secrets are read again at each boot.
SECRETS=/run/paddle-cluster
STATE=/var/lib/rancher/k3s/server
AGENT=/var/lib/rancher/k3s/agent
K3S=/usr/local/bin/k3s

# shellcheck source=/dev/null
. /etc/paddle-cluster/environment
: "${DEADLINE_SECONDS:=780}" "${POLL_SECONDS:=5}" "${SIGNAL_STACK:=}" "${SIGNAL_RESOURCE:=}"
# As cloud-init knows it, until the metadata say it themselves: a failure before that is signalled, too.
INSTANCE=$(cat /var/lib/cloud/data/instance-id)
export AWS_REGION AWS_DEFAULT_REGION="$AWS_REGION" AWS_PAGER=''

# An address that does not answer costs half a minute, not three: what is wrong is said while the deploy still waits.
aws() { command aws --cli-connect-timeout 10 "$@"; }

say() { echo "paddle-cluster: $1" >&2; }

fail() {
  trap - ERR
  say "$1"
  signal FAILURE
  # systemd did not start the first boot, so it would not try it again; a boot of its own this leaves as it is. Whoever runs
  # restore.sh decides what comes next.
  [ "$(basename "$0")" != "$ROLE.sh" ] || systemctl start --no-block paddle-cluster.service || true
  exit 1
}
set -E
trap 'fail "$(basename "$0") stopped at line $LINENO, where \"$BASH_COMMAND\" failed: see the lines above"' ERR

# Tells CloudFormation, once in a machine's life, taken or not: a later one would count in a deploy that waits for another machine.
signal() {
  if [ -z "$SIGNAL_STACK" ] || [ -e "$HERE/signalled" ]; then return 0; fi
  touch "$HERE/signalled"
  aws cloudformation signal-resource --stack-name "$SIGNAL_STACK" --logical-resource-id "$SIGNAL_RESOURCE" \
    --unique-id "$INSTANCE" --status "$1" ||
    say "the signal $1 for $SIGNAL_RESOURCE was not taken: nobody waits for it, or the role may not send it"
}

# One boot at a time: cloud-init's, systemd's, an operator's.
only_one() {
  install -d -m 700 "$SECRETS"
  exec 9>"$SECRETS/lock"
  flock 9
}

# Returns as long as there is time; `fail`s with the sentence when there is none.
again() {
  [ "$SECONDS" -lt "$DEADLINE_SECONDS" ] || fail "$1"
  sleep "$POLL_SECONDS"
}

# This role's script, as a unit: at each boot, each month, and each minute after it failed. Before anything that can fail for long.
go_on_trying() {
  write /etc/systemd/system/paddle-cluster.service 644 <<END
[Unit]
Description=Brings this machine into the cluster
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart=$HERE/$ROLE.sh
# What failed may pass (an outage of a service): nobody else would look, Auto Scaling calls the machine healthy.
Restart=on-failure
RestartSec=60
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
END
  # k3s renews the certificates that are about to end when it starts; a machine may well run longer than they.
  write /etc/systemd/system/paddle-cluster.timer 644 <<'END'
[Unit]
Description=Renews the cluster's certificates on this machine

[Timer]
OnCalendar=monthly
RandomizedDelaySec=6h

[Install]
WantedBy=timers.target
END
  systemctl daemon-reload
  systemctl enable paddle-cluster.service paddle-cluster.timer
  systemctl start paddle-cluster.timer
}

need_tools() {
  local tool
  for tool in "$@"; do
    type -P "$tool" >/dev/null || fail "$tool is not on this machine's image: these scripts are for Amazon Linux 2023"
  done
}

# Instance metadata, version 2. The session's token goes through a pipe: arguments can be seen by all.
metadata() {
  local from=http://169.254.169.254/latest token
  token=$(curl -sf --max-time 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$from/api/token") || return 1
  printf 'X-aws-ec2-metadata-token: %s\n' "$token" | curl -sf --max-time 5 -H @- "$from/meta-data/$1"
}

know_thyself() {
  local told
  until told=$(metadata instance-id) && INSTANCE_TYPE=$(metadata instance-type) && ZONE=$(metadata placement/availability-zone); do
    again "the instance metadata did not answer within $DEADLINE_SECONDS s: the launch template has to allow it (HttpEndpoint)"
  done
  INSTANCE=$told
}

# fetch NAME TARGET MODE: the file of FILES, from the bucket unless it is there already; refused when it is another.
fetch() {
  local name uri sum part
  while read -r name uri sum; do
    [ "$name" = "$1" ] && break
  done <<<"$FILES"
  [ "$name" = "$1" ] || fail "FILES names no $1: the stack and its scripts are of different versions"
  if [ -f "$2" ] && [ "$(sha256 "$2")" = "$sum" ]; then return 0; fi
  mkdir -p "$(dirname "$2")"
  part="$2.part"
  until aws s3 cp --only-show-errors "$uri" "$part"; do
    again "$uri could not be downloaded within $DEADLINE_SECONDS s: see the lines above"
  done
  if [ "$(sha256 "$part")" != "$sum" ]; then
    rm -f "$part"
    fail "$uri is not the file that the template names (SHA-256 $sum): not used"
  fi
  chmod "$3" "$part"
  mv -f "$part" "$2"
}

sha256() { sha256sum "$1" | cut -d ' ' -f 1; }

# read_token SECRET FILE: a token from Secrets Manager into a file that only root reads, never through a variable.
read_token() {
  local file="$SECRETS/$2"
  until (umask 077 && aws secretsmanager get-secret-value --secret-id "$1" --query SecretString --output text 2>"$file.error" |
    tr -d '\n' >"$file.part"); do
    again "the token $1 could not be read within $DEADLINE_SECONDS s: $(tail -n 1 "$file.error")"
  done
  grep -Eqx '[A-Za-z0-9]{32,}' "$file.part" || fail "the token $1 is no token: wanted are at least 32 letters and digits"
  mv -f "$file.part" "$file"
}

# State is sealed with the server token that it began under, and k3s keeps that beside it: a volume that outlived its deployment is
# opened with its own token, a new one takes the secret's.
read_server_token() {
  read_token "$SERVER_TOKEN_SECRET" server-token
  [ -s "$STATE/token" ] || return 0
  sed 's/^K10[0-9a-f]*::server://' "$STATE/token" | tr -d '\n' | write "$SECRETS/server-token.own" 600
  if ! cmp -s "$SECRETS/server-token" "$SECRETS/server-token.own"; then
    say "the state volume began under another server token than $SERVER_TOKEN_SECRET holds: its own is used"
  fi
  mv -f "$SECRETS/server-token.own" "$SECRETS/server-token"
}

# What kubelet checks under protect-kernel-defaults, and what the pod network needs of the kernel.
prepare_kernel() {
  local module
  for module in overlay br_netfilter vxlan nf_conntrack; do
    modprobe "$module" || fail "this kernel has no module $module, which the pod network needs"
  done
  write /etc/sysctl.d/90-paddle-cluster.conf 644 <<'END'
vm.overcommit_memory = 1
vm.panic_on_oom = 0
kernel.panic = 10
kernel.panic_on_oops = 1
kernel.keys.root_maxkeys = 1000000
kernel.keys.root_maxbytes = 25000000
net.ipv4.ip_forward = 1
END
  sysctl -q -p /etc/sysctl.d/90-paddle-cluster.conf
  # systemd would give these devices addresses of its own after the pod network has told the other machines theirs
  # (https://github.com/flannel-io/flannel/issues/1155, https://github.com/awslabs/amazon-eks-ami/issues/2316).
  write /etc/systemd/network/10-pod-network.link 644 <<'END'
[Match]
OriginalName=flannel* cni* veth*

[Link]
MACAddressPolicy=none
END
  udevadm control --reload
}

# write FILE MODE <text: there whole or as it was.
write() {
  mkdir -p "$(dirname "$1")"
  (umask 077 && cat >"$1.part")
  chmod "$2" "$1.part"
  mv -f "$1.part" "$1"
}

# The distribution's two files, and kubelet's way to ECR.
install_distribution() {
  fetch k3s "$K3S" 755
  fetch k3s-airgap-images-amd64.tar.zst "$AGENT/images/k3s-airgap-images-amd64.tar.zst" 644
  fetch ecr-credentials /var/lib/rancher/credentialprovider/bin/ecr-credentials 755
  write /var/lib/rancher/credentialprovider/config.yaml 644 <<'END'
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: ecr-credentials
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    matchImages:
      - "*.dkr.ecr.*.amazonaws.com"
      - "*.dkr.ecr.*.amazonaws.com.cn"
    defaultCacheDuration: 6h
END
}

# A YAML list item for each word, quoted: `list NAME WORD...`; nothing without words.
list() {
  local name=$1
  shift
  [ $# -gt 0 ] || return 0
  echo "$name:"
  printf '  - "%s"\n' "$@"
}

# install_service UNIT SUBCOMMAND [LINES OF THE UNIT'S FIRST SECTION]: k3s itself. Not enabled: each boot's script starts it.
install_service() {
  write "/etc/systemd/system/$1" 644 <<END
[Unit]
Description=Kubernetes by k3s ($2)
Wants=network-online.target
After=network-online.target
${3:-}

[Service]
Type=notify
ExecStart=$K3S $2
Restart=always
RestartSec=5
# Pods outlive a restart of k3s.
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity
TimeoutStartSec=0
OOMScoreAdjust=-999
END
}

# start UNIT WHAT COMMAND...: starts k3s and waits until COMMAND succeeds.
start() {
  local unit=$1 what=$2
  shift 2
  # Stopped first, and waited for: or else a k3s that is about to go would pass for ready.
  systemctl stop "$unit"
  systemctl start --no-block "$unit"
  until "$@" >/dev/null 2>&1; do
    if [ "$SECONDS" -ge "$DEADLINE_SECONDS" ]; then
      journalctl -u "$unit" -n 15 --no-pager -o cat >&2 || true
      fail "$what was not ready within $DEADLINE_SECONDS s: the lines above are the last that $unit wrote"
    fi
    sleep "$POLL_SECONDS"
  done
}
