"""Write ``rmqtool/cli/launch/option_names.py``: ``python -m tests.cli.option_names``."""

import textwrap
from pathlib import Path

from rmqtool.store.check.codes.all import CODES
from tests.cli.running import ROOT
from tests.cli.test_help import commands

PATH: Path = ROOT / "rmqtool" / "cli" / "launch" / "option_names.py"
HEAD = '''"""Options of all commands and codes of check, for completion, by ``python -m tests.cli.option_names``."""

TEXT = """
'''


def text() -> str:
    """What the module holds, by the commands themselves."""
    lines = []
    for name, command in sorted(commands().items()):
        names = [
            option
            for parameter in command.params
            if parameter.param_type_name == "option" and not parameter.hidden
            for option in parameter.opts
        ]
        line = f"{name}: {' '.join(sorted({*names, '--help', '-h'}))}"
        lines += textwrap.wrap(line, 118, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    codes = textwrap.wrap(" ".join(CODES), 118, break_on_hyphens=False)
    return HEAD + "\n".join([*lines, '"""', "", 'CODES = """', *codes, '"""', ""])


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
