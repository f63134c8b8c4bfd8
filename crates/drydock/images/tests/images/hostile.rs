//! Archives that mean harm: whatever they hold, nothing outside of the image's tree is touched.

use std::fs;
use std::path::PathBuf;

use drydock_images::Pull;
use proptest::prelude::*;

use crate::support::*;

/// Imports a layer beside a file and a directory that it must not reach, and returns what was said.
fn check(layer: Vec<u8>) -> Result<PathBuf, String> {
    let machine = Machine::new(|_| {});
    let outside = machine.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let answer = machine.import(&Layout::of(layer).archive());
    let listing: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(listing, ["secret"]);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    let mut beside: Vec<_> =
        fs::read_dir(machine.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    beside.sort();
    assert_eq!(beside, ["archive.tar", "outside", "store"]);
    match answer {
        Err(error) => {
            machine.assert_empty();
            Err(error.message())
        }
        Ok(_) => {
            let tree = machine.resolve("archive", Pull::Never).unwrap().tree;
            let mut kept: Vec<_> =
                fs::read_dir(tree.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
            kept.sort();
            assert_eq!(kept, ["image.json", "tree"]);
            Ok(tree)
        }
    }
}

#[test]
fn what_leads_out_of_the_image_is_refused() {
    let up = "../../../../outside/secret";
    for (what, layer, said) in [
        ("dots", Tar::new().file(up, "x"), "it leads out of the image"),
        ("dots inside", Tar::new().file("a/../../../../b", "x"), "it leads out of the image"),
        ("dots in a directory", Tar::new().directory("../x"), "it leads out of the image"),
        ("a hard link out", Tar::new().hardlink("x", up), "its link leads out of the image"),
        ("a hard link to nothing here", Tar::new().hardlink("x", "/etc/passwd"), "can't be unpacked"),
        ("a hard link to a directory", Tar::new().directory("d").hardlink("x", "d"), "no file"),
        ("a hard link to the root", Tar::new().hardlink("x", "/"), "link to the root"),
        ("a whiteout of itself", Tar::new().file("a/b", "").file("a/.wh..", ""), "from within"),
        ("a whiteout of the parent", Tar::new().file("a/b", "").file("a/.wh...", ""), "from within"),
        ("a file as a directory", Tar::new().file("a", "").file("a/b", ""), "can't be unpacked"),
        (
            "links in a circle",
            Tar::new().symlink("a", "b").symlink("b", "a").file("a/x", ""),
            "can't be unpacked",
        ),
        ("an unknown type", Tar::new().entry(tar::EntryType::new(b'?'), "x", "", 0, b""), "unknown type"),
        ("a sparse file", Tar::new().entry(tar::EntryType::GNUSparse, "x", "", 0, b""), "sparse"),
        (
            "a long name without end",
            Tar::new().entry(tar::EntryType::GNULongName, "x", "", 0, &vec![b'a'; 100_000]).file("x", ""),
            "too long",
        ),
        (
            "two sizes",
            Tar::new().entry(tar::EntryType::XHeader, "x", "", 0, b"11 size=99\n").file("x", "abc"),
            "two sizes",
        ),
        (
            "a record that lies",
            Tar::new().entry(tar::EntryType::XHeader, "x", "", 0, b"99 a=b\n"),
            "can't be read",
        ),
    ] {
        let error = check(layer.done()).unwrap_err();
        assert!(error.contains(said), "{what}: {error}");
    }
    let deep = (0..3).fold("d".to_owned(), |path, _| format!("{path}/{path}"));
    let layer = (0..20).fold(Tar::new(), |tar, n| {
        let link = format!("l{n}");
        let below = if n == 0 { deep.clone() } else { format!("l{}/{deep}", n - 1) };
        tar.directory(&below).symlink(&link, &below)
    });
    assert!(check(layer.done()).unwrap_err().contains("deep"));
}

#[test]
fn links_that_point_outside_mean_places_inside() {
    let tree = |layer: Tar| check(layer.done()).unwrap();
    let absolute = Tar::new().symlink("a", "/outside").file("a/x", "1");
    let above = Tar::new().symlink("a", "../../../../../outside").file("a/x", "1");
    let chained = Tar::new().symlink("a", "/").symlink("b", "a/../..").file("b/outside/x", "1");
    let replaced = Tar::new().symlink("f", "/outside/secret").file("f", "mine");
    let directory = Tar::new().symlink("d", "/outside").directory("d").file("d/x", "1");
    let removed = Tar::new().symlink("d", "/outside").file("d/.wh.secret", "").file("d/.wh..wh..opq", "");
    let linked = Tar::new().symlink("s", "/outside/secret").hardlink("h", "s").file("h", "mine");
    for layer in [absolute, above, chained, replaced, directory, removed, linked] {
        tree(layer);
    }
    let twice = Tar::new().symlink("x", "../image.json").file("x", "mine").file("../image.json", "");
    assert!(check(twice.done()).is_err());
}

#[test]
fn an_image_does_not_lend_the_hosts_files_to_who_looks_into_it() {
    let machine = Machine::new(|_| {});
    let layer = Tar::new().symlink("etc", "/").symlink("passwd", "/../../../../etc/shadow").done();
    machine.import(&Layout::of(layer).archive()).unwrap();
    let tree = machine.resolve("archive", Pull::Never).unwrap().tree;
    let error = drydock_images::users::lookup(&tree, "root").unwrap_err();
    assert!(error.to_string().contains("can't read") || error.to_string().contains("no matching"), "{error}");
}

#[derive(Clone, Debug)]
enum Piece {
    File(String),
    Directory(String),
    Symlink(String, String),
    Hardlink(String, String),
}

fn path() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "a",
        "b",
        "c",
        "..",
        ".",
        "",
        "outside",
        "secret",
        ".wh.a",
        ".wh..wh..opq",
    ]);
    prop::collection::vec(word, 1..5).prop_map(|words| words.join("/"))
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        path().prop_map(Piece::File),
        path().prop_map(Piece::Directory),
        (path(), path()).prop_map(|(name, target)| Piece::Symlink(name, target)),
        (path(), path()).prop_map(|(name, target)| Piece::Symlink(name, format!("/{target}"))),
        (path(), path()).prop_map(|(name, target)| Piece::Symlink(name, format!("../../../../{target}"))),
        (path(), path()).prop_map(|(name, target)| Piece::Hardlink(name, target)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_mixture_of_entries_reaches_out(pieces in prop::collection::vec(piece(), 1..12)) {
        let layer = pieces.iter().fold(Tar::new(), |tar, piece| match piece {
            Piece::File(name) => tar.file(name, "x"),
            Piece::Directory(name) => tar.directory(name),
            Piece::Symlink(name, target) => tar.symlink(name, target),
            Piece::Hardlink(name, target) => tar.hardlink(name, target),
        });
        let _ = check(layer.done());
    }

    #[test]
    fn no_noise_in_a_layer_reaches_out(noise in prop::collection::vec(any::<u8>(), 0..2048), at in 0usize..1500) {
        let mut layer = Tar::new().file("a", "x").symlink("b", "/outside").hardlink("c", "a").done();
        for (place, byte) in layer.iter_mut().skip(at).zip(noise) {
            *place = byte;
        }
        let _ = check(layer);
    }

    #[test]
    fn no_noise_in_an_archive_makes_it_panic(noise in prop::collection::vec(any::<u8>(), 0..64), at in 0usize..9000) {
        let machine = Machine::new(|_| {});
        let mut archive = Layout::of(Tar::new().file("a", "x").done()).archive();
        for (place, byte) in archive.iter_mut().skip(at).zip(noise) {
            *place = byte;
        }
        if machine.import(&archive).is_err() {
            machine.assert_empty();
        }
    }
}
