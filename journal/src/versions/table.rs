//! What a journal says about its versions.

use crate::event::{VersionContent, VersionId, VersionRecord};
use std::collections::HashMap;

/// Where the bytes of a version are, when all is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// The first `len` bytes of `versions/<file>`.
    Sealed {
        /// The version whose file it is.
        file: VersionId,
        /// Bytes.
        len: u64,
    },
    /// In the layers: the content that version `of` still has there, or its first `len` bytes.
    Live {
        /// The version that is live.
        of: VersionId,
        /// Bytes, unless all.
        len: Option<u64>,
    },
    /// Nowhere.
    Lost,
}

/// What a journal says about its versions.
#[derive(Clone, Debug, Default)]
pub struct VersionTable {
    records: HashMap<VersionId, VersionRecord>,
}

impl VersionTable {
    /// Takes note of a record; a later one about the same version counts.
    pub fn insert(&mut self, record: VersionRecord) {
        self.records.insert(record.id, record);
    }

    /// What is recorded about a version; nothing while it is live.
    #[must_use]
    pub fn get(&self, id: VersionId) -> Option<&VersionRecord> {
        self.records.get(&id)
    }

    /// Where its bytes are, prefixes of prefixes followed to the end.
    #[must_use]
    pub fn locate(&self, id: VersionId) -> Location {
        let (mut id, mut prefix) = (id, None::<u64>);
        loop {
            let shorter = |len: u64| prefix.map_or(len, |prefix| prefix.min(len));
            match self.records.get(&id).map(|record| record.content) {
                None => {
                    return Location::Live {
                        of: id,
                        len: prefix,
                    };
                }
                Some(VersionContent::Sealed { len }) => {
                    return Location::Sealed {
                        file: id,
                        len: shorter(len),
                    };
                }
                Some(VersionContent::Lost { .. }) => return Location::Lost,
                // A prefix is of a later version; anything else is not effigy's and might lead round in circles.
                Some(VersionContent::Prefix { of, .. }) if of <= id => return Location::Lost,
                Some(VersionContent::Prefix { of, len }) => (id, prefix) = (of, Some(shorter(len))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_followed_and_never_round() {
        let mut table = VersionTable::default();
        let mut insert = |id, content| {
            table.insert(VersionRecord {
                id: VersionId(id),
                content,
                stat: None,
            });
        };
        insert(
            1,
            VersionContent::Prefix {
                of: VersionId(2),
                len: 10,
            },
        );
        insert(
            2,
            VersionContent::Prefix {
                of: VersionId(3),
                len: 20,
            },
        );
        insert(
            4,
            VersionContent::Prefix {
                of: VersionId(5),
                len: 9,
            },
        );
        insert(5, VersionContent::Sealed { len: 30 });
        insert(
            6,
            VersionContent::Prefix {
                of: VersionId(6),
                len: 1,
            },
        );
        insert(
            8,
            VersionContent::Prefix {
                of: VersionId(7),
                len: 1,
            },
        );
        insert(9, VersionContent::Lost { len: 1 });
        assert_eq!(
            table.locate(VersionId(1)),
            Location::Live {
                of: VersionId(3),
                len: Some(10)
            }
        );
        assert_eq!(
            table.locate(VersionId(3)),
            Location::Live {
                of: VersionId(3),
                len: None
            }
        );
        assert_eq!(
            table.locate(VersionId(4)),
            Location::Sealed {
                file: VersionId(5),
                len: 9
            }
        );
        for lost in [6, 8, 9] {
            assert_eq!(table.locate(VersionId(lost)), Location::Lost);
        }
    }
}
