#!/usr/bin/python3
"""Runs the flow tests: scripts of both peers around the real gateway over loopback.

    run.py --gateway PATH [--only TEXT] [--workers N] [-j N] [--long] [-v] [--list]

Every *_flow.py of this folder is loaded; each test runs in a process of its own, so that a crash or a hang is one
failed test.  Many watch the clock, and the machine may have been busy: up to three that fail run once more, alone, and
are named if they pass then; never after a crash or a sanitizer's report.  The last line is `N passed, N failed`.
"""
import argparse
import contextlib
import importlib
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
FOLDER = pathlib.Path(__file__).resolve().parent
REPEATS = 3
GRAVE = ("Sanitizer", "runtime error", "Assertion", "by signal")
sys.path.insert(0, str(FOLDER))
import lib  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description="Flow tests of the gateway.")
    p.add_argument("--gateway", required=True, help="the program sallyport-ingress")
    p.add_argument("--only", default="", help="only tests whose file, name or ids contain this text")
    p.add_argument("--workers", type=int, default=2, help="workers of each gateway")
    p.add_argument("-j", type=int, default=2 * (os.cpu_count() or 1), help="tests at a time (default: two for each core)")
    p.add_argument("--long", action="store_true", help="also tests that take minutes")
    p.add_argument("-v", action="store_true", help="a line for each test that passed")
    p.add_argument("--list", action="store_true", help="name the tests and run none")
    return p.parse_args()


def collect(only):
    for file in sorted(FOLDER.glob("*_flow.py")):
        importlib.import_module(file.stem)
    def label(t):
        return f"{t['file']}: {t['name']} ({', '.join(t['ids'])})"
    tests = [{**t, "label": label(t)} for t in lib.TESTS]
    return [t for t in tests if only.lower() in t["label"].lower()]


def run_in_child(t, args, folder, report):
    """Runs in the child: writes the outcome to report and leaves."""
    lab = lib.Lab(str(pathlib.Path(args.gateway).resolve()), args.workers, folder)
    faults, outcome = [], "passed"
    try:
        t["run"](lab)
    except lib.Skipped as e:
        outcome = "skipped"
        report.write(str(e))
    except lib.Failed as e:
        faults.append(f"{e}{where(e)}")
    except lib.Ended as e:
        faults.append(f"connection ended early ({e}){where(e)}")
    except lib.Late as e:
        faults.append(f"{e} in time{where(e)}")
    except Exception:
        faults.append(traceback.format_exc())
    faults += lab.clear()
    if faults:
        outcome = "failed"
        report.write("\n".join(faults))
        for gw in lab.gateways[-1:]:
            report.write("\n--- the last gateway's log\n" + "\n".join(line[:500] for line in gw.stdout().splitlines()[-8:]))
    report.flush()
    os._exit({"passed": 0, "skipped": 2, "failed": 1}[outcome])


def where(e):
    own = [f for f in traceback.extract_tb(e.__traceback__) if f.filename.endswith("_flow.py")]
    return f"  [{pathlib.Path(own[-1].filename).name}:{own[-1].lineno}: {own[-1].line}]" if own else ""


def begin(t, args, folder):
    t["folder"] = tempfile.mkdtemp(dir=folder)
    t["report"] = os.path.join(t["folder"], "report")
    t["start"] = time.monotonic()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        return pid
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(t["report"], "w", encoding="utf-8") as report:
        run_in_child(t, args, t["folder"], report)
    os._exit(1)


def tell(t, status, args):
    """Prints a test's line; the outcome."""
    seconds = time.monotonic() - t["start"]
    with open(t["report"], encoding="utf-8") as f:
        text = f.read()
    code = os.waitstatus_to_exitcode(status)
    outcome = {0: "passed", 2: "skipped"}.get(code, "failed")
    if outcome == "passed" and args.v:
        print(f"ok      {t['label']} {seconds:.1f} s")
    elif outcome == "skipped":
        print(f"skipped {t['label']}: {text}")
    elif outcome == "failed":
        if t.get("killed"):
            text = f"killed after {t['limit']} s\n{text}"
        elif code < 0:
            text = f"test process ended by signal {-code}\n{text}"
        print(f"FAILED  {t['label']} {seconds:.1f} s\n        " + text.replace("\n", "\n        "))
        t["grave"] = any(word in text for word in GRAVE)
    sys.stdout.flush()
    shutil.rmtree(t["folder"], ignore_errors=True)
    return outcome


def overdue(running):
    for pid, t in running.items():
        if not t.get("killed") and time.monotonic() - t["start"] > t["limit"]:
            t["killed"] = True
            os.killpg(pid, signal.SIGKILL)


def end_rest(group):
    """What a test has started and left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def run_all(tests, args, folder):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    waiting, running = list(reversed(tests)), {}
    while waiting or running:
        while waiting and len(running) < args.j:
            t = waiting.pop()
            running[begin(t, args, folder)] = t
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            overdue(running)
            time.sleep(0.02)
        elif pid in running:
            end_rest(pid)
            t = running.pop(pid)
            t["outcome"] = tell(t, status, args)
            counts[t["outcome"]] += 1
    return counts


def repeat_failed(tests, counts, args, folder):
    failed = [t for t in tests if t["outcome"] == "failed"]
    if len(failed) > REPEATS:
        return
    args.j = 1
    for t in failed:
        if t["grave"]:
            continue
        t.pop("killed", None)
        if run_all([t], args, folder)["passed"]:
            print(f"passed only when it ran alone: {t['label']}")
            counts["failed"] -= 1
            counts["passed"] += 1


def main():
    args = arguments()
    if args.long:
        os.environ["SALLYPORT_FLOW_LONG"] = "1"
    tests = collect(args.only)
    if args.list:
        print("\n".join(t["label"] for t in tests))
        return 0
    folder = tempfile.mkdtemp(prefix="sallyport-flow-")
    try:
        counts = run_all(tests, args, folder)
        repeat_failed(tests, counts, args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if counts["skipped"]:
        print(f"{counts['skipped']} skipped")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
