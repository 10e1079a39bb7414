"""The laboratory: tasks, training, sweeps, reports, benchmarks and the command line."""

from onegate.extras import need

need("onegate.lab", "lab")


class StoppedError(Exception):
    """Training was asked to stop; it is saved, and the message says how to go on."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
