# shellcheck shell=bash source=/dev/null
# The rest of the user data, behind the lines that write /etc/paddle-cluster/environment: fetches the scripts, checks them,
# hands over to the role's. Short, because user data has 16 KB; anything longer belongs into the scripts.
set -euo pipefail
. /etc/paddle-cluster/environment

# Says it, and once to the deploy that may wait for this machine: shared.sh looks at the same mark.
failed() {
  echo "paddle-cluster: $1" >&2
  if [ -z "${SIGNAL_STACK:-}" ] || [ -e /opt/paddle-cluster/signalled ]; then return 0; fi
  touch /opt/paddle-cluster/signalled
  aws cloudformation signal-resource --region "$AWS_REGION" --stack-name "$SIGNAL_STACK" --logical-resource-id "$SIGNAL_RESOURCE" \
    --unique-id "$(cat /var/lib/cloud/data/instance-id)" --status FAILURE || true
}

refuse() {
  failed "$1"
  exit 1
}

install -d -m 755 /opt/paddle-cluster
while read -r name uri sum; do
  case "$name" in *.sh) ;; *) continue ;; esac
  part="/opt/paddle-cluster/$name.part"
  # A new machine's role may take some seconds to be known everywhere; an outage ends, and nobody else would try again.
  until aws s3 cp --cli-connect-timeout 10 --only-show-errors --region "$AWS_REGION" "$uri" "$part"; do
    [ "$SECONDS" -lt "${DEADLINE_SECONDS:-780}" ] || failed "$uri could not be downloaded yet: see the line above"
    sleep "${POLL_SECONDS:-5}"
  done
  [ "$(sha256sum "$part" | cut -d ' ' -f 1)" = "$sum" ] || refuse "$uri is not the file that the template names (SHA-256 $sum): not run"
  chmod 755 "$part"
  mv "$part" "/opt/paddle-cluster/$name"
done <<<"$FILES"
# The role's script has what is left of the time: or else its signal would come after CloudFormation has gone.
export SECONDS
exec "/opt/paddle-cluster/$ROLE.sh"
