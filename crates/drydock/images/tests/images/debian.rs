//! Real packages, made into trees and run. The index and the packages are kept between runs of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use drydock_images::recipe::Program;
use drydock_images::{Apt, Packages, PackagesError, Pull, Recipe, check_linkage, silently};
use jiff::Timestamp;

use crate::support::*;

fn debian() -> Arc<dyn Packages> {
    let state = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("debian");
    Arc::new(Apt::new(state, None, Arc::new(Timestamp::now)))
}

/// Runs a program with the tree as its root: as root directly, otherwise in a user namespace of its own.
fn run(tree: &Path, command: &[&str]) -> String {
    let root = rustix::process::geteuid().is_root();
    let mut program = if root { Command::new("chroot") } else { Command::new("unshare") };
    if !root {
        program.args(["-r", "chroot"]);
    }
    let output =
        program.arg(tree).args(command).env_clear().env("PATH", "/usr/sbin:/usr/bin").output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn memcached_of_two_suites_runs_side_by_side() {
    let machine = Machine::with_packages(debian());
    for (suite, version) in [("bookworm", "1.6.18"), ("trixie", "1.6.38")] {
        let resolved = machine.resolve(&format!("memcached:{version}-{suite}"), Pull::IfNotPresent).unwrap();
        assert_eq!(resolved.note, None);
        assert!(
            resolved.image_id.contains(&format!("memcached:{version}-{suite}@sha256:")),
            "{}",
            resolved.image_id
        );
        assert_eq!(run(&resolved.tree, &["memcached", "-V"]), format!("memcached {version}"));
        let entrypoint = ["/usr/local/bin/docker-entrypoint.sh", "-V"];
        assert_eq!(run(&resolved.tree, &entrypoint), format!("memcached {version}"));
        assert_eq!(
            run(&resolved.tree, &["sh", "-c", "id -u memcache; echo hello | tr a-z A-Z"]),
            "11211\nHELLO"
        );
        assert!(resolved.bytes < 40_000_000, "{}", resolved.bytes);
        assert!(
            machine.resolve(&format!("memcached:{version}-{suite}"), Pull::IfNotPresent).unwrap().present
        );
    }
    let listed = machine.store.list().unwrap();
    assert_eq!(listed.len(), 2);
    assert!(listed[0].record.packages.iter().any(|package| package.name == "libc6"));
    assert!(!listed[0].record.packages.iter().any(|package| package.name.starts_with("perl")));
}

#[test]
fn busybox_is_a_shell_with_its_tools() {
    let machine = Machine::with_packages(debian());
    let resolved = machine.resolve("busybox", Pull::IfNotPresent).unwrap();
    assert_eq!(resolved.config.command, ["sh"]);
    assert_eq!(run(&resolved.tree, &["/bin/sh", "-c", "ls /etc/passwd; whoami"]), "/etc/passwd\nroot");
}

#[test]
fn a_program_that_is_linked_gets_what_it_is_linked_to() {
    // This very test, which is linked to the C library.
    let program = Program {
        name: "docker.io/library/this".into(),
        version: "1".into(),
        executable: std::env::current_exe().unwrap(),
        path: "/usr/local/bin/this".into(),
        arguments: vec!["--list".into()],
        user: None,
        ports: vec![],
    };
    let machine = Machine::new(|options| {
        options.packages = Some(debian());
        options.recipes = vec![Recipe::of_program(program)];
    });
    let resolved = machine.resolve("this", Pull::IfNotPresent).unwrap();
    assert!(run(&resolved.tree, &["/usr/local/bin/this", "--list"]).contains("memcached_of_two_suites"));

    std::fs::remove_file(
        resolved.tree.join(format!("usr/lib/{}-linux-gnu/libc.so.6", std::env::consts::ARCH)),
    )
    .unwrap();
    let error = check_linkage(&resolved.tree, "/usr/local/bin/this").unwrap_err();
    assert!(error.to_string().ends_with("needs libc.so.6, which the image does not have"), "{error}");
}

#[test]
fn a_package_that_debian_does_not_have_is_told_in_apts_words() {
    let debian = debian();
    assert_eq!(debian.version("bookworm", "no-such-package", &silently).unwrap(), None);
    let error = debian.fetch("bookworm", &["no-such-package".to_owned()], &[], &silently).unwrap_err();
    assert_eq!(
        error.to_string(),
        "apt-get failed for Debian bookworm: Unable to locate package no-such-package"
    );
    let error = debian.version("no-such-suite", "memcached", &silently).unwrap_err();
    assert!(matches!(&error, PackagesError::Failed { suite, .. } if suite == "no-such-suite"), "{error}");
}
