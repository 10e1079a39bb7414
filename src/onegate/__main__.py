"""`python -m onegate` is the `onegate` command."""

from __future__ import annotations

import sys

from onegate.lab.cli import main

sys.exit(main())
