# A new Lustre file system belongs to root: its root is given to the jobs' user, once. A machine that
# cannot do that becomes no node: every pod on it would wait for its volume for ever. Amazon Linux
# starts the kubelet after this script (nodeadm-run.service, after cloud-init).
prepare_lustre() {
    folder=$$(mktemp -d) && dnf -y -q install lustre-client &&
        mount -t lustre -o relatime,flock "$source" "$$folder" || return 1
    if [ "$$(stat -c %u "$$folder")" = 0 ]; then
        chown $owner:$owner "$$folder" || return 1
    fi
    umount "$$folder"
}
for pause in 10 20 40 0; do
    if prepare_lustre; then break; fi
    if [ "$$pause" = 0 ]; then
        echo "paddle-cluster: $source cannot be mounted on kernel $$(uname -r), so this machine" \
            "becomes no node" >/dev/console
        systemctl mask --now nodeadm-run.service kubelet.service
        exit 1
    fi
    sleep "$$pause"
done
