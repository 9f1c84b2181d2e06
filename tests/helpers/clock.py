"""Time for code whose clock can be replaced."""


class Clock:
    """Seconds that a test sets; a pause takes no time, but `now` is later by as much."""

    def __init__(self, now: float = 0.0):
        self.now = now

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
