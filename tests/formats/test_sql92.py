"""SQL92 filters as in brokers; tests/interop/test_sql92.py compares random ones with real brokers."""

import pytest

from formats.sql92.filter import BadFilter, compile_filter

MESSAGE = {"amount": "150", "region": "eu", "TAGS": "paid", "big": "3000000000", "share": "0.5", "odd": "1x"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("amount > 100 AND region IN ('eu', 'us')", True),
        ("amount between 100 and 200 or nothing = 1", True),
        ("amount NOT BETWEEN 100 AND 200", False),
        ("region = 'it''s'", False),
        ("nothing IS NULL AND region IS NOT NULL", True),
        ("nothing = 'x'", False),
        ("NOT nothing = 'x'", False),  # unknown stays unknown
        ("nothing <> 'x'", False),
        ("share < 0.75 -- half of it\n AND amount = 150", True),
        ("big > 2147483647", False),  # a property that no int holds, compared with an int
        ("big > 2147483648", True),
        ("odd > 0 OR amount = 150", False),  # no number: the whole filter does not match
        ("amount = 150 OR odd > 0", True),  # which is not looked at any more
        ("region", False),  # a bare property never matches
        ("NOT region = 'us'", False),  # NOT binds closer than =
        ("NOT (region = 'us')", True),
        ("TAGS CONTAINS 'ai' AND TAGS STARTSWITH 'p' AND NOT (TAGS ENDSWITH 'x')", True),
        ("amount = 150 what comes behind is not looked at", True),
    ],
)
def test_what_matches(text: str, matches: bool) -> None:
    assert compile_filter(text)(MESSAGE) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("region", "character 1: a name alone is no condition"),
        ("amount = 150 AND region", "character 18: a name alone"),
        ("NOT region = 'us'", "character 5: a name alone"),  # NOT binds closer than =
        ("amount = 150 region = 'eu'", "character 14: 'region' after the condition"),
    ],
)
def test_what_is_refused_here_though_brokers_take_it(text: str, message: str) -> None:
    assert compile_filter(text)({}) is False
    with pytest.raises(BadFilter, match=message):
        compile_filter(text, local=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the end where name should be"),
        ("amount >", "character 9"),
        ("amount > 'x'", "has no order"),
        ("amount BETWEEN 5 AND 1", "the lower value first"),
        ("amount = NULL", "IS NULL asks for it"),
        ("amount IN (1, 2)", "where text should be"),
        ("1 IN ('1')", "IN takes a property"),
        ("5", "neither true nor false"),
        ("amount > 0.0", "brokers refuse 0.0"),
        ("amount > 99999999999999999999", "beyond 64 bits"),
        ("amount % 2 = 0", "character 8: "),
        ("amount ? 2", "character 8: "),
        ("(" * 5000 + "TRUE" + ")" * 5000, "nested deeper than 50"),
        ("amount" + " = 150" * 1000, "more than 50 comparisons"),
        ("- " * 1000 + "5", "nested deeper than 50"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadFilter, match=message):
        compile_filter(text)


def test_long_chains() -> None:
    assert compile_filter(" AND ".join(["amount = 150"] * 5_000))(MESSAGE)
    assert compile_filter(" OR ".join(["amount = 1"] * 5_000 + ["TAGS = 'paid'"]))(MESSAGE)


def test_words_of_5_are_names_in_4_9() -> None:
    assert compile_filter("TAGS CONTAINS 'ai'")(MESSAGE)
    assert not compile_filter("TAGS CONTAINS 'ai'", wide=False)(MESSAGE)  # TAGS, and what is not looked at
