from __future__ import annotations

import pytest

from onegate.lab.data.review_words import WordNumbers, words_of


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
