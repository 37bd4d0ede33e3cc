"""The data job: deals records into part files in one pass and writes the manifest last.
`split_data.py` starts it.
"""
