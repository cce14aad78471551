//! What programs do that a table of calls does not show.

use crate::harness::{Scratch, python};
use effigy_journal::{Entry, Note, Op, Outcome, VersionContent};

/// Compiles a C program into the scratch directory, or says that there is no compiler.
fn compile(scratch: &Scratch, source: &str, flags: &[&str]) -> Option<String> {
    let (c, exe) = (scratch.dir.path().join("p.c"), scratch.dir.path().join("p"));
    std::fs::write(&c, source).unwrap();
    let gcc = std::process::Command::new("gcc")
        .arg(&c)
        .arg("-o")
        .arg(&exe)
        .args(flags)
        .output();
    if !gcc.is_ok_and(|output| output.status.success()) {
        println!("skipped: no compiler");
        return None;
    }
    Some(exe.to_str().unwrap().to_owned())
}

#[test]
fn io_uring_is_refused_once_a_process_and_noted() {
    let scratch = Scratch::new();
    let run = scratch.python(
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); b = ctypes.create_string_buffer(240)\n\
         for _ in range(3): assert c.syscall(425, 8, b) == -1 and ctypes.get_errno() == 38",
    );
    let refused = run
        .ok()
        .notes
        .iter()
        .filter(|note| matches!(note, Note::IoUringRefused { .. }))
        .count();
    assert_eq!(refused, 1);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn int_0x80_is_seen_and_x32_is_not_there() {
    let scratch = Scratch::new();
    let source = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        static long call(long n, long a, long b, long c) {
            long r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory"); return r;
        }
        int main() {
            char *p = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
            strcpy(p, "via80"); strcpy(p + 100, "to80");
            long addr = (long)p;
            if (call(5, addr, 0101, 0644) < 0) return 1;        /* open */
            if (call(38, addr, addr + 100, 0) < 0) return 2;    /* rename */
            if (call(39, addr, 0750, 0) < 0) return 3;          /* mkdir */
            if (call(39, 8, 0750, 0) != -EFAULT) return 4;
            if (call(40, addr, 0, 0) < 0) return 5;             /* rmdir */
            if (call(92, addr + 100, 7, 0) < 0) return 6;       /* truncate */
            if (call(193, addr + 100, 9, 0) < 0) return 7;      /* truncate64 */
            if (call(182, addr + 100, 0xffff, 0xffff) < 0) return 8; /* chown16 */
            if (syscall(0x40000000 + 83, "x32", 0700) != -1 || errno != ENOSYS) return 9;
            return 0;
        }"#;
    let Some(program) = compile(&scratch, source, &[]) else {
        return;
    };
    let run = scratch.run(&program, &[]);
    assert_eq!(run.status.code(), Some(0));
    for line in [
        "open via80 ok",
        "rename via80 to80 ok p",
        "mkdir via80 ok p",
        "rmdir via80 ok p",
        "truncate to80 ok p",
        "chown to80 ok p",
    ] {
        run.has(line);
    }
}

#[test]
fn names_through_proc_mean_the_callers() {
    let scratch = Scratch::new();
    let run = scratch.run(
        "/bin/bash",
        &["-c", "echo a >/dev/stderr; exec 7>real; echo b >/proc/self/fd/7; cat <(echo c); echo e >>/dev/fd/7; chmod 600 /proc/self/fd/7; mkdir /proc/self/cwd/d /proc/thread-self/cwd/d2"],
    );
    run.ok();
    assert!(
        run.lines
            .iter()
            .all(|line| !line.contains("/proc/") && !line.contains("/dev/")),
        "{:#?}",
        run.lines
    );
    for line in [
        "open real ok",
        "chmod real ok p",
        "mkdir d ok p",
        "mkdir d2 ok p",
    ] {
        run.has(line);
    }
}

#[test]
fn a_nameless_file_gets_a_name() {
    let scratch = Scratch::new();
    let run = scratch.python(
        "import ctypes, os\nc = ctypes.CDLL(None)\nf = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640); os.write(f, b'body')\n\
         assert c.linkat(-100, b'/proc/self/fd/%d' % f, -100, b'named', 0x400) == 0\n\
         g = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640); os.write(g, b'gone')",
    );
    assert_eq!(run.ok().lines, ["open named ok o"]);
}

#[test]
fn odd_names_are_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let scratch = Scratch::new();
    let run = scratch.python(
        "import os\nfor n in (b'a\\nb', b'\\xff\\xfe', b'c\\rd', b'-rf', b'z' * 255): os.mkdir(n)",
    );
    let names: Vec<Vec<u8>> = run
        .ok()
        .paths
        .iter()
        .zip(&run.events)
        .filter(|(_, event)| event.op.is_effect())
        .map(|(paths, _)| paths.0.file_name().unwrap().as_bytes().to_vec())
        .collect();
    assert_eq!(
        names,
        [&b"a\nb"[..], b"\xff\xfe", b"c\rd", b"-rf", &[b'z'; 255]]
    );
}

#[test]
fn contents_are_kept_before_they_are_lost() {
    let scratch = Scratch::layered();
    let run = scratch.run(
        "/bin/sh",
        &["-c", "echo one >f; echo two >f; echo three >>f; rm f; echo four >g; echo five >h; mv h g; echo six >g"],
    );
    let versions: Vec<u32> = run
        .ok()
        .events
        .iter()
        .filter_map(|event| event.op.version())
        .map(|version| version.0)
        .collect();
    assert_eq!(versions, [0, 1, 2, 3, 4, 5]);
    let records: Vec<_> = run
        .entries
        .iter()
        .filter_map(|entry| {
            if let Entry::Version(record) = entry {
                Some(*record)
            } else {
                None
            }
        })
        .collect();
    let sealed = |n: u32| std::fs::read_to_string(run.versions.join(n.to_string())).unwrap();
    // Emptied, removed, renamed over, emptied; an appended file is the beginning of the later one.
    assert_eq!(
        (sealed(0).as_str(), sealed(2).as_str()),
        ("one\n", "two\nthree\n")
    );
    assert_eq!(
        (sealed(3).as_str(), sealed(4).as_str()),
        ("four\n", "five\n")
    );
    let content = |n: u32| {
        records
            .iter()
            .find(|record| record.id.0 == n)
            .map(|record| record.content)
    };
    assert!(
        matches!(content(1), Some(VersionContent::Prefix { of, len: 4 }) if of.0 == 2),
        "{records:?}"
    );
    assert_eq!(content(5), None, "what is live is in the layers");
}

#[test]
fn a_small_file_that_lost_its_name_has_none_and_its_content_is_kept() {
    let scratch = Scratch::layered();
    let run = scratch.python(
        "import os\nfor n in (10, 100000):\n  for lose in (os.unlink, lambda f: os.rename('g', f)):\n    f = open('f', 'w+'); f.write('x' * n); f.flush()\n\
         \x20   open('g', 'w').close(); lose('f'); print(os.fstat(f.fileno()).st_nlink, end=' ')",
    );
    // A larger one is kept by a link, which costs no copy.
    assert_eq!(String::from_utf8_lossy(&run.ok().stdout), "0 0 1 1 ");
    let mut kept: Vec<u64> = std::fs::read_dir(&run.versions)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .filter(|len| *len > 0)
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, [10, 10, 100_000, 100_000]);
}

#[test]
fn a_call_that_takes_nothing_away_keeps_nothing() {
    let scratch = Scratch::layered();
    let run = scratch.python(
        "import os, ctypes\nc = ctypes.CDLL(None)\nfor n in 'fg': open(n, 'w').write('x' * 100000)\n\
         assert c.syscall(316, -100, b'f', -100, b'g', 1) == -1 and c.syscall(263, -100, b'g', 0x200) == -1\nprint(os.stat('g').st_nlink)",
    );
    assert_eq!(run.ok().stdout, b"1\n");
    assert_eq!(std::fs::read_dir(&run.versions).unwrap().count(), 0);
}

#[test]
fn what_no_event_explains_is_settled() {
    let scratch = Scratch::layered();
    let run = scratch.python(
        "import os\nos.mkdir('d')\nopen('d/f', 'w').write('x')\nopen('g', 'w').close()\n\
         os.fchmod(os.open('d', os.O_RDONLY), 0o711)\nos.fchmod(os.open('d/f', os.O_RDONLY), 0o640)",
    );
    assert_eq!((run.ok().report.unexplained, run.report.settled), (0, 2));
    let settled: Vec<_> = run
        .lines
        .iter()
        .filter(|line| line.starts_with("settle"))
        .collect();
    assert_eq!(settled.len(), 2, "{:?}", run.lines);

    // A file that was there before the run and that the run did not touch stands for one whose writing was not seen.
    let scratch = Scratch::layered();
    std::fs::write(scratch.work().join("unseen"), "x").unwrap();
    let run = scratch.run("/bin/sh", &["-c", "mkdir d; : >d/f; mv d e"]);
    assert_eq!(run.ok().report.unexplained, 1);
    run.has("settle unseen ok");
}

#[test]
fn processes_are_entered_with_parents_and_statuses() {
    let scratch = Scratch::new();
    let run = scratch.run(
        "/bin/sh",
        &[
            "-c",
            "sh -c 'mkdir a; exit 3'; mkdir b; sh -c 'kill -9 $$'; :",
        ],
    );
    let exits: Vec<_> = run
        .ok()
        .events
        .iter()
        .filter_map(|event| {
            if let Op::Exit { status } = event.op {
                Some(status)
            } else {
                None
            }
        })
        .collect();
    assert!(
        exits.contains(&effigy_journal::Exit::Code(3))
            && exits.contains(&effigy_journal::Exit::Signal(9)),
        "{exits:?}"
    );
    let argv: Vec<_> = run
        .events
        .iter()
        .filter_map(|event| {
            if let Op::Exec { argv, .. } = &event.op {
                argv.last().cloned()
            } else {
                None
            }
        })
        .collect();
    assert!(
        argv.iter().any(|arg| arg.as_bytes() == b"mkdir a; exit 3"),
        "{argv:?}"
    );
}

#[test]
fn pipelines_and_spawns_run_unharmed() {
    let scratch = Scratch::new();
    let run = scratch.run(
        "/bin/sh",
        &["-c", "i=0; while [ $i -lt 100 ]; do echo $i | tr 0-9 a-j | cat >>out; i=$((i+1)); done; wc -l <out"],
    );
    assert_eq!(String::from_utf8_lossy(&run.ok().stdout).trim(), "100");
    let run = scratch.python(
        "import subprocess\nps = [subprocess.Popen(['sh', '-c', ': >s%d' % i]) for i in range(300)]\n\
         assert all(p.wait() == 0 for p in ps)",
    );
    let made = run
        .ok()
        .events
        .iter()
        .filter(|event| matches!(event.op, Op::Open { created: true, .. }))
        .count();
    assert_eq!(made, 300);
}

#[test]
fn threads_lose_no_call() {
    let scratch = Scratch::new();
    let code = "import os, threading\ndef work(t):\n  for i in range(100):\n    n = 'f%d.%d' % (t, i); open(n, 'w').write(n); os.rename(n, 'g' + n)\n\
        ts = [threading.Thread(target=work, args=(t,)) for t in range(16)]\n[t.start() for t in ts]; [t.join() for t in ts]";
    let run = scratch.run(python(), &["-c", code]);
    let count = |name: &str| {
        run.events
            .iter()
            .filter(|e| e.op.name() == name && e.result == Outcome::Ok)
            .count()
    };
    run.ok();
    assert_eq!((count("open"), count("rename")), (1600, 1600));
    assert_eq!(std::fs::read_dir(scratch.work()).unwrap().count(), 1600);
}

#[test]
fn debuggers_work_inside() {
    let scratch = Scratch::new();
    let strace = std::process::Command::new("strace").arg("-V").output();
    if !strace.is_ok_and(|output| output.status.success()) {
        println!("skipped: no strace");
        return;
    }
    let run = scratch.run(
        "strace",
        &["-f", "-o", "trace", "sh", "-c", "mkdir inside; exit 4"],
    );
    assert_eq!(run.status.code(), Some(4));
    run.has("mkdir inside ok p");
    let trace = std::fs::read_to_string(scratch.work().join("trace")).unwrap();
    assert!(trace.contains("mkdir(\"inside\""), "{trace}");
}

#[test]
fn an_undumpable_process_is_recorded() {
    let scratch = Scratch::new();
    let run =
        scratch.python("import ctypes, os; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); os.mkdir('nd')");
    // Without power over the process (no user namespace here) its memory may be shut: then the call is left to it, and noted.
    let seen = run
        .ok()
        .lines
        .iter()
        .any(|line| line.starts_with("mkdir nd ok"));
    assert!(seen || !run.notes.is_empty() || !nix::unistd::geteuid().is_root());
    assert!(scratch.work().join("nd").exists());
}

#[test]
fn a_path_that_changes_under_the_call_is_recorded_as_it_was_executed() {
    let scratch = Scratch::new();
    let source = r#"
        #include <pthread.h>
        #include <string.h>
        #include <sys/stat.h>
        #include <unistd.h>
        char p[8] = "good";
        void *f(void *_) { for (;;) { memcpy(p, "evil", 4); memcpy(p, "good", 4); } return 0; }
        int main() { pthread_t t; pthread_create(&t, 0, f, 0);
            for (int i = 0; i < 3000; i++) { mkdir(p, 0700); rmdir(p); } return 0; }"#;
    let Some(program) = compile(&scratch, source, &["-O1", "-pthread"]) else {
        return;
    };
    let run = scratch.run(&program, &[]);
    let mut there = std::collections::BTreeSet::new();
    for (event, paths) in run
        .ok()
        .events
        .iter()
        .zip(&run.paths)
        .filter(|(event, _)| event.result == Outcome::Ok)
    {
        let name = paths.0.file_name().map(std::ffi::OsStr::to_owned);
        match event.op {
            Op::Mkdir { .. } => assert!(there.insert(name), "made twice"),
            Op::Rmdir { .. } => assert!(there.remove(&name), "removed what was not there"),
            _ => {}
        }
    }
    let left: std::collections::BTreeSet<_> = std::fs::read_dir(scratch.work())
        .unwrap()
        .map(|entry| Some(entry.unwrap().file_name()))
        .collect();
    assert_eq!(left, there);
}
