//! From a name to an image, with a Debian that is made up.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Barrier};

use drydock_images::recipe::{Program, RecipeFile, Source, User, Versioned};
use drydock_images::{Error, Options, Port, Progress, Pull, Recipe, Reference, Store, silently};

use crate::support::*;

const MEMCACHED: &[(&str, &str, &str)] = &[
    ("trixie", "memcached", "1.6.38-1"),
    ("bookworm", "memcached", "1.6.18-1"),
    ("sid", "memcached", "1.6.45-1"),
];

/// A recipe that needs nothing but the package named like it.
fn recipe(name: &str) -> Recipe {
    let program = Program {
        name: format!("docker.io/library/{name}"),
        version: String::new(),
        executable: "/nowhere".into(),
        path: "/usr/bin/run".into(),
        arguments: vec![],
        user: Some(User { name: "someone".into(), uid: 7, gid: 8 }),
        ports: vec![Port::tcp(1)],
    };
    Recipe {
        version: Versioned::ByPackage(name.to_owned()),
        packages: vec![name.to_owned()],
        files: vec![RecipeFile {
            path: "/usr/bin/run".into(),
            mode: 0o755,
            source: Source::Text(format!("#!/lib/tool/{name}\n")),
        }],
        ..Recipe::of_program(program)
    }
}

fn machine(packages: &Arc<Pretended>, strict: bool) -> Machine {
    Machine::new(|options| {
        options.packages = Some(Arc::clone(packages) as _);
        options.recipes = vec![recipe("memcached")];
        options.strict = strict;
    })
}

#[test]
fn a_tag_is_satisfied_or_what_is_taken_is_said() {
    for (image, version, note) in [
        ("memcached", "1.6.38-trixie", None),
        ("docker.io/library/memcached:1.6.18", "1.6.18-bookworm", None),
        ("memcached:bookworm", "1.6.18-bookworm", None),
        ("memcached:1.6.45", "1.6.45-sid", None),
        (
            "memcached:1.6.9-alpine",
            "1.6.18-bookworm",
            Some(
                "Image \"docker.io/library/memcached:1.6.9-alpine\" can't be had: no version 1.6.9 and variant \
                 \"alpine\"; the nearest is Debian bookworm's 1.6.18",
            ),
        ),
    ] {
        let packages = Pretended::new(MEMCACHED);
        let resolved = machine(&packages, false).resolve(image, Pull::IfNotPresent).unwrap();
        let expected = format!("docker.io/library/memcached:{version}@{}", resolved.id);
        assert_eq!((resolved.image_id, resolved.note.as_deref()), (expected, note), "{image}");
        let strict = machine(&packages, true).resolve(image, Pull::IfNotPresent);
        assert_eq!(strict.map_err(|error| error.message()).is_err(), note.is_some(), "{image}");
    }
}

#[test]
fn a_package_that_is_called_by_its_major_version_is_found_in_each_suite() {
    let packages = Pretended::new(&[
        ("trixie", "server", "17+278"),
        ("trixie", "server-17", "17.12-0+deb13u1"),
        ("bookworm", "server", "15+248+deb12u2"),
        ("bookworm", "server-15", "15.20-0+deb12u1"),
        ("sid", "other", "1"),
    ]);
    let mut recipe = recipe("server");
    recipe.version = Versioned::ByMajor { told_by: "server".into(), prefix: "server-".into() };
    recipe.packages.clear();
    recipe.files[0].source = Source::Link("/usr/local/bin/server-15".into());
    recipe.programs = vec!["/usr/*/tool".into()];
    recipe.unwanted = vec!["/usr/share/*/x".into()];
    recipe.directories = vec!["/var/lib/server/data".into(), "/run/server".into()];
    let machine = Machine::new(|options| {
        options.packages = Some(Arc::clone(&packages) as _);
        options.recipes = vec![recipe];
    });
    let resolved = machine.resolve("server:15.20", Pull::IfNotPresent).unwrap();
    assert_eq!((resolved.image_id.contains(":15.20-bookworm@"), resolved.note), (true, None));
    let tree = &resolved.tree;
    assert_eq!(
        fs::read_link(tree.join("usr/local/bin/server-15")).unwrap(),
        Path::new("/usr/lib/tool/server-15")
    );
    assert!(!tree.join("usr/share/doc/x").exists(), "what is unwanted is left out");
    for directory in ["var/lib/server/data", "run/server"] {
        let mode = fs::metadata(tree.join(directory)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o1777, "{directory}");
    }
    let newer = machine.resolve("server:16", Pull::IfNotPresent).unwrap_err();
    assert!(newer.message().contains("the image has no /usr/bin/run"), "{}", newer.message());
}

#[test]
fn only_as_many_suites_are_looked_at_as_it_takes() {
    let packages = Pretended::new(MEMCACHED);
    let machine = machine(&packages, false);
    for (image, asked) in [
        ("memcached:1.6", &["fetch trixie", "look trixie"][..]),
        ("memcached:1.6.18-bookworm", &["fetch bookworm", "look bookworm"]),
        ("memcached:1.6.18-bookworm", &[]),
        ("memcached:1.6.18", &["look bookworm", "look sid", "look trixie"]),
    ] {
        machine.resolve(image, Pull::IfNotPresent).unwrap();
        let mut looked = packages.asked();
        looked.sort();
        assert_eq!(looked, asked, "{image}");
    }
    assert_eq!(machine.store.list().unwrap().len(), 2, "two versions side by side");
}

#[test]
fn the_tree_is_one_that_its_entrypoint_runs_in() {
    let packages = Pretended::new(MEMCACHED);
    let resolved = machine(&packages, false).resolve("memcached", Pull::IfNotPresent);
    let machine = machine(&packages, false);
    assert!(resolved.is_ok());
    let resolved = machine.resolve("memcached", Pull::IfNotPresent).unwrap();
    let read = |path: &str| fs::read_to_string(resolved.tree.join(path)).ok();
    assert_eq!(
        read("usr/lib/tool/memcached").as_deref(),
        Some("1.6.38-1"),
        "what a package has in /lib is in /usr/lib"
    );
    assert_eq!(fs::read_link(resolved.tree.join("lib")).unwrap(), Path::new("usr/lib"));
    assert_eq!(read("usr/share/doc/x/copyright").as_deref(), Some("free"));
    assert_eq!(read("usr/share/doc/x/README"), None);
    let identity = drydock_images::users::lookup(&resolved.tree, &resolved.config.user).unwrap();
    assert_eq!((identity.uid, identity.gid), (7, 8));
    let listed = machine.store.list().unwrap();
    assert_eq!(listed[0].references, ["docker.io/library/memcached:latest"]);
    assert_eq!(listed[0].record.packages[0].to_string(), "memcached 1.6.38-1");
    assert!(listed[0].record.bytes > 0);
}

#[test]
fn an_image_made_twice_is_the_same() {
    let packages = Pretended::new(MEMCACHED);
    let one = machine(&packages, false).resolve("memcached", Pull::IfNotPresent).unwrap().id;
    let other = machine(&packages, false).resolve("memcached", Pull::IfNotPresent).unwrap().id;
    assert_eq!(one, other);
}

#[test]
fn what_is_not_there_is_told_with_what_there_is() {
    let packages = Pretended::new(MEMCACHED);
    let machine = machine(&packages, false);
    machine.import(&Layout::of(Tar::new().file("x", "").done()).archive()).unwrap();
    for (image, pull, reason, message) in [
        (
            "nosuch:1",
            Pull::Always,
            "ErrImagePull",
            "failed to pull and unpack image \"docker.io/library/nosuch:1\": failed to resolve reference \
             \"docker.io/library/nosuch:1\": not found; there are: memcached, archive:latest",
        ),
        (
            "memcached",
            Pull::Never,
            "ErrImageNeverPull",
            "Container image \"memcached\" is not present with pull policy of Never",
        ),
        (
            "Memcached",
            Pull::Never,
            "InvalidImageName",
            "Failed to apply default image tag \"Memcached\": couldn't parse image name \"Memcached\": invalid \
             reference format: repository name (library/Memcached) must be lowercase",
        ),
    ] {
        let error = machine.resolve(image, pull).unwrap_err();
        assert_eq!((error.reason(), error.message().as_str()), (reason, message));
    }
}

#[test]
fn always_looks_again_after_some_hours_and_takes_what_it_has_when_it_cannot() {
    let packages = Pretended::new(MEMCACHED);
    let machine = machine(&packages, false);
    let resolve = |pull| machine.resolve("memcached", pull).unwrap().image_id;
    let first = resolve(Pull::Always);
    packages.versions.lock().unwrap().insert(("trixie".into(), "memcached".into()), "1.6.39-1".into());
    assert_eq!(resolve(Pull::Always), first, "the choice is fresh");
    machine.hours_pass(13);
    assert_eq!(resolve(Pull::IfNotPresent), first);
    let second = resolve(Pull::Always);
    assert!(second.contains(":1.6.39-trixie@"), "{second}");
    machine.hours_pass(13);
    for suite in ["trixie", "bookworm", "sid"] {
        packages.versions.lock().unwrap().insert((suite.into(), "memcached".into()), "unreachable".into());
    }
    assert_eq!(resolve(Pull::Always), second, "no network is no reason to stop a pod that ran before");
    let error = machine.resolve("memcached:1.6.1", Pull::Always).unwrap_err();
    assert_eq!(
        error.message(),
        "failed to pull and unpack image \"docker.io/library/memcached:1.6.1\": a package can't be had: apt's \
         configuration on this machine names no Debian mirror"
    );
}

#[test]
fn a_package_that_cannot_be_had_or_run_leaves_nothing() {
    let packages = Pretended::new(MEMCACHED);
    let mut broken = recipe("memcached");
    broken.packages.push("gone".to_owned());
    let mut wrong = recipe("memcached");
    wrong.entrypoint = vec!["/usr/bin/nothing".to_owned()];
    let mut other = recipe("memcached");
    other.files[0].source = Source::Text("#!/lib/tool/other\n".to_owned());
    for (recipe, said) in [
        (broken, "a package can't be had"),
        (wrong, "the image has no /usr/bin/nothing"),
        (other, "the image has no /lib/tool/other"),
    ] {
        let machine = Machine::new(|options| {
            options.packages = Some(Arc::clone(&packages) as _);
            options.recipes = vec![recipe];
        });
        let error = machine.resolve("memcached", Pull::IfNotPresent).unwrap_err();
        assert!(error.message().contains(said), "{}", error.message());
        assert_eq!(error.reason(), "ErrImagePull");
        machine.assert_empty();
    }
}

#[test]
fn two_who_want_the_same_image_make_it_once() {
    let packages = Pretended::new(MEMCACHED);
    let machine = machine(&packages, false);
    let start = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                machine.resolve("memcached", Pull::IfNotPresent).unwrap()
            });
        }
    });
    assert_eq!(packages.asked(), ["look trixie", "fetch trixie"]);
}

#[test]
fn what_a_dead_maker_left_is_swept_and_what_a_living_one_makes_is_not() {
    let packages = Pretended::new(MEMCACHED);
    let machine = machine(&packages, false);
    let dead = machine.path("making/image-dead");
    fs::create_dir_all(dead.join("tree/usr")).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    let alive = machine.path("making/image-alive");
    fs::create_dir_all(&alive).unwrap();
    let lock = fs::File::create(alive.join("lock")).unwrap();
    lock.lock().unwrap();
    let again = Store::open(&machine.path(""), Options::default()).unwrap();
    assert!(!dead.exists());
    assert!(alive.exists());
    assert!(again.list().unwrap().is_empty());
}

#[test]
fn progress_tells_what_is_done() {
    let packages = Pretended::new(MEMCACHED);
    let machine = machine(&packages, false);
    let told = std::sync::Mutex::new(Vec::new());
    let report = |progress: &Progress| told.lock().unwrap().push(progress.to_string());
    machine.store.resolve(&Reference::parse("memcached").unwrap(), Pull::Always, &report).unwrap();
    assert_eq!(
        told.into_inner().unwrap(),
        ["downloading package 1 of 1", "unpacking memcached 1.6.38-1 (1 of 1)", "checking that it can run"]
    );
}

#[test]
fn a_program_of_this_machine_becomes_an_image_and_a_new_one_when_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let executable = directory.path().join("web");
    fs::write(&executable, "one").unwrap();
    let program = Program {
        name: "docker.io/prgcont/gordon".into(),
        version: "1.0".into(),
        executable: executable.clone(),
        path: "/usr/local/bin/web".into(),
        arguments: vec!["gordon".into()],
        user: None,
        ports: vec![Port::tcp(8080)],
    };
    let packages = Pretended::new(&[]);
    let machine = Machine::new(|options| {
        options.packages = Some(Arc::clone(&packages) as _);
        options.recipes = vec![Recipe::of_program(program)];
    });
    let one = machine.resolve("prgcont/gordon:v1.0", Pull::IfNotPresent).unwrap();
    assert_eq!(
        (one.image_id.as_str(), one.note),
        (&*format!("docker.io/prgcont/gordon:1.0@{}", one.id), None)
    );
    assert_eq!(one.config.entrypoint, ["/usr/local/bin/web", "gordon"]);
    fs::write(&executable, "other").unwrap();
    let two = machine.resolve("prgcont/gordon:v1.0", Pull::IfNotPresent).unwrap();
    assert_eq!(fs::read_to_string(two.tree.join("usr/local/bin/web")).unwrap(), "other");
    assert_ne!(one.id, two.id);
    let note = machine.resolve("prgcont/gordon:v2.0", Pull::IfNotPresent).unwrap().note.unwrap();
    assert!(note.ends_with("no version 2.0; the nearest is version 1.0"), "{note}");
    assert!(packages.asked().is_empty(), "what is linked to nothing needs no package");
    fs::remove_file(&executable).unwrap();
    let gone = machine.store.resolve(&Reference::parse("prgcont/gordon").unwrap(), Pull::Always, &silently);
    assert!(matches!(gone, Err(Error::Make { .. })));
}

#[test]
fn a_choice_made_without_looking_everywhere_is_made_again() {
    let packages = Pretended::new(MEMCACHED);
    let set = |suite: &str, version: &str| {
        packages.versions.lock().unwrap().insert((suite.into(), "memcached".into()), version.into());
    };
    set("bookworm", "unreachable");
    let machine = machine(&packages, false);
    let resolve = || machine.resolve("memcached:1.6.9", Pull::IfNotPresent).unwrap().note.unwrap();
    let first = resolve();
    assert!(
        first.ends_with("the nearest is Debian trixie's 1.6.38; Debian bookworm could not be looked at"),
        "{first}"
    );
    set("bookworm", "1.6.18-1");
    assert_eq!(resolve(), first);
    machine.hours_pass(2);
    assert!(resolve().ends_with("the nearest is Debian bookworm's 1.6.18"));
}
