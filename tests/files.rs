//! Files behave inside as they do outside: watched, locked, mapped, nameless, with holes; and what is told of filesystems is plausible.

use crate::harness::{Scene, as_everyone, has};

/// Runs a Python program inside, which says `fine` when all is as it should be.
#[track_caller]
fn python(scene: &Scene, setup: &str, program: &str) {
    if !has(scene, "python3") {
        return;
    }
    scene.sh(setup).run().must_succeed();
    let path = scene.dir().join("program.py");
    std::fs::write(&path, program).expect("write the program");
    let outside = scene
        .sh("cp -a . ../copy; cd ../copy; python3 -B \"$0\"")
        .arg(&path)
        .run();
    outside.must_succeed();
    let done = scene
        .effigy(&["run", "-q", "-n", "-s", "s", "--", "python3", "-B"])
        .arg(&path)
        .run()
        .must_succeed();
    assert_eq!(done.text(), "fine\n", "{done}");
    scene.commit("s");
}

const WATCH: &str = r#"
import ctypes, os, select, struct
c = ctypes.CDLL(None, use_errno=True)
fd = c.inotify_init1(0o4000)
MODIFY, CREATE, MOVED_FROM, MOVED_TO, DELETE = 2, 256, 64, 128, 512
assert c.inotify_add_watch(fd, b"d", MODIFY | CREATE | MOVED_FROM | MOVED_TO | DELETE) >= 0
assert c.inotify_add_watch(fd, b"new", MODIFY | CREATE) < 0
def seen():
    got = []
    while select.select([fd], [], [], 1 if not got else 0.05)[0]:
        buffer = os.read(fd, 65536)
        while buffer:
            _, mask, _, n = struct.unpack_from("iIII", buffer)
            got.append((mask & 0xfff, buffer[16:16 + n].rstrip(b"\0").decode()))
            buffer = buffer[16 + n:]
    return got
open("d/made", "w").close(); assert (CREATE, "made") in seen()
open("d/old", "a").write("more"); assert (MODIFY, "old") in seen(), "a file that was there"
os.rename("d/old", "d/renamed"); got = seen(); assert (MOVED_FROM, "old") in got and (MOVED_TO, "renamed") in got, got
os.unlink("d/made"); assert (DELETE, "made") in seen()
if os.fork() == 0:
    open("d/child", "w").write("x"); os._exit(0)
os.wait(); assert (CREATE, "child") in seen()
print("fine")
"#;

const LOCKS: &str = r#"
import fcntl, os, time
for name in ["old", "new"]:
    f = open(name, "a+"); fcntl.flock(f, fcntl.LOCK_EX)
    if os.fork() == 0:
        g = open(name, "a+")
        try: fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB); os._exit(1)
        except BlockingIOError: os._exit(0)
    assert os.wait()[1] == 0, name
    fcntl.flock(f, fcntl.LOCK_UN)
    fcntl.lockf(f, fcntl.LOCK_EX, 10, 5)
    if os.fork() == 0:
        g = open(name, "r+")
        fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
        try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 12); os._exit(1)
        except BlockingIOError: os._exit(0)
    assert os.wait()[1] == 0, name
print("fine")
"#;

const MAPS: &str = r#"
import mmap, os
with open("old", "r+b") as f:
    m = mmap.mmap(f.fileno(), 0); m[0:3] = b"MAP"; m.flush()
    assert open("old", "rb").read().startswith(b"MAP")
    os.pwrite(f.fileno(), b"PWRITE", 4); assert m[4:10] == b"PWRITE"
    if os.fork() == 0:
        with open("old", "r+b") as g: mmap.mmap(g.fileno(), 0)[11] = 33
        os._exit(0)
    os.wait(); assert m[11] == 33
with open("new", "w+b") as f:
    f.truncate(1 << 20); m = mmap.mmap(f.fileno(), 0); m[1 << 19] = 7; m.close()
    assert os.pread(f.fileno(), 1, 1 << 19) == b"\7"
print("fine")
"#;

const NAMELESS: &str = r#"
import os, tempfile
f = os.open("d", os.O_TMPFILE | os.O_RDWR, 0o640); os.write(f, b"nameless")
assert os.listdir("d") == ["old"] and os.fstat(f).st_nlink == 0
import ctypes; c = ctypes.CDLL(None, use_errno=True)
assert c.linkat(-100, f"/proc/self/fd/{f}".encode(), -100, b"d/named", 0x400) == 0, ctypes.get_errno()
assert open("d/named").read() == "nameless" and os.stat("d/named").st_mode & 0o777 == 0o640 and os.fstat(f).st_nlink == 1
with tempfile.TemporaryFile(dir=".") as t: t.write(b"x"); t.flush()
os.unlink("d/old"); s = os.open("sparse", os.O_RDWR | os.O_CREAT); os.pwrite(s, b"end", 64 << 20)
st = os.fstat(s); assert st.st_size == (64 << 20) + 3 and st.st_blocks * 512 < 1 << 20, st
assert os.lseek(s, 0, os.SEEK_DATA) >= 60 << 20
print("fine")
"#;

const STABLE: &str = r#"
import os
def of(s): return s.st_dev, s.st_ino
for name in ["old", "d/old", "l"]:
    before = os.lstat(name)
    read = os.open(name, os.O_RDONLY | os.O_NOFOLLOW) if name != "l" else None
    if name == "l": os.utime(name, ns=(5, 5), follow_symlinks=False)
    else:
        open(name, "a").write("more"); os.chmod(name, 0o600)
        assert of(os.stat(name)) == of(before), (name, before, os.stat(name))
        f = os.open(name, os.O_RDWR); assert of(os.fstat(f)) == of(before), name
    assert of(os.lstat(name)) == of(before), name
d = os.stat("d"); open("d/new", "w").close(); assert of(os.stat("d")) == of(d)
new = os.stat("d/new"); os.rename("d/new", "moved"); assert of(os.stat("moved")) == of(new)
numbers = [os.lstat(n).st_ino for n in ["old", "d/old", "l", "moved", "d"]]; assert len(set(numbers)) == 5
print("fine")
"#;

as_everyone! {
    fn changes_are_noticed(scene: &Scene) {
        python(scene, "mkdir d; echo 1 >d/old", WATCH);
    }

    fn locks_hold_between_processes(scene: &Scene) {
        python(scene, "echo 0123456789 >old", LOCKS);
    }

    fn mapped_files_are_shared(scene: &Scene) {
        python(scene, "echo 0123456789012345 >old", MAPS);
        assert_eq!(scene.sh("head -c 12 old; stat -c %s new").run().text(), "MAP3PWRITE0!1048576\n");
    }

    fn nameless_files_and_holes(scene: &Scene) {
        python(scene, "mkdir d; echo 1 >d/old", NAMELESS);
        assert_eq!(scene.sh("ls . d; cat d/named").run().text(), ".:\nd\nsparse\n\nd:\nnamed\nnameless");
    }

    fn a_file_keeps_its_identity_when_it_is_changed(scene: &Scene) {
        python(scene, "mkdir d; echo 1 >old; echo 2 >d/old; ln -s old l", STABLE);
    }

    fn tail_follows_a_file(scene: &Scene) {
        let script = "tail -s 0.05 --max-unchanged-stats=2 -n1 -F old >seen 2>/dev/null & sleep 0.3; echo two >>old; sleep 0.3; mv old gone; echo three >old; for i in $(seq 50); do grep -q three seen && break; sleep 0.1; done; kill $!; cat seen";
        scene.sh("echo one >old").run().must_succeed();
        let done = scene.effigy(&["run", "-q", "-n", "--", "sh", "-euc", script]).run().must_succeed();
        assert_eq!(done.text(), "one\ntwo\nthree\n");
    }

    fn what_is_told_of_filesystems_is_plausible(scene: &Scene) {
        let script = "df -P . | tail -n1 | awk '{ print $2 }'; stat -f -c '%S %l' .; du -s --apparent-size d; du -s d; df -P / /tmp /var/tmp >/dev/null; findmnt -n -T . -o TARGET >/dev/null; stat -c '%n %F %s %b %h %B' d/f; ls -s d/f; df -i . >/dev/null";
        scene.sh("mkdir d; seq 10000 >d/f").run().must_succeed();
        let inside = scene.effigy(&["run", "-q", "-n", "--", "sh", "-euc", script]).run().must_succeed();
        let outside = scene.sh(script).run().must_succeed();
        assert_eq!(inside.text(), outside.text());
    }
}
