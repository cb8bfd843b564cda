"""What a person typed, as it was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import InvalidArguments
from intercom.operators.slack.commands.slash_command_table import Arguments, Typed, parse, read, split

OPTIONS = {"--depth": "N", "--session": "ID"}


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("", "", ""),
        ("  help  ", "help", ""),
        ("show-file  src/a b ", "show-file", "src/a b"),
        ("show-file <http://README.md|README.md>", "show-file", "README.md"),
        ("show-file a&amp;b &lt;x&gt;", "show-file", "a&b <x>"),
        ("session-resume ab12\nfirst\nsecond", "session-resume", "ab12\nfirst\nsecond"),
    ],
)
def test_the_name_and_the_rest_are_told_apart_with_slacks_changes_undone(text: str, name: str, rest: str) -> None:
    assert read(text) == Typed(name, rest)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b", ["a", "b"]),
        ('"two words" c', ["two words", "c"]),
        ("'two words'", ["two words"]),
        ("\u201ctwo words\u201d", ["two words"]),
        ("\u2018two words\u2019 x", ["two words", "x"]),
        ("don't bob\u2019s", ["don't", "bob\u2019s".replace("\u2019", "'")]),
        (r"a\ b c\"d", ["a b", 'c"d']),
        (r'"say \"hi\""', ['say "hi"']),
        ("a\u00a0b", ["a", "b"]),
        ('""', [""]),
        ("\\", ["\\"]),
        ("\u2014depth 2 \u2013session=x", ["--depth", "2", "--session=x"]),
        ("\u2014 5\u20136", ["\u2014", "5\u20136"]),
        ('--session="a b"', ["--session=a b"]),
    ],
)
def test_words_are_split_as_a_person_means_them(text: str, words: list[str]) -> None:
    assert [word.text for word in split(text)] == words


@pytest.mark.parametrize("text", ['"open', "'open", '"a"b', "x 'open word", "\u201copen"])
def test_a_quote_that_is_not_closed_is_told(text: str) -> None:
    with pytest.raises(InvalidArguments, match="not closed"):
        split(text)


@given(st.text())
def test_any_text_is_split_or_refused(text: str) -> None:
    try:
        assert all(isinstance(word.text, str) for word in split(text))
    except InvalidArguments:
        pass


@given(st.text(), st.booleans())
def test_any_text_is_parsed_or_refused_with_a_sentence(text: str, takes_text: bool) -> None:
    said = read(text)
    try:
        found = parse(said.text, OPTIONS, most=2, takes_text=takes_text)
    except InvalidArguments:
        return
    assert set(found.options) <= set(OPTIONS)


@pytest.mark.parametrize(
    ("text", "words", "options"),
    [
        ("src --depth 2", ("src",), {"--depth": "2"}),
        ("--depth=2 src", ("src",), {"--depth": "2"}),
        ('"--depth"', ("--depth",), {}),
        ("-- --depth", ("--depth",), {}),
        ("", (), {}),
    ],
)
def test_options_stand_anywhere(text: str, words: tuple[str, ...], options: dict[str, str]) -> None:
    assert parse(text, OPTIONS, most=1) == Arguments(words, options, typed=text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--deep 2", "there is no option --deep; there is --depth N, --session ID"),
        ("--depth", "--depth needs a value: --depth N"),
        ("--depth 1 --depth 2", "--depth is given twice"),
        ("a b", "2 arguments, and this command takes 1"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(text: str, says: str) -> None:
    with pytest.raises(InvalidArguments, match=says):
        parse(text, OPTIONS, most=1)


@pytest.mark.parametrize(
    ("text", "said", "options"),
    [
        ("-- don't \u201cstop\u201d --depth", "don't \u201cstop\u201d --depth", {}),
        ("--session ab12 don't -- --depth", "don't -- --depth", {"--session": "ab12"}),
        ("don't  stop --session ab12", "don't  stop", {"--session": "ab12"}),
        ("don't --session=ab12 stop\nit", "don't stop\nit", {"--session": "ab12"}),
        ("go on \u2014session ab12", "go on", {"--session": "ab12"}),
        ("go on \u2014then stop \u2014 if you can", "go on \u2014then stop \u2014 if you can", {}),
        ("say '--depth' or \"--depth\"", "say '--depth' or \"--depth\"", {}),
        ("run git -x -C --", "run git -x -C --", {}),
        ("\u2014session=ab12  go\non", "go\non", {"--session": "ab12"}),
        ("-- --session is a flag", "--session is a flag", {}),
        ("", "", {}),
    ],
)
def test_a_persons_own_words_stay_as_they_are_and_options_are_heeded_among_them(
    text: str, said: str, options: dict[str, str]
) -> None:
    found = parse(text, {"--session": "ID"}, most=2, takes_text=True)
    assert (found.text, found.options) == (said, options)


@pytest.mark.parametrize("text", ["fix it --sesion ab12", "--sesion ab12 fix it", "fix --sesion=ab12 it"])
def test_an_option_that_is_none_is_no_word_of_a_text_but_refused_by_name(text: str) -> None:
    """`session-start fix it --workspace /other` started an agent here, with the option in its task."""
    with pytest.raises(InvalidArguments, match=r"there is no option --sesion; there is --session ID. Put -- before"):
        parse(text, {"--session": "ID"}, most=2, takes_text=True)
