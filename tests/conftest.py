"""What holds for every room's tests."""

import signal

# A shell's background job (`make test &`, a CI's wrapper) ignores SIGINT, and so would every
# program that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
