"""Pages that look inside trained runs."""
