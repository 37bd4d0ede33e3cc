"""Names on the volume; all but the job's folder are ours."""

DATA_MANIFEST = "data-manifest.json"
"""In the job's folder, written last by the split: its presence means that the split is complete
(ours).
"""
INPUTS = "shared/inputs"
"""On the volume: one copy of each content that jobs have as an input, under its digest (ours)."""
ENVIRONMENTS = "shared/environments"
"""On the volume: the environments of programs' requirements, each under its digest (ours)."""
SOURCES = "sources"
"""In the job's folder: data files that the user's machine uploads there (ours)."""
SPLIT_MANIFEST = "manifest.json"
"""The data manifest in the split's own folder, created exclusively and never replaced (ours)."""

NOT_IN_PATHS = frozenset(" \t\n\"'\\$`&|;<>(){}[]*?")
"""Characters that no path of the volume may contain: parameter servers of 2.6.2 save through a
shell and quote nothing.
"""
