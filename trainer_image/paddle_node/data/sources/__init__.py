"""Where records come from: files, HTTP or S3, packed or not. The data job opens a source through
`registry`.
"""
