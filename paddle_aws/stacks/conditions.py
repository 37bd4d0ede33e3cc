"""When settings of cluster.yaml count: conditions that stand beside the settings."""

from paddle_settings.conditions import in_file, in_group

EKS = in_file("with `cluster.kind: eks`", lambda spec: not spec.cluster.self_managed)
SELF_MANAGED = in_file("with `cluster.kind: self-managed`", lambda spec: spec.cluster.self_managed)
NEW_CLUSTER = in_group("without `cluster.existing`", lambda cluster: cluster.existing is None)
REACHED = in_group(
    "with `cluster.elastic_ip` or `cluster.kind: eks`",
    lambda cluster: cluster.elastic_ip or not cluster.self_managed,
)
PRIVATE = in_group(
    "without `cluster.public_access_from`", lambda cluster: not cluster.public_access_from
)
OURS = in_file("without `cluster.existing`", lambda spec: spec.cluster.existing is None)
PUBLIC = in_file(
    "with `cluster.public_access_from`",
    lambda spec: bool(spec.cluster.public_access_from or spec.cluster.existing),
    "or name there who may reach the endpoint",
)
FIXED = in_file("with `compute: fixed`", lambda spec: not spec.auto)
MOUNTED = in_file(
    "with `compute: fixed` and `file_system.kind: efs`",
    lambda spec: not (spec.auto or spec.file_system.lustre),
    "jobs mount the file system by `volume.kind`",
)
MANAGED = in_group("with `kind: managed`", lambda nodes: nodes.kind == "managed")
ADMINISTRATOR = in_file(
    "with `deployer: administrator`", lambda spec: spec.deployer == "administrator"
)
NEW_VPC = in_group("without `network.existing`", lambda network: network.existing is None)
NEW_ZONE = in_group("without `zone.existing`", lambda zone: zone.existing is None)
NEW_BUCKET = in_group("without `bucket.existing_name`", lambda bucket: not bucket.existing_name)
OLD_BUCKET = in_group("with `bucket.existing_name`", lambda bucket: bool(bucket.existing_name))
MOUNT_TARGETS = in_group("with `security_group`", lambda existing: bool(existing.security_group))
EFS = in_group("with `file_system.kind: efs`", lambda files: not files.lustre)
LUSTRE = in_group("with `file_system.kind: lustre`", lambda files: files.lustre)
NEW_FILES = in_group("without `file_system.existing`", lambda files: files.existing is None)
PROVISIONED = in_group(
    "with `file_system.throughput: provisioned`", lambda files: files.throughput == "provisioned"
)
NEW_IMAGES = in_group("without `images.existing`", lambda images: not images.existing)
