//! Notes which compiler made the binary, for `ballast version`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said =
        Command::new(compiler).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    // `rustc 1.95.0 (abc 2026-01-01)`: the number is what people ask for.
    let version = said.split_whitespace().nth(1).unwrap_or("unknown");
    println!("cargo::rustc-env=BALLAST_RUST_VERSION={version}");
}
