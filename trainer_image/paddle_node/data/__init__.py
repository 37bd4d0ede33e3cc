"""The data job's rooms: `sources` lists and opens what is to be split, `unpack` hands out the files in it."""
