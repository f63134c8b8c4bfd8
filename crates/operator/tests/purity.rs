//! An operator reaches no network, clock, file, thread or randomness: held by what its crate depends on, and by the
//! clippy.toml beside it.
#![expect(clippy::unwrap_used, reason = "in a test a failure is the answer")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this test asks cargo and reads manifests"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Crates that could bring the network, a clock or chance into a decision.
const IMPURE: [&str; 12] = [
    "async-std",
    "chrono",
    "getrandom",
    "hyper",
    "kube",
    "kube-client",
    "kube-runtime",
    "mio",
    "rand",
    "reqwest",
    "smol",
    "tokio",
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// This crate, and every crate beside it that derives a custom resource: the operators.
fn pure_crates() -> BTreeSet<String> {
    let manifest = |entry: &Path| fs::read_to_string(entry.join("Cargo.toml")).unwrap_or_default();
    let dirs = fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap().path());
    let mut pure: BTreeSet<String> = dirs
        .filter(|dir| manifest(dir).lines().any(|line| line.starts_with("kube-derive")))
        .map(|dir| dir.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    pure.insert("operator".to_owned());
    pure
}

#[test]
fn no_pure_crate_depends_on_the_network_or_on_chance() {
    let pure = pure_crates();
    assert!(pure.contains("memcached"), "{pure:?}");
    for name in pure {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
            .arg("--manifest-path")
            .arg(crates().join(&name).join("Cargo.toml"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).unwrap();
        let found: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(found.contains("kube-core"), "{name} depends on kube-core, or this test looks at nothing");
        let impure: Vec<&&str> = IMPURE.iter().filter(|crate_| found.contains(*crate_)).collect();
        assert!(impure.is_empty(), "{name} depends on {impure:?}");
    }
}

#[test]
fn every_pure_crate_has_the_same_lints() {
    let ours = fs::read_to_string(crates().join("operator/clippy.toml")).unwrap();
    for name in pure_crates() {
        let theirs = fs::read_to_string(crates().join(&name).join("clippy.toml")).unwrap_or_default();
        assert_eq!(theirs, ours, "crates/{name}/clippy.toml");
    }
}

/// One name of each way out of a function of a view: what the list above must not lose.
const DENIED: [&str; 17] = [
    "jiff::Timestamp::now",
    "std::collections::HashMap",
    "std::env::var",
    "std::env::vars_os",
    "std::fs::OpenOptions",
    "std::fs::metadata",
    "std::fs::remove_file",
    "std::hash::RandomState",
    "std::io::stdin",
    "std::net::ToSocketAddrs",
    "std::os::unix::net::UnixStream",
    "std::path::Path::exists",
    "std::process::Command",
    "std::thread::Builder",
    "std::thread::scope",
    "std::time::Instant",
    "std::time::SystemTime",
];

#[test]
fn every_way_out_is_denied_with_a_reason() {
    let lints = fs::read_to_string(crates().join("operator/clippy.toml")).unwrap();
    for name in DENIED {
        let entry = lints.lines().find(|line| line.contains(&format!("{{ path = \"{name}\", reason = \"")));
        assert!(entry.is_some(), "{name} is not denied");
    }
    for name in pure_crates() {
        let root = fs::read_to_string(crates().join(&name).join("src/lib.rs")).unwrap();
        assert!(
            root.contains("#![deny(clippy::disallowed_types, clippy::disallowed_methods)]"),
            "crates/{name} does not hold itself to its clippy.toml"
        );
    }
}
