"""Files of what was read at its source: versions, hashes and prices, each with its date."""
