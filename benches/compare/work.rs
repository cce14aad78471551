//! The works that are measured and are no ready-made program. Standard library only: `rustc -O work.rs`.
//!
//! Everything happens in the current directory. A failure ends the program with status 1, so that a run which did less
//! than it should is never taken for a fast one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["churn", n] => churn(number(n)),
        ["create", n] => create(number(n)),
        ["tree", root, dirs, files, seed] => {
            tree(Path::new(root), number(dirs), number(files), number(seed))
        }
        ["texts", n] => texts(number(n)),
        ["lines", n] => lines(number(n)),
        ["place", from, to] => place(Path::new(from), Path::new(to)),
        ["calls", n] => calls(number(n)),
        _ => {
            eprintln!(
                "work churn N | create N | tree ROOT DIRS FILES SEED | texts N | lines N | place FROM TO | calls N"
            );
            std::process::exit(2);
        }
    };
    if let Err(error) = done {
        eprintln!("work {}: {error}", args.join(" "));
        std::process::exit(1);
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| {
        eprintln!("work: {word} is no number");
        std::process::exit(2)
    })
}

/// Numbers that look random and are the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Creates `n` files, renames half of them, unlinks a quarter.
fn churn(n: u64) -> io::Result<()> {
    create(n)?;
    for i in 0..n / 2 {
        fs::rename(spread("f", i), spread("g", i))?;
    }
    for i in n / 2..n / 2 + n / 4 {
        fs::remove_file(spread("f", i))?;
    }
    Ok(())
}

fn create(n: u64) -> io::Result<()> {
    for i in 0..100 {
        fs::create_dir(format!("d{i}"))?;
    }
    for i in 0..n {
        File::create_new(spread("f", i))?.write_all(b"sixteen bytes..\n")?;
    }
    Ok(())
}

fn spread(name: &str, i: u64) -> String {
    format!("d{}/{name}{i}", i % 100)
}

/// A tree like that of a program's source: directories two deep, files of 200 bytes to 8 KiB of text.
fn tree(root: &Path, dirs: u64, files: u64, seed: u64) -> io::Result<()> {
    let mut numbers = Numbers(2 * seed + 1);
    fs::create_dir(root)?;
    let dir = |i: u64| {
        if i % 8 == 0 {
            root.join(format!("part{i}"))
        } else {
            root.join(format!("part{}/sub{i}", i - i % 8))
        }
    };
    for i in 0..dirs {
        fs::create_dir(dir(i))?;
    }
    for i in 0..files {
        let size = 200 + numbers.next() % 8000;
        text(
            &dir(i % dirs).join(format!("file{i}.txt")),
            size,
            &mut numbers,
        )?;
    }
    Ok(())
}

fn texts(n: u64) -> io::Result<()> {
    let mut numbers = Numbers(7);
    for i in 0..n {
        text(Path::new(&format!("file{i}.txt")), 4000, &mut numbers)?;
    }
    Ok(())
}

fn text(path: &Path, size: u64, numbers: &mut Numbers) -> io::Result<()> {
    let mut out = BufWriter::new(File::create_new(path)?);
    let mut written = 0;
    while written < size {
        let line = format!(
            "{:x} the quick brown fox {}\n",
            numbers.next(),
            numbers.next() % 1000
        );
        out.write_all(line.as_bytes())?;
        written += line.len() as u64;
    }
    out.flush()
}

/// Lines to sort, on standard output.
fn lines(n: u64) -> io::Result<()> {
    let mut numbers = Numbers(11);
    let mut out = BufWriter::new(io::stdout().lock());
    for _ in 0..n {
        writeln!(out, "{:016x}", numbers.next())?;
    }
    out.flush()
}

/// What committing by renames costs at the least: every file below `from` is renamed over its namesake below `to`.
fn place(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            place(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Prints what one call takes, in microseconds, as a JSON object.
fn calls(n: u64) -> io::Result<()> {
    fs::create_dir("calls")?;
    let name = |prefix: &str, i: u64| format!("calls/{prefix}{i}");
    let mut out = Vec::new();
    let mut measure = |what: &str, calls: u64, each: &dyn Fn(u64) -> io::Result<()>| {
        let start = Instant::now();
        for i in 0..n {
            each(i)?;
        }
        out.push(format!(
            "\"{what}\":{:.3}",
            start.elapsed().as_secs_f64() * 1e6 / (n * calls) as f64
        ));
        Ok::<(), io::Error>(())
    };
    measure("mkdir, rmdir", 2, &|i| {
        let name = name("d", i % 64);
        fs::create_dir(&name)?;
        fs::remove_dir(&name)
    })?;
    measure("create, write, close", 1, &|i| {
        File::create_new(name("f", i))?.write_all(b"sixteen bytes..\n")
    })?;
    measure("stat", 1, &|i| fs::metadata(name("f", i)).map(drop))?;
    measure("open for reading, close", 1, &|i| {
        File::open(name("f", i)).map(drop)
    })?;
    measure("open for appending, close", 1, &|i| {
        OpenOptions::new().append(true).open(name("f", i)).map(drop)
    })?;
    measure("rename", 1, &|i| fs::rename(name("f", i), name("g", i)))?;
    measure("unlink", 1, &|i| fs::remove_file(name("g", i)))?;
    println!("{{{}}}", out.join(","));
    Ok(())
}
