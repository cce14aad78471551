"""Where measuring happens: a filesystem of its own, and the user whose runs are measured.

A machine's own disk is a poor place: what was deleted before, or is written back meanwhile, is in the figures. As root
the runs happen on a journalled ext4 image in memory (or on a tmpfs), mounted in a private mount namespace, so that the
machine is not changed and nothing has to be unmounted. An ordinary user gives a directory.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile

CLONE_NEWNS = 0x00020000
IMAGE_SIZE = 4 << 30
# An ordinary user's number; it need not exist in /etc/passwd. (Not 65534: inside a user namespace that means "unmapped".)
ORDINARY = 1000


class Scratch:
    """Directories to measure in; `other` is a second filesystem, or None."""

    def __init__(self, root, kind, other):
        self.root, self.kind, self.other = root, kind, other

    def path(self, *names):
        return os.path.join(self.root, *names)

    def fresh(self, name):
        """An empty directory of this name."""
        path = self.path(name)
        remove(path)
        os.mkdir(path)
        return path


def remove(path):
    """Deletes a tree, also where directories are closed to their owner (overlayfs makes such)."""
    if not os.path.lexists(path):
        return
    for directory, _, _ in os.walk(path, onerror=lambda error: os.chmod(error.filename, 0o700)):
        os.chmod(directory, 0o700)
    try:
        shutil.rmtree(path)
    except PermissionError:
        subprocess.run(["chmod", "-R", "u+rwx", path], check=True)
        shutil.rmtree(path)


def make(filesystem, directory):
    """Makes the scratch filesystem; `filesystem` is ext4, tmpfs, or none (then below `directory`)."""
    if filesystem == "none" or os.geteuid() != 0:
        root = tempfile.mkdtemp(prefix="effigy-bench.", dir=directory)
        kind = subprocess.run(["stat", "-f", "-c", "%T", root], capture_output=True, text=True, check=True).stdout.strip()
        return Scratch(root, f"{kind}, the machine's own", None)
    own_mounts()
    places = [path for path in ("/mnt", "/media", "/srv", "/opt") if os.path.isdir(path) and not os.listdir(path)]
    if not places:
        raise SystemExit("none of /mnt, /media, /srv and /opt is an empty directory to mount on: use --fs none --dir DIR")
    root, *others = places
    if filesystem == "tmpfs":
        mount("-t", "tmpfs", "-o", "size=4g,mode=755", "tmpfs", root)
        kind = "tmpfs"
    else:
        mount_image(root)
        kind = "ext4 with a journal, on an image in memory"
    other = others[0] if others else None
    if other:
        mount("-t", "tmpfs", "-o", "size=2g,mode=755", "tmpfs", other)
    return Scratch(root, kind, other)


def own_mounts():
    """Enters a mount namespace from which nothing reaches the machine's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a mount namespace")
    mount("--make-rprivate", "/")


def mount_image(root):
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.NamedTemporaryFile(prefix="effigy-bench.", dir=base) as image:
        image.truncate(IMAGE_SIZE)
        # Nothing is left to be initialised in the background while runs are measured.
        lazy = "lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0"
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", lazy, image.name], check=True)
        # The loop device keeps the nameless image, and lets go of it when the last mount is gone.
        mount("-o", "loop,noatime", image.name, root)
    os.rmdir(os.path.join(root, "lost+found"))


def mount(*args):
    subprocess.run(["mount", *args], check=True)


def become(scratch, uid):
    """Everything from here on, data and runs, is done by this user."""
    if os.geteuid() != 0 or uid == 0:
        return
    for path in filter(None, (scratch.root, scratch.other)):
        os.chown(path, uid, uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
