"""The organization's own settings, beside ours in cluster.yaml."""

from pydantic import Field

from paddle_aws.stacks.cluster_spec import ClusterSpec


class OrgSpec(ClusterSpec):
    """Adds what this organization's clusters need."""

    cost_center: str
    """Who pays."""
    openzfs_gib: int | None = Field(default=None, ge=64)
    """Size of an FSx for OpenZFS file system; unset: jobs share EFS."""

    @property
    def all_tags(self) -> dict[str, str]:
        """The tags of every resource."""
        return {**super().all_tags, "cost-center": self.cost_center}
