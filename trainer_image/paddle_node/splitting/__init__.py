"""How the data job turns a source into shards.

    source -> objects -> units -> counted -> (shuffled) -> parts -> committed

`sources` lists the objects, `units` makes each readable in place, `counting` learns how many records lie where,
`shuffle` brings them into a seeded order out of core, `parts` writes the shards' files, `commit` puts them in
place and the manifest last. `steps` runs all of it as pieces of work that survive any pod and that several pods share.
"""
