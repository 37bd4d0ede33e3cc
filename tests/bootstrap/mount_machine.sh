#!/bin/bash
# A machine in a mount namespace of its own: mount_machine.sh FOLDER-OF-THE-TEST MOUNT-POINT
# KUBELET-UNIT. Runs user-data, then what systemd would start, and writes what it saw to seen.json.
set -euo pipefail
test=$1 folder=$2 kubelet=$3
mount --make-rshared /
mount -t tmpfs tmpfs /run
for path in etc opt home var/lib usr/sbin usr/local/sbin; do
  mkdir -p "/run/layers/$path/upper" "/run/layers/$path/work"
  mount -t overlay overlay -o "lowerdir=/$path,upperdir=/run/layers/$path/upper,workdir=/run/layers/$path/work" "/$path"
done
mount --make-rshared /

stand_in() { install -m 755 /dev/stdin "$1"; }
stand_in /usr/local/sbin/systemctl <<<'#!/bin/bash'
stand_in /usr/local/sbin/systemd-notify <<END
#!/bin/bash
grep -q ' $folder ' /proc/self/mounts && echo mounted >>$test/ready
END
stand_in /usr/local/sbin/dnf <<END
#!/bin/bash
[ -e $test/asked ] || { touch $test/asked; echo "no route to host" >&2; exit 1; }
install -m 755 $test/mount.efs /usr/sbin/mount.efs
install -m 755 $test/watchdog /usr/sbin/amazon-efs-mount-watchdog
END
stand_in "$test/mount.efs" <<END
#!/bin/bash
[ -e $test/tried ] || { touch $test/tried; stat -c %a $folder >$test/mode; exit 32; }
echo "\$@" >>$test/helper
touch /run/efs/tunnel
mount -t tmpfs tmpfs "\$2"
END
stand_in "$test/watchdog" <<END
#!/bin/bash
echo \$\$ >$test/watchdog.pid
exec sleep 600
END

bash "$test/user-data"
unit=/etc/systemd/system/paddle-file-system.service
# systemd reads the kubelet's unit with its drop-ins.
[ -e "/etc/systemd/system/$kubelet" ] ||
  printf '[Service]\nExecStart=/bin/true\n' >"/etc/systemd/system/$kubelet"
sed -i 's|^ExecStart=/usr/local/bin/k3s.*|ExecStart=/bin/true|' "/etc/systemd/system/$kubelet"
systemd-analyze verify "/etc/systemd/system/$kubelet"
needs=$(sed -n 's/^Requires=//p' "/etc/systemd/system/$kubelet.d/"*.conf)

start() {
  # Word by word, as systemd does.
  # shellcheck disable=SC2046,SC2091
  POLL_SECONDS=0.1 $(sed -n 's/^ExecStart=//p' "$unit") >>"$test/console" 2>&1 &
  service=$!
}
lines() { [ ! -e "$1" ] || wc -l <"$1"; }
await() { for _ in {1..100}; do [ "$(lines "$test/ready")" = "$1" ] && return; sleep 0.1; done; return 1; }

start
await 1
machine=$(ls /run/efs)
apart=$(ls /run/paddle-file-system)
mounts=$(grep -o " $folder " /proc/self/mounts | xargs)
kill "$(cat "$test/watchdog.pid")"
wait "$service" && exit 1
start
await 2
kill "$service"
wait "$service" || true
sleep 0.2
left=0
# One that ended may still wait to be noticed.
! grep -q 'State:.[^ZX]' "/proc/$(cat "$test/watchdog.pid")/status" 2>/dev/null || left=1
cat >"$test/seen.json" <<END
{
  "kubelet needs": "$needs",
  "folder without it": "$(cat "$test/mode")",
  "ready": "$(head -1 "$test/ready")",
  "helper": "$(cat "$test/helper")",
  "machine's mounts": "$mounts",
  "machine's /run/efs": "$machine",
  "its own /run/efs": "$apart",
  "again": "$(xargs <"$test/ready")",
  "mounts made": "$(lines "$test/helper")",
  "watchdogs after a stop": "$left"
}
END
