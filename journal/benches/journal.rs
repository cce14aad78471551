//! How fast a journal is written, and read and filtered; and how many bytes an event takes.
#![expect(
    missing_docs,
    reason = "criterion's macros make public functions without documentation"
)]
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use effigy_journal::{
    By, Entry, NewEvent, Op, Outcome, PathId, Reader, Stat, Tid, TimeChange, Timestamp, VersionId,
    Why, Writer,
};
use std::fs::File;
use std::hint::black_box;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

const EVENTS: u64 = 200_000;

/// Paths as npm makes them: packages with a few directories and a dozen files each.
fn paths() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for package in 0.. {
        for dir in ["", "lib", "lib/internal", "test"] {
            for file in [
                "index.js",
                "package.json",
                "util-helpers.js",
                "README.md",
                "types.d.ts",
            ] {
                paths.push(
                    Path::new("/home/user/project/node_modules")
                        .join(format!("package-{package}"))
                        .join(dir)
                        .join(file),
                );
                if paths.len() == 60_000 {
                    return paths;
                }
            }
        }
    }
    paths
}

/// Writes what an installation does: each file is created, some are given a mode and times, some are renamed into place.
fn record(paths: &[PathBuf]) -> File {
    let mut writer = Writer::create(tempfile::tempfile().unwrap()).unwrap();
    let shell = writer.process(None, 2, 0).unwrap();
    let node = writer.process(Some(shell), 7, 10_000).unwrap();
    let mut time = 20_000;
    let mut version = 0;
    let touch = |writer: &mut Writer, path: &Path| {
        let path = writer.path(path).unwrap();
        writer.precondition(path, None::<&Stat>).unwrap();
        path
    };
    let mut append = |writer: &mut Writer, by, op| {
        time += 90_000;
        let event = NewEvent {
            time,
            process: node,
            tid: Tid(9),
            by,
            op,
            result: Outcome::Ok,
        };
        writer.append(event).unwrap();
    };
    let mut n = 0;
    'all: for path in paths.iter().cycle() {
        let id = touch(&mut writer, path);
        version += 1;
        let flags = 0x80241;
        let op = Op::Open {
            path: id,
            flags,
            mode: 0o644,
            created: true,
            truncated: false,
            version: Some(VersionId(version)),
        };
        let mut ops = vec![(By::Observed(Why::Class), op)];
        if n % 3 == 0 {
            ops.push((
                By::Performed,
                Op::Chmod {
                    path: id,
                    mode: 0o755,
                },
            ));
        }
        if n % 4 == 0 {
            let mtime = TimeChange::Set(Timestamp(499_162_500_000_000_000));
            ops.push((
                By::Performed,
                Op::Utimens {
                    path: id,
                    atime: mtime,
                    mtime,
                },
            ));
        }
        if n % 5 == 0 {
            let mut to = path.clone();
            to.as_mut_os_string().push("~");
            let to = touch(&mut writer, &to);
            ops.push((
                By::Performed,
                Op::Rename {
                    from: id,
                    to,
                    flags: 0,
                    replaced: false,
                },
            ));
        }
        for (by, op) in ops {
            append(&mut writer, by, op);
            n += 1;
            if n == EVENTS {
                break 'all;
            }
        }
    }
    writer.finish(time, 0).unwrap()
}

/// The events that change something below `lib`: each path is looked at once, its events cost a look-up.
fn filter(bytes: &[u8]) -> u64 {
    let mut reader = Reader::open(bytes).unwrap();
    let mut verdicts: Vec<Option<bool>> = Vec::new();
    let mut buffer = Vec::new();
    let mut found = 0;
    while let Some(entry) = reader.next_entry().unwrap() {
        let Entry::Event(event) = entry else { continue };
        let Some(PathId(path)) = event.op.path() else {
            continue;
        };
        verdicts.resize(reader.paths().len(), None);
        let verdict = &mut verdicts[path as usize];
        let wanted = verdict.unwrap_or_else(|| {
            reader.paths().read(PathId(path), &mut buffer);
            buffer.windows(5).any(|part| part == b"/lib/")
        });
        *verdict = Some(wanted);
        found += u64::from(wanted && event.result == Outcome::Ok && event.op.is_effect());
    }
    found
}

fn journal(c: &mut Criterion) {
    let paths = paths();
    let mut file = record(&paths);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    let tenths = bytes.len() as u64 * 10 / EVENTS;
    eprintln!(
        "{EVENTS} events in {} bytes: {}.{} an event",
        bytes.len(),
        tenths / 10,
        tenths % 10
    );
    let mut group = c.benchmark_group("journal");
    group
        .throughput(Throughput::Elements(EVENTS))
        .sample_size(20);
    group.bench_function("read and filter", |b| b.iter(|| filter(black_box(&bytes))));
    group.bench_function("write", |b| {
        b.iter_batched(|| (), |()| record(&paths), BatchSize::PerIteration)
    });
    group.finish();
}

criterion_group!(benches, journal);
criterion_main!(benches);
