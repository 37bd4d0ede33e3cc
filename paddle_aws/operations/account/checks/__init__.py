"""What `doctor` asks of an account and of a cluster in it; `diff` asks some of it too."""
