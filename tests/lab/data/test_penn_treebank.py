from __future__ import annotations

import gzip
import hashlib
import io
import math
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from onegate.lab.data import (
    DamagedDataError,
    PennTreebank,
    columns,
    penn_treebank,
    ptb,
    segments,
    source_files,
    unigram_perplexity,
)
from onegate.lab.data.sources import PTB, Source, SourceFile

TEXTS = {
    "ptb.train.txt": b" the cat sat on the mat \n the dog <unk> \n",
    "ptb.valid.txt": b" the dog sat \n",
    "ptb.test.txt": b" the cat <unk> \n on \n",
}


def source_of(*layouts: dict[str, bytes]) -> Source:
    made = (
        tuple(
            SourceFile(name, f"md5:{hashlib.md5(content).hexdigest()}", ())
            for name, content in files.items()
        )
        for files in layouts
    )
    return replace(PTB, layouts=tuple(made))


def archive_of(texts: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in {"README": b"", **texts}.items():
            member = tarfile.TarInfo(f"./simple-examples/data/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


@pytest.mark.parametrize("folder", [".", "ptb"])
@pytest.mark.parametrize("packed", [False, True], ids=["texts", "archive"])
def test_layouts(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, folder: str, packed: bool
) -> None:
    files = {"simple-examples.tgz": archive_of(TEXTS)} if packed else TEXTS
    (data_folder / folder).mkdir(exist_ok=True)
    for name, content in files.items():
        (data_folder / folder / name).write_bytes(content)
    archive = {"simple-examples.tgz": archive_of(TEXTS)}
    monkeypatch.setattr(penn_treebank, "PTB", source_of(TEXTS, archive))

    texts = ptb(download=False)
    assert texts.vocabulary == ("the", "<eos>", "<unk>", "cat", "dog", "mat", "on", "sat")
    train, valid, test = (
        " ".join(texts.vocabulary[number] for number in numbers)
        for numbers in (texts.train, texts.valid, texts.test)
    )
    assert train == "the cat sat on the mat <eos> the dog <unk> <eos>"
    assert valid == "the dog sat <eos>"
    assert test == "the cat <unk> <eos> on <eos>"
    assert texts.train.dtype == np.int32


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (
            archive_of({**TEXTS, "ptb.test.txt": b" the cat \n"}),
            r"checksum of ptb\.test\.txt",
        ),
        (archive_of({"ptb.train.txt": b""}), r"the checksum of ptb\.train\.txt in it is md5"),
        (archive_of({}), r"it does not hold ptb\.train\.txt"),
        (archive_of(TEXTS)[:-30], "it is no whole gzip file"),
        (gzip.compress(b"hello"), "it is no whole tar archive"),
        (archive_of({**TEXTS, "more": bytes(2_000_000)}), "unpack to more than 1,000,000"),
    ],
    ids=["text", "cut text", "no text", "cut", "no archive", "large"],
)
def test_an_archive_with_other_contents_is_refused(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, packed: bytes, message: str
) -> None:
    """Even if it has the checksum that is asked for: that of the archive is a weak one."""
    monkeypatch.setattr(source_files, "LARGEST_ARCHIVE", 1_000_000)
    (data_folder / "simple-examples.tgz").write_bytes(packed)
    source = source_of(TEXTS, {"simple-examples.tgz": packed})
    monkeypatch.setattr(penn_treebank, "PTB", source)
    with pytest.raises(DamagedDataError, match=rf"examples\.tgz is damaged.*{message}.*fetch"):
        ptb(download=False)


def test_real_counts(real_ptb: PennTreebank) -> None:
    tokens = [len(text) for text in (real_ptb.train, real_ptb.valid, real_ptb.test)]
    assert tokens == [929_589, 73_760, 82_430]
    distinct = [len(np.unique(t)) for t in (real_ptb.train, real_ptb.valid, real_ptb.test)]
    assert distinct == [10_000, 6_022, 6_049]
    assert len(set(real_ptb.vocabulary)) == 10_000
    end, unknown = (real_ptb.vocabulary.index(word) for word in ("<eos>", "<unk>"))
    for text, lines, unknowns in (
        (real_ptb.train, 42_068, 45_020),
        (real_ptb.valid, 3_370, 3_485),
        (real_ptb.test, 3_761, 4_794),
    ):
        assert (text == end).sum() == lines
        assert (text == unknown).sum() == unknowns
        assert text[-1] == end


def test_real_vocabulary_is_ordered_by_frequency(real_ptb: PennTreebank) -> None:
    counts = np.bincount(real_ptb.train)
    assert (np.diff(counts) <= 0).all()
    assert real_ptb.vocabulary[0] == "the"


def test_real_unigram_perplexity(real_ptb: PennTreebank) -> None:
    """Against a count with a dictionary, in plain Python."""
    counts = Counter(real_ptb.train.tolist())
    total = sum(counts.values())
    test = real_ptb.test.tolist()
    bits = -math.fsum(math.log2(counts[word] / total) for word in test) / len(test)
    assert unigram_perplexity(real_ptb.train, real_ptb.test) == pytest.approx(2**bits)
    assert 600 < 2**bits < 800


def test_unigram_perplexity_of_an_even_text_is_its_vocabulary() -> None:
    train = np.arange(8, dtype=np.int32).repeat(3)
    assert unigram_perplexity(train, train[:6]) == pytest.approx(8)


def test_unigram_perplexity_of_a_new_word() -> None:
    train, text = np.array([0, 2], np.int32), np.array([0, 1], np.int32)
    with pytest.raises(ValueError, match="word 1 of the text"):
        unigram_perplexity(train, text)


def test_columns_are_read_downwards() -> None:
    table = columns(np.arange(23, dtype=np.int32), batch=4)
    assert table.T.tolist() == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10, 11, 12, 13, 14],
        [15, 16, 17, 18, 19],
    ]


def test_segments_cover_all_targets_once() -> None:
    table = columns(np.arange(100, dtype=np.int32), batch=5)
    pieces = list(segments(table, steps=6))
    assert [len(inputs) for inputs, _ in pieces] == [6, 6, 6, 1]
    for inputs, targets in pieces:
        assert (targets == inputs + 1).all()
    assert np.concatenate([targets for _, targets in pieces]).tolist() == table[1:].tolist()


def test_real_pass_has_the_updates_the_notes_speak_of(real_ptb: PennTreebank) -> None:
    assert len(list(segments(columns(real_ptb.train)))) == 1_328
