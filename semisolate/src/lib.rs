//! effigy-semisolate
