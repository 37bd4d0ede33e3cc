"""Where records come from: files, HTTP, S3, packed or not. The data job comes in through `source`."""
