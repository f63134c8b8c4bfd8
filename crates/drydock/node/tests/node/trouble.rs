//! To be written.

crate::tests![];
