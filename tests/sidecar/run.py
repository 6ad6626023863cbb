#!/usr/bin/python3
"""Runs the tests of the running sidecar: the real program, a workload that tries to get out, and the world outside.

    run.py --sidecar PATH [--only TEXT] [-j N] [--long] [-v] [--list]

PATH is sallyport-egress; sallyport-supervisor and sallyport-egress-rules stand beside it.  Every *_flow.py of this folder is
loaded.  Each test is a process with namespaces of its own (processes, mounts, network), so that nothing it starts or makes
outlives it, however it ends.  Needs root; elsewhere everything is skipped.  The machine may have been busy: up to three that
fail run once more, alone; never after a crash or a sanitizer's report.  The last line is `N passed, N failed, N skipped`.
"""
import argparse
import importlib
import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
FLOW = FOLDER.parent / "flow"


def runner():
    """The flow tests' runner, which does everything here but for what a test is run in."""
    spec = importlib.util.spec_from_file_location("flow_run", FLOW / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.insert(0, str(FOLDER))
    module.FOLDER = FOLDER
    module.run_in_child = run_in_child
    return module


def arguments():
    p = argparse.ArgumentParser(description="Tests of the running sidecar.")
    p.add_argument("--sidecar", required=True, help="the program sallyport-egress")
    p.add_argument("--only", default="", help="only tests whose file, name or ids contain this text")
    p.add_argument("-j", type=int, default=2 * (os.cpu_count() or 1), help="tests at a time (default: two for each core)")
    p.add_argument("--long", action="store_true", help="also tests that take minutes")
    p.add_argument("-v", action="store_true", help="a line for each test that passed")
    p.add_argument("--list", action="store_true", help="name the tests and run none")
    return p.parse_args()


def run_in_child(t, args, folder, report):
    """Runs in the child: lets a process of its own do the test, and leaves as that did."""
    import privileges
    os.chmod(folder, 0o755)
    if os.geteuid() == 0:
        privileges.must(privileges.LIBC.unshare(privileges.CLONE_NEWPID | privileges.CLONE_NEWNS), "unshare")
        pid = os.fork()
        if pid:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                os.kill(os.getpid(), -code)
            os._exit(code)
        privileges.die_with_parent()
        import world
        world.mount(None, "/", flags=0x4000 | 0x40000)  # what is mounted from here on is nobody else's
        world.mount("proc", "/proc", "proc", 0)
    run_test(t, args, folder, report)


def run_test(t, args, folder, report):
    from bench import Lab
    from wire import Ended, Failed, Late, Skipped
    lab = Lab(str(pathlib.Path(args.sidecar).resolve()), folder)
    faults, outcome = [], "passed"
    try:
        t["run"](lab)
    except Skipped as e:
        outcome = "skipped"
        report.write(str(e))
    except (Failed, Ended, Late) as e:
        faults.append(f"{type(e).__name__}: {e}{places(e)}")
    except Exception:
        faults.append(traceback.format_exc())
    try:
        faults += lab.clear()
    except Exception:       # it must not get back into the runner's loop, of which this is a copy
        faults.append(traceback.format_exc())
    if faults:
        outcome = "failed"
        report.write("\n".join(faults) + lab.tail())
    report.flush()
    os._exit({"passed": 0, "skipped": 2, "failed": 1}[outcome])


def places(e):
    """Where in the flow file it was."""
    own = [f for f in traceback.extract_tb(e.__traceback__) if f.filename.endswith("_flow.py")]
    return "".join(f"\n  [{pathlib.Path(f.filename).name}:{f.lineno}: {f.line}]" for f in own)


def main():
    args = arguments()
    flow = runner()
    if args.long:
        os.environ["SALLYPORT_FLOW_LONG"] = "1"
    tests = flow.collect(args.only)
    if args.list:
        print("\n".join(t["label"] for t in tests))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="sallyport-sidecar-")
    os.chmod(folder, 0o755)
    try:
        counts = flow.run_all(tests, args, folder)
        flow.repeat_failed(tests, counts, args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] + counts["skipped"] else 0


if __name__ == "__main__":
    sys.exit(main())
