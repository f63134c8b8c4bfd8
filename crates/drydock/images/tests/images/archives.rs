//! Archives that are as they should be, and archives that are damaged.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use drydock_images::{
    Config, Content, Contents, FileEntry, ImageId, Limits, Port, Pull, Reference, silently, write_oci_archive,
};
use serde_json::json;

use crate::support::*;

fn read(tree: &Path, path: &str) -> String {
    fs::read_to_string(tree.join(path)).unwrap_or_else(|error| error.kind().to_string())
}

#[test]
fn layers_are_applied_in_order_with_what_they_take_away() {
    let machine = Machine::new(|_| {});
    let first = Tar::new()
        .directory("etc/")
        .file("etc/kept", "1")
        .file("etc/changed", "1")
        .file("etc/removed", "1")
        .directory("data/")
        .file("data/old", "1")
        .directory("data/below/")
        .file("data/below/old", "1")
        .directory("usr/bin")
        .symlink("bin", "usr/bin")
        .hardlink("etc/other-name", "etc/kept")
        .entry(tar::EntryType::Regular, "usr/bin/tool", "", 0o4755, b"tool")
        .entry(tar::EntryType::Directory, "tmp", "", 0o1777, b"")
        .entry(tar::EntryType::Char, "dev/null", "", 0o666, b"")
        .done();
    let second = Tar::new()
        .file("./etc/changed", "2")
        .file("etc/.wh.removed", "")
        .file("data/below/new", "2")
        .file("data/.wh..wh..opq", "")
        .file("data/new", "2")
        .file("bin/added", "2")
        .file("/absolute", "2")
        .done();
    let layout = Layout::new(&[(gzip(&first), first), (zstd(&second), second)]);
    let imported = machine.import(&layout.archive()).unwrap();
    assert_eq!(imported[0].references, ["docker.io/library/archive:latest"]);
    let resolved = machine.resolve("archive", Pull::Never).unwrap();
    let tree = &resolved.tree;
    for (path, content) in [
        ("etc/kept", "1"),
        ("etc/other-name", "1"),
        ("etc/changed", "2"),
        ("etc/removed", "entity not found"),
        ("data/old", "entity not found"),
        ("data/below/old", "entity not found"),
        ("data/below/new", "2"),
        ("data/new", "2"),
        ("usr/bin/added", "2"),
        ("absolute", "2"),
        ("dev/null", "entity not found"),
    ] {
        assert_eq!(read(tree, path), content, "{path}");
    }
    let mode = |path: &str| fs::metadata(tree.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("usr/bin/tool"), mode("tmp"), mode("")), (0o755, 0o1777, 0o755));
    assert_eq!(
        (resolved.config.command, resolved.config.user),
        (vec!["/hello".to_owned()], "5:6".to_owned())
    );
    assert!(resolved.image_id.starts_with("docker.io/library/archive@sha256:"), "{}", resolved.image_id);
    assert_eq!(machine.resolve(&resolved.image_id, Pull::Never).unwrap().id, resolved.id);
    assert_eq!(fs::read_dir(machine.path("making")).unwrap().count(), 0);
}

#[test]
fn an_archive_may_be_compressed_or_a_directory() {
    let layer = Tar::new().file("hello", "x").done();
    let layout = Layout::of(layer);
    let machine = Machine::new(|_| {});
    let id = machine.import(&layout.archive()).unwrap()[0].id.clone();
    for packed in [gzip(&layout.archive()), zstd(&layout.archive())] {
        let again = Machine::new(|_| {});
        assert_eq!(again.import(&packed).unwrap()[0].id, id);
    }
    let directory = machine.directory.path().join("My.Layout");
    for (name, body) in &layout.files {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, body).unwrap();
    }
    let imported = machine.store.import(&directory, None, &silently).unwrap();
    assert_eq!(
        (&imported[0].id, &imported[0].references[..]),
        (&id, &["docker.io/library/my:latest".to_owned()][..])
    );
    assert_eq!(machine.store.list().unwrap().len(), 1, "the same image has one tree and two names");
}

#[test]
fn a_docker_archive_is_taken_with_its_names_and_its_links() {
    let layer = Tar::new().file("hello", "x").done();
    let config = serde_json::to_vec(&json!({
        "config": {"Entrypoint": ["/hello"]}, "rootfs": {"diff_ids": [sha256(&layer), sha256(&layer)]}
    }))
    .unwrap();
    let name = sha256(&config).replace("sha256:", "") + ".json";
    let rows = |config: &str| {
        json!([{"Config": config, "RepoTags": ["a/b:1", "a/b:latest"], "Layers": ["one/layer.tar", "two/layer.tar"]}])
            .to_string()
    };
    let archive = |config: &[u8], rows: &str| {
        Tar::new()
            .entry(tar::EntryType::Regular, "one/layer.tar", "", 0o644, &layer)
            .symlink("two/layer.tar", "../one/layer.tar")
            .entry(tar::EntryType::Regular, &name, "", 0o644, config)
            .file("manifest.json", rows)
            .done()
    };
    let machine = Machine::new(|_| {});
    let imported = machine.import(&archive(&config, &rows(&name))).unwrap();
    assert_eq!(imported[0].references, ["docker.io/a/b:1", "docker.io/a/b:latest"]);
    assert_eq!(imported[0].id.as_str(), sha256(&config));
    assert_eq!(machine.resolve("a/b", Pull::IfNotPresent).unwrap().config.entrypoint, ["/hello"]);

    let changed = String::from_utf8(config.clone()).unwrap().replace("/hello", "/other");
    let error = machine.import(&archive(changed.as_bytes(), &rows(&name))).unwrap_err();
    assert!(error.message().contains("damaged"), "{}", error.message());
}

#[test]
fn what_is_written_is_read_back_under_the_same_id() {
    let machine = Machine::new(|_| {});
    let files = [
        FileEntry { path: "/usr/bin/tool".into(), mode: 0o755, content: Content::Bytes(b"x".to_vec()) },
        FileEntry {
            path: format!("/{}", "long/".repeat(30)).into(),
            mode: 0o644,
            content: Content::Bytes(vec![]),
        },
    ];
    let config = Config {
        entrypoint: vec!["/usr/bin/tool".into()],
        user: "65532:65532".into(),
        ports: vec![Port::tcp(80)],
        ..Config::default()
    };
    let name = Reference::parse("example.com/tool:1.0").unwrap();
    let mut bytes = Vec::new();
    let written = write_oci_archive(&mut bytes, &Contents::Files(&files), &config, &name).unwrap();
    let imported = machine.import(&bytes).unwrap();
    assert_eq!(
        (imported[0].id.as_str(), &imported[0].references[..]),
        (&*written.id, &["example.com/tool:1.0".to_owned()][..])
    );
    let resolved = machine.resolve("example.com/tool:1.0", Pull::Never).unwrap();
    assert_eq!(resolved.config, config);
    assert_eq!(read(&resolved.tree, "usr/bin/tool"), "x");

    let mut again = Vec::new();
    write_oci_archive(&mut again, &Contents::Files(&files), &config, &name).unwrap();
    assert!(bytes == again, "the same image is the same bytes");
    let mut tree = Vec::new();
    let of_tree = write_oci_archive(&mut tree, &Contents::Tree(&resolved.tree), &config, &name).unwrap();
    assert_eq!(of_tree.id, written.id, "a tree is written as what it was unpacked from");
}

#[test]
fn a_damaged_archive_is_named_as_that_and_leaves_nothing() {
    let layer = Tar::new().file("hello", &"x".repeat(5000)).done();
    let good = Layout::new(&[(gzip(&layer), layer.clone())]);
    let layer_name = sha256(&gzip(&layer)).replace("sha256:", "blobs/sha256/");
    let changed = |name: &str, bytes: Option<Vec<u8>>| {
        let mut files = good.files.clone();
        files.remove(name);
        files.extend(bytes.map(|bytes| (name.to_owned(), bytes)));
        Layout { files }.archive()
    };
    let flipped = {
        let mut bytes = good.files[&layer_name].clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        bytes
    };
    let other = gzip(&Tar::new().file("hello", "y").done());
    let whole = good.archive();
    for (what, archive, said) in [
        ("empty", Vec::new(), "neither an index.json nor a manifest.json"),
        ("no archive", b"hello".to_vec(), "can't read"),
        ("noise", vec![0xa5; 4096], "can't read"),
        ("noise that ends lines", b"\n\x1b[2J".repeat(512), "can't read"),
        ("cut in a blob", whole[..700].to_vec(), "can't read"),
        ("no layer", changed(&layer_name, None), "is missing"),
        ("flipped", changed(&layer_name, Some(flipped)), "damaged"),
        ("another layer", changed(&layer_name, Some(other)), "should have the digest"),
        ("cut layer", changed(&layer_name, Some(gzip(&layer)[..40].to_vec())), "damaged"),
        ("no index", changed("index.json", None), "is no image archive"),
        ("bad index", changed("index.json", Some(b"{".to_vec())), "index.json can't be read"),
        (
            "huge index",
            changed("index.json", Some(vec![b' '; 5 << 20])),
            "index.json can't be read: it has 5242880 bytes",
        ),
        (
            "a digest that is a path",
            changed("index.json", Some(br#"{"manifests":[{"digest":"sha256:../../x","size":1}]}"#.to_vec())),
            "is no SHA-256 digest",
        ),
        (
            "other machines",
            Layout::with(&[], |_, entry| entry["platform"] = json!({"os": "plan9", "architecture": "mips"}))
                .archive(),
            "only for plan9/mips",
        ),
        (
            "layers that are not described",
            Layout::with(&[(layer.clone(), layer.clone())], |config, _| config["rootfs"] = json!({}))
                .archive(),
            "it describes 0 layers, and 1 are there",
        ),
    ] {
        let machine = Machine::new(|_| {});
        let error = machine.import(&archive).unwrap_err();
        assert!(error.message().contains(said), "{what}: {}", error.message());
        assert!(!error.message().contains(char::is_control), "{what}: {:?}", error.message());
        assert_eq!(error.reason(), "ErrImagePull");
        machine.assert_empty();
    }
}

#[test]
fn an_index_that_contains_itself_ends() {
    let machine = Machine::new(|_| {});
    let index = br#"{"manifests":[]}"#;
    let manifests: Vec<_> = (0..300)
        .map(|_| {
            json!({"mediaType": "application/vnd.oci.image.index.v1+json", "digest": sha256(index), "size": 16})
        })
        .collect();
    let mut layout = Layout::new(&[]);
    layout.files.insert(sha256(index).replace("sha256:", "blobs/sha256/"), index.to_vec());
    layout.files.insert("index.json".into(), json!({ "manifests": manifests }).to_string().into_bytes());
    assert!(machine.import(&layout.archive()).unwrap_err().message().contains("too many manifests"));
}

#[test]
fn an_image_in_use_is_not_removed() {
    let machine = Machine::new(|_| {});
    let id =
        machine.import(&Layout::of(Tar::new().file("hello", "x").done()).archive()).unwrap()[0].id.clone();
    let in_use = BTreeSet::from([id.clone()]);
    assert_eq!(
        machine.store.remove("archive", &in_use).unwrap_err().to_string(),
        format!("the image {id} is in use")
    );
    let nobody = BTreeSet::new();
    let error = machine.store.remove("other:1", &nobody).unwrap_err();
    assert_eq!(error.to_string(), "there is no image \"other:1\"");
    let removed = machine.store.remove(&id.digits()[..12], &nobody).unwrap();
    assert_eq!(removed, ["docker.io/library/archive:latest"]);
    machine.assert_empty();
    assert!(machine.resolve("archive", Pull::Never).is_err());
    assert!(ImageId::parse("sha256:x").is_none());
}

#[test]
fn an_image_that_is_too_large_is_stopped() {
    let zeros = "\0".repeat(3 << 20);
    let bomb = Tar::new().file("zeros", &zeros).done();
    let many = (0..2000).fold(Tar::new(), |tar, n| tar.directory(&format!("d{n}"))).done();
    let behind = [Tar::new().file("a", "").done(), zeros.into_bytes()].concat();
    for (layer, said) in [
        (bomb, "the image holds more than 1048576 bytes"),
        (many, "the image holds more than 1000 files"),
        (behind, "the image holds more than 1048576 bytes"),
    ] {
        let machine = Machine::new(|options| options.limits = Limits { bytes: 1 << 20, entries: 1000 });
        for packed in [gzip(&layer), zstd(&layer)] {
            let error = machine.import(&Layout::new(&[(packed, layer.clone())]).archive()).unwrap_err();
            assert!(error.message().contains(said), "{}", error.message());
            machine.assert_empty();
        }
    }
}

#[test]
fn owners_are_kept_where_that_may_be_and_nobody_gains_rights() {
    let machine = Machine::new(|_| {});
    let layer =
        Tar::new().owned("theirs", 5, 6, 0o6640).owned("locked", u64::from(u32::MAX), 7, 0o000).done();
    machine.import(&Layout::of(layer).archive()).unwrap();
    let tree = machine.resolve("archive", Pull::Never).unwrap().tree;
    let me = rustix::process::geteuid().as_raw();
    for (path, owner, mode) in [("theirs", 5, 0o640), ("locked", me, 0o400)] {
        let found = fs::metadata(tree.join(path)).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, mode, "{path}");
        assert_eq!(found.uid(), if me == 0 { owner } else { me }, "{path}");
    }
}
