//! Ballast.
fn main() {}
