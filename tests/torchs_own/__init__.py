"""torch's own tests of its recurrent layers, run with ours in their place: `make test-torch`."""
