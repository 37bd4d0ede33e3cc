"""What reads the files that a person hands in. Stacks, charts and commands use it; it knows none of them."""
