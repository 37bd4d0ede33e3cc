# A new Lustre file system belongs to root: its root is given to the jobs' user, once. In a subshell:
# the machine becomes a node whatever happens here.
(
    set +e
    folder=$$(mktemp -d)
    dnf -y -q install lustre-client
    if mount -t lustre -o relatime,flock "$source" "$$folder"; then
        if [ "$$(stat -c %u "$$folder")" = 0 ]; then chown $owner:$owner "$$folder"; fi
        umount "$$folder"
    else
        echo "paddle-cluster: $source cannot be mounted: its root still belongs to root" >/dev/console
    fi
) || true
