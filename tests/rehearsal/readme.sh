# Stand-ins for an account, a cluster and a registry in the test of README's commands. Each shell
# reads this file (BASH_ENV). Limits: cdk asks nothing, pkill reaches only its own folder's
# programs, the tests serve prices, k3s's files and the cluster API.
cdk() {
    case "$1" in
        deploy) command cdk "$@" --require-approval never ;;
        destroy) command cdk "$@" --force ;;
        *) command cdk "$@" ;;
    esac
}
paddle-aws() {
    case "$*" in
        "lock prices") set -- "$@" --files "$PRICES" ;;
        "lock distribution") set -- "$@" --channels "$K3S/channels" --releases "$K3S/releases" --charts "$K3S/charts" ;;
    esac
    PYTHONPATH="$PWD:$PWD/trainer_image" command paddle-aws "$@"
    if [ "$1" = kubeconfig ]; then
        sed -i "s#server: .*#server: $KUBERNETES#" "$HOME/.kube/config"
    fi
}
pkill() {
    local signal="$1" newest="" pid pids=()
    shift
    if [ "$1" = -n ]; then newest=yes; shift; fi
    for pid in $(pgrep "$@"); do
        if tr '\0' '\n' <"/proc/$pid/environ" | grep -q "$PWD"; then pids+=("$pid"); fi
    done
    [ "${#pids[@]}" -gt 0 ] || return 1
    if [ -n "$newest" ]; then pids=("${pids[-1]}"); fi
    kill "$signal" "${pids[@]}"
}
