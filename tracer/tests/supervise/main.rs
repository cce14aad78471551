//! The supervisor against real programs, without a semisolate.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

mod fidelity;
mod harness;
mod order;
mod programs;

use effigy_tracer::Options;
use harness::Scratch;

#[test]
fn a_shell_and_its_tools() {
    let scratch = Scratch::new();
    let run = scratch.run(
        "/bin/sh",
        &[
            "-c",
            "echo one >f; cp f g; echo two >f; mv f h; rm g; echo three >g; mkdir d; exit 7",
        ],
    );
    assert_eq!(run.status.code(), Some(7));
    let lines: Vec<&str> = run
        .lines
        .iter()
        .map(|line| &line[..line.len() - 2])
        .collect();
    assert_eq!(
        lines,
        [
            "open f ok",
            "open g ok",
            "open f ok",
            "rename f h ok",
            "unlink g ok",
            "open g ok",
            "mkdir d ok"
        ]
    );
    assert_eq!(run.execs(), 5);
    assert_eq!(run.tail, effigy_journal::Tail::Complete);
}

#[test]
fn many_calls_are_all_there() {
    let scratch = Scratch::new();
    let run = scratch.python("import os,time\nt=time.time()\nfor i in range(5000): os.mkdir('d'); os.rmdir('d')\nprint((time.time()-t)*1e6/10000,'us a call')");
    run.ok();
    assert_eq!(run.lines.len(), 10000);
    println!(
        "{} {} bytes, {:?}",
        String::from_utf8_lossy(&run.stdout).trim(),
        run.journal_bytes,
        run.report
    );
}

#[test]
fn reads_stop_only_when_asked_for() {
    let scratch = Scratch::new();
    std::fs::write(scratch.work().join("f"), "x").unwrap();
    let code = "import os; open('f').read(); os.stat('f')";
    let without = scratch.python(code);
    assert!(
        without
            .ok()
            .events
            .iter()
            .all(|event| event.op.name() != "read")
    );
    let with = scratch.run_with(harness::python(), &["-c", code], Options { reads: true });
    assert!(
        with.ok()
            .events
            .iter()
            .filter(|event| event.op.name() == "read")
            .count()
            >= 2
    );
}
