//! Prints a journal as text: `cargo run -p effigy-journal --example log -- <session>/journal`.
//!
//! With `--follow` it waits for more until the recording has ended.

use effigy_journal::{Entry, Event, Outcome, Paths, Processes, Reader, Tail};
use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let mut follow = false;
    let mut journal = None;
    for arg in std::env::args_os().skip(1) {
        match arg == "--follow" {
            true => follow = true,
            false => journal = Some(arg),
        }
    }
    let journal = journal.ok_or("usage: log [--follow] JOURNAL")?;
    let mut reader = Reader::open(File::open(journal)?)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    loop {
        while let Some(entry) = reader.next_entry()? {
            match entry {
                Entry::Event(event) => print(&mut out, &event, reader.paths(), reader.processes())?,
                Entry::End(end) => {
                    writeln!(
                        out,
                        "end: {} events, {} unexplained",
                        end.events, end.unexplained
                    )?;
                }
                _ => {}
            }
        }
        out.flush()?;
        if !follow || matches!(reader.tail(), Tail::Complete | Tail::Damaged { .. }) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    writeln!(
        out,
        "{:?}; {} events in {} bytes, {} paths, {} processes",
        reader.tail(),
        reader.last().0,
        reader.offset(),
        reader.paths().len(),
        reader.processes().len(),
    )?;
    Ok(())
}

fn print(
    out: &mut impl Write,
    event: &Event,
    paths: &Paths,
    processes: &Processes,
) -> io::Result<()> {
    let process = processes
        .get(event.process)
        .map_or(&b""[..], |process| process.name(paths));
    let micros = event.time / 1000;
    let name = event.op.name();
    write!(
        out,
        "{:>6} {:>10} {:<12} {name}",
        event.seq.0,
        micros,
        process.escape_ascii().to_string()
    )?;
    let mut buffer = Vec::new();
    for path in [event.op.path(), event.op.to()].into_iter().flatten() {
        paths.read(path, &mut buffer);
        write!(out, " {}", buffer.escape_ascii())?;
    }
    match event.result {
        Outcome::Ok => writeln!(out),
        Outcome::Errno(errno) => writeln!(out, " = errno {errno}"),
        Outcome::Unknown => writeln!(out, " = ?"),
    }
}
