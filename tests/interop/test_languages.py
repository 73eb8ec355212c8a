"""Clients in other languages produce to a served store and consume from it."""

from pathlib import Path

import pytest

from tests.amounts import by_turns
from tests.interop import engine, languages

pytestmark = pytest.mark.interop


@by_turns(23)
@pytest.mark.parametrize(("language", "release"), [("go", "4.9"), ("node", "5.3"), ("cpp", "5.3")])
def test_a_client_in_another_language(language: str, release: str, tmp_path: Path) -> None:
    try:
        languages.folder(language)
    except engine.Unavailable as err:
        pytest.skip(str(err))
    languages.judge(language, release, tmp_path / "store")
