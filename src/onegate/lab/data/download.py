"""Downloads: mirrors in order, resumed by the next try, never a half file under the final name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pooch
import requests
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from onegate import files
from onegate.lab import signs_of_life

from .sources import DataError, SourceFile

# Called with the bytes that are there and the bytes of the whole file, if the server tells.
Report = Callable[[int, int | None], None]

_SLOWEST = 1_000  # bytes per second; below that the next mirror is tried
_CHUNK = 512  # bytes; a read returns when the chunk is full, so a small one keeps watching


@contextmanager
def transfer_bar(name: str) -> Iterator[Report]:
    """A progress bar on a terminal, one plain line elsewhere; yields `report(done, total)`.

    Of a file that did not come nothing stays: who asked says so.
    """
    console = signs_of_life()
    if not console.is_terminal:
        said = False

        def say(_done: int, _total: int | None) -> None:
            nonlocal said
            if not said:
                console.print(f"downloading {name}")
            said = True

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(name, total=None)
        try:
            yield lambda done, total: progress.update(task, completed=done, total=total)
        except BaseException:
            progress.remove_task(task)
            raise


class DownloadError(DataError):
    """No address gave the file; `problems` has one line per address."""

    def __init__(self, file: SourceFile, problems: list[str]) -> None:
        super().__init__(f"{file.name} could not be downloaded:\n  " + "\n  ".join(problems))
        self.problems = problems


def download(
    file: SourceFile,
    folder: Path,
    *,
    patience: float = 30.0,
    bar: Callable[[str], AbstractContextManager[Report]] = transfer_bar,
) -> Path:
    """Brings a file into a folder and returns its path; `patience` is in seconds.

    What was received before an interruption is kept as `name.part`, and the next call goes on
    from there. The file gets its final name only after its checksum was found right.
    """
    path = folder / file.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with files.locked(folder / f".{file.name}.lock"), _quiet_pooch(), bar(file.name) as report:
            return _first_good(file, path, _Resuming(path, patience, report))
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"{file.name} cannot be written to {folder}: {error}. Make room or allow writing "
            "there, or set ONEGATE_DATA to another folder"
        ) from error


@contextmanager
def _quiet_pooch() -> Iterator[None]:
    # Its messages would tear the progress bar apart and repeat what errors say. (It caches its
    # level for good, so setting another one has no lasting effect.)
    logger = pooch.get_logger()
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _first_good(file: SourceFile, path: Path, downloader: _Resuming) -> Path:
    problems = []
    for url in file.urls:
        # Bytes left over from an earlier try may be at fault: then once more from the beginning.
        for _ in range(2):
            try:
                pooch.retrieve(url, file.checksum, path.name, path.parent, downloader=downloader)
                return path
            except requests.RequestException as error:
                problems.append(f"{url}: {_reason(error)}")
                break
            except ValueError as error:
                problems.append(f"{url}: {error}")
                if not downloader.resumed:
                    break
    raise DownloadError(file, problems)


class _Resuming:
    """A downloader for pooch that goes on where an earlier try stopped."""

    def __init__(self, path: Path, patience: float, report: Report) -> None:
        self.part = path.with_name(path.name + ".part")
        self.patience = patience
        self.report = report
        self.resumed = False

    def __call__(self, url: str, output_file: str, _: object) -> None:
        done = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
        with requests.get(url, headers=headers, stream=True, timeout=self.patience) as response:
            self.resumed = done > 0 and response.status_code in (206, 416)
            # 416: there is nothing after what we have. The checksum will tell if that is right.
            if response.status_code != 416:
                response.raise_for_status()
                self._receive(response, done if self.resumed else 0)
        self.part.replace(output_file)

    def _receive(self, response: requests.Response, done: int) -> None:
        rest = response.headers.get("Content-Length")
        total = done + int(rest) if rest else None
        with self.part.open("ab" if done else "wb") as out:
            for chunk in _watched(response.iter_content(_CHUNK), self.patience):
                out.write(chunk)
                done += len(chunk)
                self.report(done, total)


def _watched(chunks: Iterator[bytes], patience: float) -> Iterator[bytes]:
    """Passes chunks on; gives up if over `patience` seconds they came too slowly."""
    since, received = time.monotonic(), 0
    for chunk in chunks:
        yield chunk
        received += len(chunk)
        waited = time.monotonic() - since
        if waited > patience:
            if received < _SLOWEST * waited:
                raise requests.Timeout(f"only {received} bytes in {waited:.1f} s")
            since, received = time.monotonic(), 0


def _reason(error: requests.RequestException) -> str:
    response = error.response
    if response is not None:
        return f"the server answered {response.status_code} {response.reason}"
    if isinstance(error, requests.ConnectionError):
        return f"no connection ({type(error).__name__}); is this machine offline?"
    return str(error)
