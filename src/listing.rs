//! Net effects as lines: for `summary`, and at the end of a run.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::render::colour::{Ink, Palette};
use crate::render::name::escaped;
use crate::risk::Risk;

/// One net effect as it is listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) code: Code,
    pub(crate) path: &'a Path,
    /// The earlier path of something renamed.
    pub(crate) from: Option<&'a Path>,
    pub(crate) risk: Option<Risk>,
    pub(crate) is_directory: bool,
}

/// The kind of a net effect, in one letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    Added,
    Content,
    Metadata,
    Deleted,
    Type,
    Renamed,
}

impl Code {
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Content => 'M',
            Self::Metadata => 'm',
            Self::Deleted => 'D',
            Self::Type => 'T',
            Self::Renamed => 'R',
        }
    }

    const fn ink(self) -> Ink {
        match self {
            Self::Added => Ink::Added,
            Self::Content | Self::Metadata | Self::Type => Ink::Changed,
            Self::Deleted => Ink::Deleted,
            Self::Renamed => Ink::Renamed,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Content => "changed",
            Self::Metadata => "changed in metadata only",
            Self::Deleted => "deleted",
            Self::Type => "changed in type",
            Self::Renamed => "renamed",
        }
    }
}

/// Writes a line for each row, in the order given, and marks nothing.
pub(crate) fn write_plain<'a>(
    out: &mut dyn Write,
    rows: impl IntoIterator<Item = Row<'a>>,
) -> io::Result<()> {
    for row in rows {
        write!(out, "{} ", row.code.letter())?;
        if let Some(from) = row.from {
            write!(out, "{} -> ", escaped(from))?;
        }
        writeln!(out, "{}", escaped(row.path))?;
    }
    Ok(())
}

/// Writes rows that end with NUL and hold the names as they are.
pub(crate) fn write_null<'a>(
    out: &mut dyn Write,
    rows: impl IntoIterator<Item = Row<'a>>,
) -> io::Result<()> {
    for row in rows {
        write!(out, "{} ", row.code.letter())?;
        if let Some(from) = row.from {
            out.write_all(from.as_os_str().as_bytes())?;
            out.write_all(b" -> ")?;
        }
        out.write_all(row.path.as_os_str().as_bytes())?;
        out.write_all(b"\0")?;
    }
    Ok(())
}

/// Writes rows for a person: the risky ones first and marked.
///
/// With `room`, and more rows than that, what is new below a new directory is folded into that directory's line, and of
/// many alike in one directory the first are shown. Risky rows are always written, and a deletion is never abridged.
pub(crate) fn write_for_review(
    out: &mut dyn Write,
    rows: &[Row<'_>],
    palette: Palette,
    room: Option<usize>,
) -> io::Result<()> {
    for row in rows {
        if let Some(risk) = row.risk {
            write_row(out, row, palette)?;
            writeln!(
                out,
                "  {}",
                palette.paint(Ink::Risky, format_args!("! {risk}"))
            )?;
        }
    }
    let fold = room.is_some_and(|room| rows.len() > room);
    let mut rest = rows.iter().filter(|row| row.risk.is_none()).peekable();
    // Consecutive rows of one kind directly in one directory.
    let mut alike = 0;
    let mut before: Option<&Row<'_>> = None;
    while let Some(row) = rest.next() {
        alike = match before {
            Some(before) if row.is_beside(before) => alike + 1,
            _ => 1,
        };
        before = Some(row);
        if fold && alike > ALIKE && row.may_fold() {
            let mut folded = 1;
            let mut beside = row;
            while let Some(next) =
                rest.next_if(|next| next.is_beside(row) || next.is_new_below(beside))
            {
                folded += 1;
                if next.is_beside(row) {
                    beside = next;
                }
            }
            let directory = row.path.parent().unwrap_or(row.path);
            let note = format!("{folded} more in {}", escaped(directory));
            let letter = palette.paint(row.code.ink(), row.code.letter());
            writeln!(out, "{letter} {}", palette.paint(Ink::Faint, note))?;
            continue;
        }
        write_row(out, row, palette)?;
        if fold && row.is_directory {
            let mut folded = 0;
            while rest.next_if(|next| next.is_new_below(row)).is_some() {
                folded += 1;
            }
            if folded > 0 {
                let note = format!("  and {folded} more below it");
                write!(out, "{}", palette.paint(Ink::Faint, note))?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// So many rows of one kind in one directory are shown before the others are counted.
const ALIKE: usize = 10;

impl Row<'_> {
    /// Whether it may be counted instead of shown: what went away, or is not what it was, is always shown.
    fn may_fold(&self) -> bool {
        matches!(self.code, Code::Added | Code::Content | Code::Metadata)
    }

    /// Whether it is new like the directory it lies in.
    fn is_new_below(&self, directory: &Row<'_>) -> bool {
        let new = self.code == Code::Added && directory.code == Code::Added;
        new && self.path.starts_with(directory.path)
    }

    fn is_beside(&self, other: &Row<'_>) -> bool {
        self.code == other.code && self.path.parent() == other.path.parent()
    }
}

fn write_row(out: &mut dyn Write, row: &Row<'_>, palette: Palette) -> io::Result<()> {
    write!(out, "{} ", palette.paint(row.code.ink(), row.code.letter()))?;
    if let Some(from) = row.from {
        write!(out, "{} -> ", escaped(from))?;
    }
    write!(out, "{}", escaped(row.path))
}

/// Counts by kind: `3 added, 1 deleted`.
pub(crate) fn tally(rows: &[Row<'_>]) -> String {
    const ORDER: [Code; 6] = [
        Code::Added,
        Code::Content,
        Code::Metadata,
        Code::Type,
        Code::Renamed,
        Code::Deleted,
    ];
    let mut parts = Vec::new();
    for code in ORDER {
        let number = rows.iter().filter(|row| row.code == code).count();
        if number > 0 {
            parts.push(format!("{number} {}", code.words()));
        }
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(code: Code, path: &str, is_directory: bool) -> Row<'_> {
        Row {
            code,
            path: Path::new(path),
            from: None,
            risk: None,
            is_directory,
        }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    fn sample() -> Vec<Row<'static>> {
        let mut renamed = row(Code::Renamed, "/w/to", false);
        renamed.from = Some(Path::new("/w/fr\nom"));
        let mut risky = row(Code::Content, "/w/.git/hooks/x", false);
        risky.risk = Some(Risk::Hook);
        vec![
            risky,
            row(Code::Added, "/w/new", true),
            row(Code::Added, "/w/new/a", false),
            row(Code::Added, "/w/new/b", true),
            row(Code::Added, "/w/new/b/c", false),
            row(Code::Added, "/w/newer", false),
            row(Code::Deleted, "/w/old", true),
            row(Code::Deleted, "/w/old/f", false),
            renamed,
        ]
    }

    #[test]
    fn a_line_is_a_code_a_space_and_the_path() {
        assert_eq!(
            text(|out| write_plain(out, sample())),
            "M /w/.git/hooks/x\nA /w/new\nA /w/new/a\nA /w/new/b\nA /w/new/b/c\nA /w/newer\nD /w/old\nD /w/old/f\n\
             R /w/fr\\nom -> /w/to\n"
        );
    }

    #[test]
    fn null_lines_are_raw() {
        let shown = text(|out| write_null(out, sample()));
        assert!(shown.ends_with("R /w/fr\nom -> /w/to\0"), "{shown:?}");
        assert_eq!(shown.matches('\0').count(), 9);
    }

    #[test]
    fn additions_fold_and_deletions_do_not() {
        let rows = sample();
        assert_eq!(
            text(|out| write_for_review(out, &rows, Palette::plain(), Some(4))),
            "M /w/.git/hooks/x  ! hook\nA /w/new  and 3 more below it\nA /w/newer\nD /w/old\nD /w/old/f\n\
             R /w/fr\\nom -> /w/to\n"
        );
    }

    #[test]
    fn many_alike_in_one_directory_are_counted() {
        let added: Vec<String> = (0..40).map(|n| format!("/w/a/{n:02}")).collect();
        let deleted: Vec<String> = (0..40).map(|n| format!("/w/d/{n:02}")).collect();
        let rows: Vec<_> = added
            .iter()
            .map(|path| row(Code::Added, path, false))
            .chain(deleted.iter().map(|path| row(Code::Deleted, path, false)))
            .collect();
        let shown = text(|out| write_for_review(out, &rows, Palette::plain(), Some(30)));
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[9..12],
            ["A /w/a/09", "A 30 more in /w/a", "D /w/d/00"]
        );
        assert_eq!(lines.len(), 10 + 1 + 40);
    }

    #[test]
    fn a_short_list_is_written_whole() {
        let rows = sample();
        let shown = text(|out| write_for_review(out, &rows, Palette::plain(), Some(40)));
        assert_eq!(shown.lines().count(), rows.len());
    }

    #[test]
    fn tallies_name_what_there_is() {
        assert_eq!(tally(&sample()), "5 added, 1 changed, 1 renamed, 2 deleted");
        assert_eq!(tally(&[]), "");
    }
}
