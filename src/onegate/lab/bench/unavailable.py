"""Why a contestant does not take part."""

from __future__ import annotations


class Unavailable(Exception):  # noqa: N818 - a reason, not a fault
    """The contestant cannot run here, or not on this shape; the message is the reason."""
