//! Names much like one that was mistyped.

use crate::session::Session;

/// At most three names and ids that are much like `wanted`, the most alike first.
pub(super) fn near(wanted: &str, sessions: &[Session]) -> Vec<String> {
    let mut found: Vec<(usize, &str)> = sessions
        .iter()
        .flat_map(|s| {
            s.record
                .name
                .as_deref()
                .into_iter()
                .chain([s.record.id.as_str()])
        })
        .filter_map(|name| {
            let distance = distance(wanted, name);
            let contained = wanted.len() >= 2 && name.contains(wanted);
            (contained || distance <= wanted.chars().count().div_ceil(3))
                .then_some((distance, name))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
        .into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// The number of insertions, removals and replacements of letters between two words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(80).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(80).enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distance_counts_changes() {
        assert_eq!(distance("build", "build"), 0);
        assert_eq!(distance("bulid", "build"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("käse", "kase"), 1);
    }
}
