//! effigy-replay
