"""Error answers of a broker."""

from formats.remoting.frame import Command


class Failed(Exception):
    """A request that is answered with an error.

    Attributes:
        code: of the answer.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code

    def answer(self, request: Command) -> Command:
        """The response."""
        return request.response(self.code, str(self))
