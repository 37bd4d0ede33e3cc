"""What kind of Paddle does a trainer's work: pservers that hold the parameters, or a whole model a trainer."""
