from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from onegate.lab.data import (
    FIRST_WORD,
    PAD,
    UNKNOWN,
    DamagedDataError,
    Imdb,
    Ragged,
    Reviews,
    imdb,
    keep_frequent,
    movie_reviews,
    source_files,
)
from onegate.lab.data.movie_reviews import WordNumbers, words_of
from onegate.lab.data.source_files import obtain
from onegate.lab.data.sources import IMDB

# A data set of eight reviews with the inner paths of the real one.
VOCABULARY = b"the\nfilm\ngood\nbad\n!"
MEMBERS = {
    "aclImdb/imdb.vocab": VOCABULARY,
    "aclImdb/train/labeledBow.feat": b"9 1:1 2:2\n7 2:1 4:3\n1 3:1\n4 0:2 1:1 3:1\n",
    "aclImdb/test/labeledBow.feat": b"10 2:1\n8 0:1 1:1 2:1\n2 3:2\n3 1:1\n",
    "aclImdb/train/pos/0_9.txt": b"Good film, good.",
    "aclImdb/train/pos/1_7.txt": b"Good!!<br />!",
    "aclImdb/train/neg/0_1.txt": b"Bad \xe2\x80\x93 boring",
    "aclImdb/train/neg/1_4.txt": b"The film: the bad",
    "aclImdb/test/pos/0_10.txt": b"good",
    "aclImdb/test/pos/1_8.txt": b"the good film",
    "aclImdb/test/neg/0_2.txt": b"bad, bad",
    "aclImdb/test/neg/1_3.txt": b"film?",
    "aclImdb/train/unsup/0_0.txt": b"not labelled",
    "aclImdb/README": b"about",
}


def archive_of(members: dict[str, bytes], prefix: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


@pytest.fixture
def small(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for archives that are judged as if the data set had eight reviews."""
    published = {
        name: hashlib.sha256(MEMBERS[name]).hexdigest() for name in movie_reviews._CHECKSUMS
    }
    monkeypatch.setattr(movie_reviews, "_CHECKSUMS", published)
    (data_folder / "imdb").mkdir()
    return data_folder / "imdb" / "some_reviews.tar.gz"


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[i].tolist() for i in range(len(ragged))]


@pytest.mark.parametrize("prefix", ["", "./"])
@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
def test_any_archive_with_the_inner_paths(small: Path, prefix: str, backwards: bool) -> None:
    members = dict(reversed(MEMBERS.items())) if backwards else MEMBERS
    small.write_bytes(archive_of(members, prefix))
    reviews = imdb(download=False)
    assert reviews.vocabulary == ("the", "film", "good", "bad", "!")
    assert lists(reviews.train.texts) == [[2, 1, 2], [2, 4, 4, 4], [3], [0, 1, 0, 3]]
    assert lists(reviews.train.words) == [[1, 2], [2, 4], [3], [0, 1, 3]]
    assert lists(reviews.train.counts) == [[1, 2], [1, 3], [1], [2, 1, 1]]
    assert reviews.train.ratings.tolist() == [9, 7, 1, 4]
    assert reviews.train.labels.tolist() == [1, 1, 0, 0]
    assert lists(reviews.test.texts) == [[2], [0, 2, 1], [3, 3], [1]]
    assert reviews.test.ratings.tolist() == [10, 8, 2, 3]
    assert len(reviews.valid) == 0


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"aclImdb/imdb.vocab": None}, "it does not hold aclImdb/imdb.vocab"),
        (
            {"aclImdb/imdb.vocab": b"the\nfilm\ngood\nsad\n!"},
            f"the sha256 of aclImdb/imdb.vocab in it is [0-9a-f]{{64}}, expected "
            f"{hashlib.sha256(VOCABULARY).hexdigest()}",
        ),
        (
            {"aclImdb/train/labeledBow.feat": b"9 1:1 2:3\n"},
            "the sha256 of aclImdb/train/labeledBow.feat in it",
        ),
        ({"aclImdb/test/pos/1_8.txt": None}, "its 3 test reviews are not those of"),
        (
            {"aclImdb/train/neg/1_4.txt": None, "aclImdb/train/neg/1_3.txt": b"The film: the bad"},
            "its 4 train reviews are not those of",
        ),
        ({"aclImdb/train/pos/1_7.txt": b"Good!!"}, "train review 1 does not hold the words"),
        ({"aclImdb/test/neg/1_3.txt": b"film film"}, "test review 3 does not hold the words"),
        ({"aclImdb/test/neg/1_3.txt": b""}, "test review 3 does not hold the words"),
        ({"aclImdb/train/pos/0_9.txt": b"Good film, bad."}, "train review 0 does not hold"),
        ({"aclImdb/train/neg/0_1.txt": b"Bad \xff"}, "train/neg/0_1.txt in it is not UTF-8"),
    ],
)
def test_archive_with_other_contents_is_refused(
    small: Path, cache: Path, changes: dict[str, bytes | None], problem: str
) -> None:
    members = {**MEMBERS, **changes}
    content = archive_of({name: text for name, text in members.items() if text is not None})
    small.write_bytes(content)
    with pytest.raises(DamagedDataError, match=problem) as raised:
        imdb(download=False)
    message = str(raised.value)
    assert str(small) in message
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" in message
    assert IMDB.layouts[0][0].checksum in message
    assert not list(cache.glob("parsed/imdb-*"))


@pytest.mark.parametrize("fault", ["truncated", "flipped", "empty", "not an archive"])
def test_damaged_archive_is_refused(small: Path, fault: str) -> None:
    good = archive_of(MEMBERS)
    middle = len(good) // 2
    flipped = good[:middle] + bytes([good[middle] ^ 16]) + good[middle + 1 :]
    bad = {"truncated": good[:middle], "flipped": flipped, "empty": b"", "not an archive": b"hello"}
    small.write_bytes(bad[fault])
    with pytest.raises(DamagedDataError, match="is damaged and is not used"):
        imdb(download=False)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_links_and_devices_are_no_reviews(small: Path, kind: bytes) -> None:
    """Nothing is followed or made, whatever a member's name and target are."""
    name = "aclImdb/test/pos/1_8.txt"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for other, content in MEMBERS.items():
            member = tarfile.TarInfo(other)
            if other == name:
                member.type, member.linkname = kind, "../../../etc/passwd"
            else:
                member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    small.write_bytes(gzip.compress(buffer.getvalue()))
    before = sorted(small.parent.parent.rglob("*"))
    with pytest.raises(DamagedDataError, match="its 3 test reviews are not those of"):
        imdb(download=False)
    assert sorted(small.parent.parent.rglob("*")) == before


def test_names_that_lead_elsewhere_are_not_read(small: Path) -> None:
    outside = {f"../../{name}": content for name, content in MEMBERS.items()}
    small.write_bytes(archive_of({**outside, "/etc/passwd": b"root"}))
    with pytest.raises(DamagedDataError, match=r"it does not hold aclImdb/imdb\.vocab"):
        imdb(download=False)
    assert sorted(path.name for path in small.parent.iterdir()) == [small.name]


def test_an_archive_that_unpacks_without_end_is_refused(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "LARGEST_ARCHIVE", 1_000_000)
    small.write_bytes(archive_of({**MEMBERS, "aclImdb/train/unsup/1_0.txt": bytes(100_000_000)}))
    tracemalloc.start()
    try:
        with pytest.raises(DamagedDataError, match=r"unpack to more than 1,000,000, exp.*fetch"):
            imdb(download=False)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_an_archive_packed_twice_is_refused(small: Path) -> None:
    """The second layer would be unpacked without a bound."""
    small.write_bytes(gzip.compress(archive_of(MEMBERS)))
    with pytest.raises(DamagedDataError, match="it is no whole tar archive"):
        imdb(download=False)


def test_members_without_end_are_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_files, "MOST_MEMBERS", len(MEMBERS))
    small.write_bytes(archive_of(MEMBERS))
    assert len(imdb(download=False).train) == 4
    small.write_bytes(archive_of({**MEMBERS, "one": b""}))
    with pytest.raises(DamagedDataError, match="it has more than the 13 members expected"):
        imdb(download=False)


def test_official_name_requires_the_published_checksum(data_folder: Path) -> None:
    content = archive_of(MEMBERS)
    (data_folder / "aclImdb_v1.tar.gz").write_bytes(content)
    found = hashlib.sha256(content).hexdigest()
    expected = "c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"
    with pytest.raises(DamagedDataError, match=f"sha256:{found}, expected sha256:{expected}"):
        imdb(download=False)


def test_real_counts(real_imdb: Imdb) -> None:
    assert len(real_imdb.vocabulary) == 89_527
    assert real_imdb.vocabulary[:3] == ("the", "and", "a")
    for part, pairs, total, highest, fewest, most in (
        (real_imdb.train, 3_456_685, 5_794_663, 89_526, 10, 672),
        (real_imdb.test, 3_340_173, 5_600_951, 89_522, 5, 931),
    ):
        assert len(part) == 25_000
        assert np.bincount(part.labels).tolist() == [12_500, 12_500]
        assert part.labels[:12_500].all()
        assert len(part.words.values) == len(part.counts.values) == pairs
        assert part.counts.values.sum() == total
        assert part.words.values.max() == highest
        assert part.words.lengths.min() == fewest
        assert part.words.lengths.max() == most
        assert set(np.unique(part.ratings)) == {1, 2, 3, 4, 7, 8, 9, 10}
        assert isinstance(part.texts.values.base, np.memmap)


def bags(texts: Ragged, size: int) -> tuple[np.ndarray, np.ndarray]:
    review = np.repeat(np.arange(len(texts), dtype=np.int64), texts.lengths)
    return np.unique(review * size + texts.values, return_counts=True)


def test_real_texts_hold_exactly_the_words_of_the_bags(real_imdb: Imdb) -> None:
    size = len(real_imdb.vocabulary)
    for part in (real_imdb.train, real_imdb.test):
        keys, counts = bags(part.texts, size)
        review = np.repeat(np.arange(25_000, dtype=np.int64), part.words.lengths)
        assert np.array_equal(keys, review * size + part.words.values)
        assert np.array_equal(counts, part.counts.values)


def test_real_archive_read_plainly(real_imdb: Imdb, session_cache: Path) -> None:
    """The first bags and texts against a reading that shares no code with the parser."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(session_cache))
        (file,) = obtain(IMDB, download=False)
    number = {word: i for i, word in enumerate(real_imdb.vocabulary)}
    checked = 0
    with tarfile.open(file.path, "r|gz") as archive:
        for member in archive:
            if member.name.endswith("train/labeledBow.feat"):
                reader = archive.extractfile(member)
                assert reader is not None
                for i, line in zip(range(100), reader, strict=False):
                    rating, *pairs = line.decode().split()
                    assert int(rating) == real_imdb.train.ratings[i]
                    words, counts = real_imdb.train.words[i], real_imdb.train.counts[i]
                    assert pairs == [f"{w}:{c}" for w, c in zip(words, counts, strict=True)]
                    checked += 1
            elif "/train/pos/" in member.name and checked < 300:
                reader = archive.extractfile(member)
                assert reader is not None
                review = int(Path(member.name).name.split("_")[0])
                text = [number[w] for w in words_of(reader.read().decode()) if w in number]
                assert real_imdb.train.texts[review].tolist() == text
                checked += 1
            if checked >= 300:
                break
    assert checked == 300


def test_real_first_review_reads_well(real_imdb: Imdb) -> None:
    words = [real_imdb.vocabulary[i] for i in real_imdb.train.texts[0]]
    assert " ".join(words).startswith(
        "bromwell high is a cartoon comedy it ran at the same time as some other programs"
    )


def test_real_split(real_imdb: Imdb) -> None:
    split = real_imdb.split(valid=5_000)
    assert [len(split.train), len(split.valid), len(split.test)] == [20_000, 5_000, 25_000]
    for part in (split.train, split.valid):
        assert np.bincount(part.labels).tolist() == [len(part) // 2] * 2
    total = split.train.counts.values.sum() + split.valid.counts.values.sum()
    assert total == real_imdb.train.counts.values.sum()


def test_take_keeps_the_parts_of_a_review_together() -> None:
    reviews = Reviews(
        Ragged.of([[1, 1], [2], [3]]),
        Ragged.of([[1], [2], [3]]),
        Ragged.of([[2], [1], [1]]),
        np.array([9, 2, 7], np.uint8),
    )
    taken = reviews.take(np.array([2, 0]))
    assert lists(taken.texts) == [[3], [1, 1]]
    assert lists(taken.words) == [[3], [1]]
    assert lists(taken.counts) == [[1], [2]]
    assert taken.ratings.tolist() == [7, 9]


def test_keep_frequent() -> None:
    words = keep_frequent(Ragged.of([[0, 4, 5], [], [9]]), count=5)
    assert lists(words) == [[FIRST_WORD, 4 + FIRST_WORD, UNKNOWN], [], [UNKNOWN]]
    assert words.values.dtype == np.int32
    assert words.padded(2)[0].tolist() == [[2, 6], [PAD, PAD], [UNKNOWN, PAD]]


def test_real_vocabulary_is_ordered_by_frequency(real_imdb: Imdb) -> None:
    counts = np.bincount(real_imdb.train.texts.values, minlength=len(real_imdb.vocabulary))
    assert counts.min() > 0
    assert (np.diff(counts) <= 0).mean() > 0.997
    # Where neighbours are out of order, they differ by little.
    assert np.diff(counts).max() <= 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The End.<br /><br />It's OVER!", ["the", "end", "it", "over", "!"]),
        ("isn't -- or is--it?!", ["isn't", "or", "is", "it", "?", "!"]),
        ('so-bad-it\'s-good, "B-movie" fun', ["so-bad-it-good", "b-movie", "fun"]),
        # Signs part words, but a letter parts only once.
        ("end.But and/or", ["end", "but", "and", "or"]),
        ("the U.S. and a.k.a. U.S.A.", ["the", "u", "s", "and", "a", "k.a", "u", "s.a"]),
        ('a "Psycho"-like film', ["a", 'psycho"-like', "film"]),
        # Faces stand alone; next to a letter their signs are signs.
        (":-) ;D =] (8 do:", [":-)", ";d", "=]", "(8", "do:"]),
        ("fun:) Saw:Part", ["fun", "saw", "part"]),
        ("<:-D", ["d"]),
        ("_Les acteurs_ naïve &#269;etvorka &amp;", ["les", "acteurs", "naïve", "četvorka"]),
        ("8 out of 10 ... * - **", ["8", "out", "of", "10"]),
        ("a < b", ["a", "b"]),
        ("", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_numbers_are_lines_of_the_vocabulary() -> None:
    numbers = WordNumbers(["film", "good", "!", ":)"])
    texts = numbers(["Good, GOOD film!", "", "A bad film. :)", "ok"])
    assert [texts[i].tolist() for i in range(4)] == [[1, 1, 0, 2], [], [0, 3], []]
    # Pieces met before keep their numbers in a second call.
    assert numbers(["ok film! good"])[0].tolist() == [0, 2, 1]
