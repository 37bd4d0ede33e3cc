#!/bin/bash
# Deletes the Node objects whose machine EC2 has terminated: then Kubernetes gives up their pods,
# and the Job replaces them.
#
# Promises: only a node that is not ready and whose machine is gone for good; nothing at all when
# EC2 does not answer.
set -euo pipefail
# shellcheck source=/dev/null
. /etc/paddle-cluster/environment
K3S=/usr/local/bin/k3s

mapfile -t silent < <("$K3S" kubectl get nodes \
  -o 'jsonpath={range .items[*]}{.metadata.name}{" "}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' |
  awk '$1 ~ /^i-/ && $2 != "True" {print $1}')
[ "${#silent[@]}" -gt 0 ] || exit 0

# By filter, not by --instance-ids: those fail as a whole when EC2 has forgotten one of them.
alive=$(aws ec2 describe-instances --region "$AWS_REGION" --output text --query 'Reservations[].Instances[].InstanceId' \
  --filters "Name=instance-id,Values=$(IFS=,; echo "${silent[*]}")" \
  'Name=instance-state-name,Values=pending,running,stopping,stopped')
for node in "${silent[@]}"; do
  case " ${alive//[[:space:]]/ } " in
    *" $node "*) ;;
    *)
      echo "paddle-cluster: the machine of node $node is gone: forgotten" >&2
      "$K3S" kubectl delete node "$node"
      ;;
  esac
done
