//! Backups that were damaged in every way that somebody thought of.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use jiff::Timestamp;
use proptest::prelude::*;
use tempfile::TempDir;

use super::super::file::{Partial, Written, name_at};
use super::super::manifest::{Definers, Taken, Wording};
use super::*;
use crate::flavour::Flavour;
use crate::version::Version;

const NOW: &str = "2026-01-31T23:59:59Z";
const NAME: &str = "backup-20260131-235959.sql.zst";

fn dump(rows: u32) -> String {
    let mut dump = String::from("USE `shop`;\nCREATE TABLE `t` (\n);\nINSERT INTO `t` VALUES (0,'')");
    for row in 1..rows {
        dump.push_str(&format!(",({row},'it\\'s {}')", u64::from(row).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    }
    dump + ";\n-- Dump completed on 2026-01-31 23:59:59\n"
}

fn taken(written: &Written) -> Taken {
    Taken {
        file: NAME.to_owned(),
        bytes: written.bytes.length,
        sha256: written.bytes.sha256.clone(),
        began: NOW.parse().unwrap(),
        milliseconds: 500,
        flavour: Flavour::Mariadb,
        version: Version::parse("11.8.6").unwrap(),
        wording: Wording::AsKept,
        history: false,
        definers: Definers::default(),
    }
}

fn write(directory: &Path, dump: &str) -> Result<PathBuf, BackupError> {
    let name = name_at(NOW.parse::<Timestamp>().unwrap());
    let partial = Partial::begin(directory, &name)?;
    let broken = |error| BackupError::Stream { program: "mariadb-dump", error };
    let written = partial.write(dump.as_bytes(), broken, &Stop::default())?;
    let manifest = Manifest::new(taken(&written), written.contents);
    partial.keep(&manifest)
}

/// A backup of some frames.
fn backup() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), &dump(200_000)).unwrap();
    (directory, file)
}

fn check(file: &Path) -> Result<Manifest, BackupError> {
    whole(file, &Known::default(), &Stop::default())
}

fn damage(file: &Path) -> String {
    let error = check(file).unwrap_err();
    assert_eq!(
        error.reason(),
        if matches!(error, BackupError::Dump(_)) { "DumpIncomplete" } else { "BackupDamaged" }
    );
    error.to_string()
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_backup_is_called_by_its_time_and_is_nobody_elses_to_read() {
    let (directory, file) = backup();
    assert_eq!(names(directory.path()), [NAME.to_owned(), format!("{NAME}.json")]);
    for name in names(directory.path()) {
        let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
    let manifest = check(&file).unwrap();
    assert_eq!((manifest.rows(), manifest.databases.as_slice()), (200_000, &["shop".to_owned()][..]));
    assert_eq!(manifest.content_bytes, dump(200_000).len() as u64);
    assert!(manifest.content_bytes > 3 * PIECE as u64, "several frames");
    let known =
        Known { sha256: Some(manifest.sha256.to_uppercase()), manifest_sha256: Some(manifest.own_sha256()) };
    assert_eq!(whole(&file, &known, &Stop::default()).unwrap(), manifest);
}

#[test]
fn what_zstd_makes_of_a_backup_is_the_dump() {
    let (_directory, file) = backup();
    let read = zstd::stream::decode_all(File::open(file).unwrap()).unwrap();
    assert!(read == dump(200_000).as_bytes());
}

#[test]
fn a_truncated_backup_is_damaged() {
    let (_directory, file) = backup();
    let length = fs::metadata(&file).unwrap().len();
    for end in [length - 1, length / 2, 1] {
        OpenOptions::new().write(true).open(&file).unwrap().set_len(end).unwrap();
        assert!(damage(&file).ends_with(&format!("it has {end} bytes instead of {length}")));
    }
}

#[test]
fn an_empty_backup_is_damaged() {
    let (_directory, file) = backup();
    fs::write(&file, "").unwrap();
    assert!(damage(&file).contains("it has 0 bytes instead of "));
    fs::remove_file(&file).unwrap();
    assert_eq!(check(&file).unwrap_err().reason(), "VolumeUnusable");
}

#[test]
fn a_manifest_of_something_else_is_not_believed() {
    let (directory, file) = backup();
    let path = manifest_of(&file);
    let line = fs::read_to_string(&path).unwrap();
    let manifest = check(&file).unwrap();
    for (from, to, expected) in [
        (
            manifest.tables[0].digest.to_string(),
            "0".repeat(32),
            "the rows of the table \"t\" of \"shop\" are others",
        ),
        ("\"rows\":200000".into(), "\"rows\":200001".into(), "has 200000 rows instead of 200001"),
        (manifest.definitions.to_string(), "1".repeat(32), "the definitions of tables, views"),
        (manifest.events.to_string(), "1".repeat(32), "the events are others"),
        (manifest.sha256.clone(), "ab".repeat(32), &format!("its SHA-256 is {} instead of", manifest.sha256)),
        ("\"name\":\"t\"".into(), "\"name\":\"u\"".into(), "the table \"u\" of \"shop\" is missing"),
        ("\"format\":1".into(), "\"format\":2".into(), "can't be believed"),
        ("}".into(), String::new(), "can't be believed"),
    ] {
        assert!(line.contains(&from), "{from}");
        fs::write(&path, line.replacen(&from, &to, 1)).unwrap();
        let said = damage(&file);
        assert!(said.contains(expected), "{said}");
    }
    fs::write(&path, &line).unwrap();
    for known in [
        Known { sha256: Some("ab".repeat(32)), manifest_sha256: None },
        Known { sha256: None, manifest_sha256: Some("ab".repeat(32)) },
    ] {
        let error = whole(&file, &known, &Stop::default()).unwrap_err();
        assert_eq!(error.reason(), "BackupDamaged", "{error}");
    }
    // Another backup's file under this one's manifest.
    let other = tempfile::tempdir().unwrap();
    let other = write(other.path(), &dump(200_001)).unwrap();
    fs::copy(other, &file).unwrap();
    damage(&file);
    drop(directory);
}

#[test]
fn a_backup_whose_manifest_is_known_is_used_when_it_is_the_same_to_the_byte() {
    let (directory, file) = backup();
    let manifest = check(&file).unwrap();
    let known = Known { sha256: None, manifest_sha256: Some(manifest.own_sha256()) };
    let used = || usable(&file, &known, &Stop::default());
    assert_eq!(used().unwrap(), manifest);
    let bytes = fs::read(&file).unwrap();
    let longer = [&bytes[..], &[0]].concat();
    let mut other = bytes.clone();
    other[bytes.len() / 2] ^= 1;
    for (bytes, expected) in
        [(&bytes[1..], "bytes instead of"), (&longer, "bytes instead of"), (&other, "its SHA-256 is")]
    {
        fs::write(&file, bytes).unwrap();
        let error = used().unwrap_err();
        assert!(error.reason() == "BackupDamaged" && error.to_string().contains(expected), "{error}");
    }
    // Whoever writes a file can write its manifest.
    fs::write(&file, bytes).unwrap();
    let line = fs::read_to_string(manifest_of(&file)).unwrap();
    fs::write(manifest_of(&file), line.replacen("\"rows\":200000", "\"rows\":1", 1)).unwrap();
    assert_eq!(used().unwrap_err().reason(), "BackupDamaged");
    drop(directory);
}

#[test]
fn a_dump_that_stops_before_its_end_never_becomes_a_backup() {
    let directory = tempfile::tempdir().unwrap();
    let whole = dump(1000);
    for end in [0, 1, whole.len() / 2, whole.len() - 45] {
        let error = write(directory.path(), &whole[..end]).unwrap_err();
        assert_eq!(error.reason(), "DumpIncomplete", "{error}");
        assert!(names(directory.path()).is_empty());
    }
    let error = write(directory.path(), &format!("{whole}mariadb-dump: Got error: 2013\n")).unwrap_err();
    assert_eq!(error.reason(), "DumpIncomplete");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn what_others_left_unfinished_is_swept_and_what_they_are_at_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let earlier = "backup-20250101-000000.sql.zst";
    for left in
        [&format!("{earlier}.partial"), &format!("{earlier}.json"), &format!("{earlier}.json.partial")]
    {
        fs::write(at(left), "half").unwrap();
    }
    for kept in ["mine.partial", "backup-20240101-000000.sql.zst", "backup-20240101-000000.sql.zst.json"] {
        fs::write(at(kept), "whole").unwrap();
    }
    let at_work = Partial::begin(directory.path(), "backup-20260101-000000.sql.zst").unwrap();
    fs::write(at("backup-20260101-000000.sql.zst.json"), "whole").unwrap();
    write(directory.path(), &dump(10)).unwrap();
    assert_eq!(
        names(directory.path()),
        [
            "backup-20240101-000000.sql.zst",
            "backup-20240101-000000.sql.zst.json",
            "backup-20260101-000000.sql.zst.json",
            "backup-20260101-000000.sql.zst.partial",
            NAME,
            &format!("{NAME}.json"),
            "mine.partial"
        ]
    );
    drop(at_work);
    assert_eq!(names(directory.path()).len(), 5, "what was not kept is gone");
}

#[test]
fn a_backup_is_never_written_over() {
    let (directory, _file) = backup();
    let error = write(directory.path(), &dump(1)).unwrap_err();
    assert!(
        matches!(&error, BackupError::Disk { error, .. } if error.kind() == io::ErrorKind::AlreadyExists)
    );
    assert_eq!(names(directory.path()).len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is(at in any::<prop::sample::Index>(), bit in 0..8) {
        let directory = tempfile::tempdir().unwrap();
        let file = write(directory.path(), &dump(500)).unwrap();
        let mut bytes = fs::read(&file).unwrap();
        bytes[at.index(fs::metadata(&file).unwrap().len() as usize)] ^= 1u8 << bit;
        fs::write(&file, bytes).unwrap();
        damage(&file);
    }

    #[test]
    fn a_flipped_bit_in_a_manifest_is_found_where_its_checksum_is_known(at in any::<prop::sample::Index>(), bit in 0..8) {
        let directory = tempfile::tempdir().unwrap();
        let file = write(directory.path(), &dump(2)).unwrap();
        let known = Known { sha256: None, manifest_sha256: Some(check(&file).unwrap().own_sha256()) };
        let path = manifest_of(&file);
        let mut bytes = fs::read(&path).unwrap();
        let length = bytes.len();
        bytes[at.index(length)] ^= 1u8 << bit;
        fs::write(&path, bytes).unwrap();
        let found = whole(&file, &known, &Stop::default()).unwrap_err();
        prop_assert_eq!(found.reason(), "BackupDamaged");
    }
}
