"""``python -m rmqtool``, the same as the command ``rmqtool``."""

from rmqtool.main import main

if __name__ == "__main__":
    main()
