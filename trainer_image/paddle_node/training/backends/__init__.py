"""What does a trainer's work in Paddle: parameter servers, or a whole model in each trainer. The passes come in by `backend`."""
