"""What a test is given: a Lab that makes worlds and clears up behind them.

    from bench import test

    @test("POL-07", limit=60)
    def what_should_be_true(lab):
        w = lab.world()
        ...
"""
import os

from lib import test
from wire import Failed, Skipped, check, equal, wait_for
from sidecar import allow, closed, deny, opened
from world import World


class Lab:
    def __init__(self, program, folder):
        self.program, self.dir = program, folder
        self.long = bool(os.environ.get("SALLYPORT_FLOW_LONG"))
        self.worlds = []
        code = b""
        if os.path.exists(program):
            with open(program, "rb") as f:
                code = f.read()
        self.sanitizer = "address" if b"__asan_init" in code else "thread" if b"__tsan_init" in code else ""
        self.slow = 3 if self.sanitizer else 1  # times may be so much longer

    def beside(self, name):
        """The path of another program of ours."""
        return os.path.join(os.path.dirname(self.program), name)

    def world(self, **how):
        w = World(self, **how)
        self.worlds.append(w)
        return w

    def clear(self):
        return [f for w in self.worlds for f in w.clear()]

    def tail(self):
        """The end of the last sidecar's log."""
        sidecars = [s for w in self.worlds for s in w.sidecars]
        if not sidecars:
            return ""
        lines = [line[:500] for line in (sidecars[-1].stdout() + sidecars[-1].stderr()).splitlines()[-12:]]
        return "\n--- the last sidecar's log\n" + "\n".join(lines)


__all__ = ["Failed", "Lab", "Skipped", "allow", "check", "closed", "deny", "equal", "opened", "test", "wait_for"]
