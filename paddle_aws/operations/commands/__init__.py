"""One thin command per file: it reads its options, calls jobs/, cluster/ or account/, and prints.
`main` registers them.
"""
