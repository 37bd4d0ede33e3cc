# A new Lustre file system belongs to root: its root is given to the jobs' user, once. In a subshell:
# the machine becomes a node whatever happens here.
(
    set +e
    folder=$$(mktemp -d)
    dnf -y -q install lustre-client ||
        echo "paddle-cluster: lustre-client cannot be installed for kernel $$(uname -r)" >/dev/console
    if mount -t lustre -o relatime,flock "$source" "$$folder"; then
        if [ "$$(stat -c %u "$$folder")" = 0 ]; then
            chown $owner:$owner "$$folder" ||
                echo "paddle-cluster: the root of $source still belongs to root" >/dev/console
        fi
        umount "$$folder"
    else
        echo "paddle-cluster: $source cannot be mounted on kernel $$(uname -r): no pod of this node" \
            "can mount it, and its root still belongs to root" >/dev/console
    fi
) || true
