"""The ground floor: what lies on the volume, and who may read it. Tools read it, too."""
