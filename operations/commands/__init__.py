"""One command a file, thin: it reads its options, calls jobs/, cluster/ or account/, and prints. `main` registers them."""
