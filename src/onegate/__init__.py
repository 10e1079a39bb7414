"""Recurrent units written once as equations."""
