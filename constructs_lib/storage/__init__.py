"""Resources that hold data: file systems, bucket, image repository, and the KMS key."""
