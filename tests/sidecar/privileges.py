"""Who a process of a test is: its namespace, its user and its capabilities.  All by system calls, because the child between
fork and exec can do nothing else, and because a thread may stand in another namespace than its neighbour."""
import ctypes
import os
import signal

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 1, 24, 47, 4
NOBODY = 65534
LAST_CAP = 40
CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP = 0, 1, 3, 4, 5, 6, 7, 8
NET_BIND_SERVICE, NET_ADMIN, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP = 10, 12, 13, 18, 27, 29, 31

# What a container engine leaves to root by default.
ENGINE = frozenset({CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT,
                    MKNOD, AUDIT_WRITE, SETFCAP})
ALL = frozenset(range(LAST_CAP + 1))

# name: (uid, capabilities).  A number instead of a name: that uid, without any.
WHO = {
    "nobody": (NOBODY, frozenset()),
    "root": (0, ENGINE - {NET_RAW}),       # the sandbox's root where NET_RAW is dropped
    "raw": (0, frozenset({NET_RAW})),      # root with that capability alone
    "engine": (0, ENGINE),                 # the sandbox's root as a container engine makes it
    "all": (0, ALL - {NET_ADMIN}),         # whatever it is given, but that
    "sidecar": (0, ENGINE | {NET_ADMIN}),  # what the sidecar has on Docker
    "weak": (0, ENGINE),                   # a sidecar without NET_ADMIN
    "admin": (0, ALL),                     # another container of the pod, or the operator
}


class CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class CapData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def must(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def permitted():
    """What this process has itself; a container's root has less than all."""
    with open("/proc/self/status", encoding="ascii") as f:
        bits = int(next(line for line in f if line.startswith("CapPrm")).split()[1], 16)
    return {cap for cap in ALL if bits >> cap & 1}


def set_capabilities(caps):
    data = (CapData * 2)()
    for cap in caps:
        word = data[cap // 32]
        word.effective |= 1 << (cap % 32)
        word.permitted |= 1 << (cap % 32)
    must(LIBC.capset(ctypes.byref(CapHeader(0x20080522, 0)), data), "capset")


def become(who):
    """The whole process becomes this user with these capabilities, for good and over exec."""
    uid, caps = WHO[who] if isinstance(who, str) else (who, frozenset())
    caps = caps & permitted()
    for cap in ALL - caps:
        LIBC.prctl(PR_CAPBSET_DROP, cap, 0, 0, 0)
    LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    set_capabilities(caps)


def enter(namespace):
    """The calling thread goes to a network namespace, given by a descriptor."""
    must(LIBC.setns(namespace, CLONE_NEWNET), "setns")


def own_files(uid):
    """Sockets that the calling thread makes from now on belong to this user."""
    LIBC.setfsuid(uid)


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
