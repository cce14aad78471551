//! Tables with aligned columns.

use std::io::{self, Write};

/// How a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Writes rows below their headings, two spaces between columns and none at the end of a line.
pub(crate) fn write_table<const N: usize>(
    out: &mut dyn Write,
    headings: [(&str, Align); N],
    rows: &[[String; N]],
) -> io::Result<()> {
    let mut widths = headings.map(|(text, _)| text.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let head = headings.map(|(text, _)| text.to_owned());
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(widths).zip(headings) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let padding = " ".repeat(width - cell.chars().count());
            match align {
                Align::Left => line.extend([cell.as_str(), &padding]),
                Align::Right => line.extend([padding.as_str(), cell]),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut out = Vec::new();
        let rows = [
            ["ab".to_owned(), "1".to_owned(), "x y".to_owned()],
            ["é".to_owned(), "100".to_owned(), String::new()],
        ];
        let headings = [
            ("ID", Align::Left),
            ("SIZE", Align::Right),
            ("CMD", Align::Left),
        ];
        write_table(&mut out, headings, &rows).expect("a vector takes everything");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "ID  SIZE  CMD\nab     1  x y\né    100\n"
        );
    }
}
