"""What pages are made of: figures, markup, one look in light and dark."""
