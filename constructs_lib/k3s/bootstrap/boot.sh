#!/bin/bash
# A machine's boot, each time: the files that the template names, then its role's script. Stands in
# the user data, which has 16 KB: anything longer belongs into the scripts. restore.sh reads it for
# what it needs of it.
#
# Promises: whatever goes wrong ends the boot with one sentence on the console and, while a deploy
# waits for this machine, a FAILURE signal, and systemd tries the boot again; all the waiting
# together ends at the deadline; no secret is in an argument, a variable or a log.

# shellcheck disable=SC2034  # What is set here, the others read.
set -eEuo pipefail
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 022

HERE=/opt/paddle-cluster
# Gone with the power: secrets are read again at each boot.
SECRETS=/run/paddle-cluster

# An address that does not answer costs half a minute, not three: what is wrong is said while the
# deploy still waits.
aws() { command aws --cli-connect-timeout 10 "$@"; }

say() { echo "paddle-cluster: $1" >&2; }

fail() {
  trap - ERR EXIT
  say "$1"
  signal FAILURE
  exit 1
}
# EXIT too: an unset variable is no ERR.
trap '[ $? = 0 ] || fail "${BASH_SOURCE[0]##*/} stopped at line $LINENO, where \"$BASH_COMMAND\" failed: see the lines above"' ERR EXIT

# Tells CloudFormation, once in a machine's life, taken or not: a later one would count in a deploy
# that waits for another machine.
signal() {
  if [ -z "${SIGNAL_STACK:-}" ] || [ -e "$HERE/signalled" ]; then return 0; fi
  touch "$HERE/signalled"
  aws cloudformation signal-resource --stack-name "$SIGNAL_STACK" --logical-resource-id "$SIGNAL_RESOURCE" \
    --unique-id "$INSTANCE" --status "$1" ||
    say "the signal $1 for $SIGNAL_RESOURCE was not taken: nobody waits for it, or the role may not send it"
}

# shellcheck source=/dev/null
. /etc/paddle-cluster/environment
: "${DEADLINE_SECONDS:=780}" "${POLL_SECONDS:=5}"
INSTANCE=$(cat /var/lib/cloud/data/instance-id)
export AWS_REGION AWS_DEFAULT_REGION="$AWS_REGION" AWS_PAGER=''

# One boot at a time: systemd's, an operator's.
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

sha256() { sha256sum "$1" | cut -d ' ' -f 1; }

# Each of FILES to its place, from the bucket unless it is there already; refused when it is
# another.
fetch_files() {
  local path uri sum
  while read -r path uri sum; do
    if [ -f "$path" ] && [ "$(sha256 "$path")" = "$sum" ]; then continue; fi
    mkdir -p "$(dirname "$path")"
    until aws s3 cp --only-show-errors "$uri" "$path.part"; do
      again "$uri could not be downloaded within $DEADLINE_SECONDS s: see the lines above"
    done
    if [ "$(sha256 "$path.part")" != "$sum" ]; then
      rm -f "$path.part"
      fail "$uri is not the file that the template names (SHA-256 $sum): not used"
    fi
    case "$path" in *.sh | */bin/*) chmod 755 "$path.part" ;; esac
    mv -f "$path.part" "$path"
  done <<<"$FILES"
}

[ "$0" = "$HERE/boot.sh" ] || return 0
only_one
fetch_files
# shellcheck source=/dev/null
. "$HERE/$ROLE.sh"
