//! effigy-journal
