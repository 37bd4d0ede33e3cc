# What control plane and nodes need at boot, beside boot.sh, and what an operator's restore needs
# too. Read by the others, never run.

# shellcheck shell=bash disable=SC2034  # What is set here, the others read.
STATE=/var/lib/rancher/k3s/server
AGENT=/var/lib/rancher/k3s/agent
K3S=/usr/local/bin/k3s

# Instance metadata, version 2. The session's token goes through a pipe: arguments can be seen by
# all.
metadata() {
  local from=http://169.254.169.254/latest token
  token=$(curl -sf --max-time 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$from/api/token") || return 1
  printf 'X-aws-ec2-metadata-token: %s\n' "$token" | curl -sf --max-time 5 -H @- "$from/meta-data/$1"
}

# prepare_machine NODE-NAME: the kernel, and what the machine alone knows of k3s's settings.
prepare_machine() {
  local type zone
  until type=$(metadata instance-type) && zone=$(metadata placement/availability-zone); do
    again "the instance metadata did not answer within $DEADLINE_SECONDS s: the launch template has to allow it (HttpEndpoint)"
  done
  systemctl restart systemd-modules-load.service systemd-sysctl.service
  udevadm control --reload
  write /etc/rancher/k3s/config.yaml.d/machine.yaml 600 <<END
node-name: $1
node-label+:
  - topology.kubernetes.io/region=$AWS_REGION
  - topology.kubernetes.io/zone=$zone
  - node.kubernetes.io/instance-type=$type
END
}

# read_token SECRET FILE: a token from Secrets Manager into a file that only root reads, never
# through a variable.
read_token() {
  local file="$SECRETS/$2"
  until (umask 077 && aws secretsmanager get-secret-value --secret-id "$1" --query SecretString --output text 2>"$file.error" |
    tr -d '\n' >"$file.part"); do
    again "the token $1 could not be read within $DEADLINE_SECONDS s: $(tail -n 1 "$file.error")"
  done
  grep -Eqx '[A-Za-z0-9]{32,}' "$file.part" || fail "the token $1 is no token: wanted are at least 32 letters and digits"
  mv -f "$file.part" "$file"
}

# State is sealed with the server token that it began under, and k3s keeps that beside it: a volume
# that outlived its deployment is opened with its own token, a new one takes the secret's.
read_server_token() {
  read_token "$SERVER_TOKEN_SECRET" server-token
  [ -s "$STATE/token" ] || return 0
  sed 's/^K10[0-9a-f]*::server://' "$STATE/token" | tr -d '\n' | write "$SECRETS/server-token.own" 600
  if ! cmp -s "$SECRETS/server-token" "$SECRETS/server-token.own"; then
    say "the state volume began under another server token than $SERVER_TOKEN_SECRET holds: its own is used"
  fi
  mv -f "$SECRETS/server-token.own" "$SECRETS/server-token"
}

# write FILE MODE <text: there whole or as it was.
write() {
  mkdir -p "$(dirname "$1")"
  (umask 077 && cat >"$1.part")
  chmod "$2" "$1.part"
  mv -f "$1.part" "$1"
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
