"""What all tests need."""

import signal

# a shell starts what it puts in the background with SIGINT ignored, and children inherit that:
# the tests that interrupt would wait for ever
signal.signal(signal.SIGINT, signal.default_int_handler)
