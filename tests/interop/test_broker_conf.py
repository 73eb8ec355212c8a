"""Whether a broker starts with a configuration: check's prediction compared with a real broker."""

import shutil
from pathlib import Path

import pytest

from rmqtool.rules.releases import RELEASES
from rmqtool.store.config.fit import misfits
from rmqtool.store.config.settings import Setting, settings_of
from rmqtool.store.layout.broker_conf import load
from rmqtool.store.layout.paths import StoreLayout
from tests.amounts import by_turns, every
from tests.interop import broker
from tests.interop.broker_settings import VERSIONS, data_path, taken, written
from tests.interop.started import start_code
from tests.readme import ROOT

pytestmark = [pytest.mark.interop]
RIGHT = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "200",
    "maxIndexNum": "800",
}
CONFS = {
    "right": RIGHT,
    "rounded up": RIGHT | {"mappedFileSizeConsumeQueue": "3999"},
    "one p": {"mapedFileSizeCommitLog": "262144"} | dict(list(RIGHT.items())[1:]),
    "blank behind": RIGHT | {"mappedFileSizeCommitLog": "262144 "},
    "another queue": RIGHT | {"mappedFileSizeConsumeQueue": "8000"},
    "another index": RIGHT | {"maxIndexNum": "900"},
}


def lines(settings: dict[str, str]) -> str:
    """A properties file."""
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Each of them in turn."""
    if reason := broker.available(VERSIONS[request.param]):
        pytest.skip(reason)
    return str(request.param)


@by_turns(23)
@pytest.mark.parametrize("name", every(3, list(CONFS)))
def test_a_broker_starts_where_check_says_so(release: str, name: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(ROOT / "examples" / "store", store)
    conf = tmp_path / "given.conf"
    conf.write_text(lines(CONFS[name]))
    result = misfits(StoreLayout(str(store), load(str(conf))), RELEASES[release])
    home = tmp_path / "home"
    home.mkdir()
    code = start_code(release, store, conf.read_text(), home)
    assert (code is None) == (not any(misfit.stops for misfit in result))
    assert code in (None, 255 if release == "5.3" else 253)
    assert bool(result) == (name not in ("right", "rounded up"))


@by_turns(23)
@pytest.mark.parametrize("release", VERSIONS)
def test_the_known_settings_are_those_of_the_classes(release: str) -> None:
    if reason := broker.available(VERSIONS[release]):
        pytest.skip(reason)
    assert data_path(release).read_text() == written(release)


_TEXTS = (
    *("7", " 7", "7 ", "+7", "-7", "7L", "0x7", "1e3", "7_0", "99999999999"),
    *("true", "TRUE", "true ", "yes", "0.5", ".5", ""),
)


def test_values_are_taken_as_a_broker_takes_them(release: str, tmp_path: Path) -> None:
    names = ("flushIntervalCommitLog", "transactionCheckInterval", "traceOn", "regionId")
    confs = [tmp_path / f"{number}.conf" for number in range(len(_TEXTS))]
    for conf, text in zip(confs, _TEXTS, strict=True):
        conf.write_text(lines(dict.fromkeys(names, text)))
    for conf, text, classes in zip(confs, _TEXTS, taken(release, confs), strict=True):
        of_broker = {name: row for rows in classes.values() for name, row in rows.items()}
        read = load(str(conf)).values
        for name in names:
            setting: Setting = settings_of(RELEASES[release])[name]
            value = setting.takes(read[name])
            took = setting.default if value is None else value
            expected = took.strip() if release != "4.9" and isinstance(took, str) else took
            assert of_broker[name][1] == expected, (name, text)
