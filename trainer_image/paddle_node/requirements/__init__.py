"""What a program requires beside Paddle: built once into an environment, which pods unpack."""
