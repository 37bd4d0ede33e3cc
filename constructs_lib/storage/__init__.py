"""What must not get lost: KMS key, EFS, S3, ECR."""
