"""The data job: one pass over the sources deals records into part files; the manifest comes last. `split_data.py` starts it."""
