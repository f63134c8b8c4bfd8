//! `ballast image`: the images that pods of this machine can run, beside those that recipes make.
//!
//! **What always holds.** Every cluster of a user shares one store, whichever directory it keeps its objects in.
//! An image that a container runs from is not removed. Making and importing say what they do while they do it.
//!
//! **Not here.** What an image is and how it is made: that is the store's.

use std::fs::Permissions;
use std::mem;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use drydock_images::recipe::{Program, User};
use drydock_images::{
    Config, Content, Contents, FileEntry, Listed, Options, Origin, Port, Progress, Pull, Recipe, Reference,
    Store, Written, recipe, write_oci_archive,
};
use jiff::Timestamp;

use crate::arguments::{ImageCommand, Output};
use crate::configuration::{Environment, image_directory};
use crate::failure::{Explain as _, Failure};
use crate::terminal::{self, say};

/// The image of this program, as `ballast manifests` names it.
const BALLAST: &str = "docker.io/library/ballast";
/// Where this program is in images of it.
const PROGRAM: &str = "/usr/bin/ballast";
/// The image that stands for the third seed's `prgcont/gordon`.
const GORDON: &str = "docker.io/prgcont/gordon";
/// Who runs in images that are made around this very program: `nobody`, as Debian counts.
const NOBODY: &str = "65534:65534";

/// Opens the store of this user's images.
///
/// # Errors
/// There is no place for it, or it can't be used.
pub fn store(environment: &Environment, strict: bool) -> Result<Store, Failure> {
    let directory = image_directory(environment)?;
    let mut recipes = recipe::builtin();
    recipes.extend([gordon()?, ballast()?]);
    Store::open(&directory, Options { recipes, strict, ..Options::default() })
        .what(format_args!("can't use the images in {}", directory.display()))
}

/// A small web server of our own, which this very program can be told to be.
fn gordon() -> Result<Recipe, Failure> {
    let executable = std::env::current_exe().what("can't find this program's own file")?;
    Ok(Recipe::of_program(Program {
        name: GORDON.to_owned(),
        version: "1.0".to_owned(),
        executable,
        path: "/gordon".to_owned(),
        arguments: vec!["gordon-server".to_owned()],
        user: Some(User { name: "gordon".to_owned(), uid: 10_001, gid: 10_001 }),
        ports: vec![Port::tcp(8080)],
    }))
}

/// This very program, so that a cluster of this machine runs the operators as pods without being given an image. What
/// is imported under the same name comes first.
fn ballast() -> Result<Recipe, Failure> {
    Ok(Recipe::of_program(Program {
        name: BALLAST.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        executable: std::env::current_exe().what("can't find this program's own file")?,
        path: PROGRAM.to_owned(),
        arguments: Vec::new(),
        user: Some(User { name: "nobody".to_owned(), uid: 65_534, gid: 65_534 }),
        ports: vec![Port::tcp(8080), Port::tcp(8081)],
    }))
}

/// Does what was typed, and gives what is to be printed.
///
/// # Errors
/// What the store says, in a line.
pub fn image(command: &ImageCommand, environment: &Environment) -> Result<String, Failure> {
    match command {
        ImageCommand::Ls { output } => {
            let listed = store(environment, false)?.list().what("can't list images")?;
            Ok(match output {
                Output::Text => table(&listed, Timestamp::now()),
                Output::Json => json(&listed)?,
            })
        }
        ImageCommand::Rm { images } => remove(&store(environment, false)?, images),
        ImageCommand::Import { file, name } => {
            let name = name.as_deref().map(Reference::parse).transpose().what("--name")?;
            let store = store(environment, false)?;
            let imported = with_progress(|report| store.import(file, name.as_ref(), report))
                .what("nothing was imported")?;
            Ok(imported
                .iter()
                .map(|one| format!("{} {}\n", short(one.id.digits()), one.references.join(" ")))
                .collect())
        }
        ImageCommand::Pull { image, strict } => {
            let store = store(environment, *strict)?;
            let resolved = with_progress(|report| store.resolve_image(image, Pull::IfNotPresent, report))
                .map_err(|error| Failure::new(error.message()))?;
            if let Some(note) = &resolved.note {
                say(note);
            }
            Ok(format!("{}\n", resolved.image_id))
        }
        ImageCommand::Pack { file, name } => {
            let executable = std::env::current_exe().what("can't find this program's own file")?;
            let written = pack(executable, file, name)?;
            Ok(format!("{} {name} {}\n", file.display(), written.id))
        }
        ImageCommand::Export { image, file, name, command } => {
            let name = Reference::parse(name.as_ref().unwrap_or(image)).what("--name")?;
            let store = store(environment, false)?;
            let resolved = with_progress(|report| store.resolve_image(image, Pull::IfNotPresent, report))
                .map_err(|error| Failure::new(error.message()))?;
            let mut config = resolved.config;
            if !command.is_empty() {
                (config.entrypoint, config.command) = (command.clone(), Vec::new());
            }
            let written = write_archive(file, &Contents::Tree(&resolved.tree), &config, &name)?;
            Ok(format!("{} {} {}\n", file.display(), name.tagged(), written.id))
        }
    }
}

/// Removes each, and says what became of the others when one can't be.
fn remove(store: &Store, images: &[String]) -> Result<String, Failure> {
    let in_use = store.in_use().what("can't see what runs")?;
    let mut gone = String::new();
    for image in images {
        let removed = store.remove(image, &in_use).map_err(|error| {
            terminal::print(&gone).ok();
            Failure::new(error.message())
        })?;
        gone.push_str(&format!("removed {image}"));
        let others: Vec<_> = removed.iter().filter(|name| *name != image).cloned().collect();
        if !others.is_empty() {
            gone.push_str(&format!(" ({})", others.join(", ")));
        }
        gone.push('\n');
    }
    Ok(gone)
}

/// Tells the person who waits: each kind of step once, since packages are many and each takes a moment.
fn with_progress<T>(work: impl FnOnce(&(dyn Fn(&Progress) + Sync)) -> T) -> T {
    let last = Mutex::new(None);
    work(&|progress| {
        let step = match progress {
            Progress::Index { suite } => (mem::discriminant(progress), suite.clone()),
            _ => (mem::discriminant(progress), String::new()),
        };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref() != Some(&step) {
            say(progress);
            *last = Some(step);
        }
    })
}

/// Writes an image of this very program, which must run anywhere: it is linked statically, or refused.
fn pack(executable: PathBuf, file: &Path, name: &str) -> Result<Written, Failure> {
    let reference = Reference::parse(name).what("--name")?;
    if !drydock_images::is_static(&executable).what(executable.display())? {
        return Err(Failure::new("this program needs libraries that an image of it alone does not have")
            .advise("`make image` builds one that does not"));
    }
    let files = [FileEntry { path: PathBuf::from(PROGRAM), mode: 0o755, content: Content::File(executable) }];
    let config = Config {
        entrypoint: vec![PROGRAM.to_owned()],
        command: vec!["run".to_owned()],
        user: NOBODY.to_owned(),
        ..Config::default()
    };
    write_archive(file, &Contents::Files(&files), &config, &reference)
}

/// Written beside its place and moved there whole.
fn write_archive(
    file: &Path,
    contents: &Contents<'_>,
    config: &Config,
    reference: &Reference,
) -> Result<Written, Failure> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // There is nothing secret in it: whoever may read what this user writes may read it.
    let readable = Permissions::from_mode(0o666);
    let mut part =
        tempfile::Builder::new().permissions(readable).tempfile_in(directory).what(directory.display())?;
    let written = write_oci_archive(&mut part, contents, config, reference)
        .what(format_args!("can't write {}", file.display()))?;
    part.persist(file).what(format_args!("can't write {}", file.display()))?;
    Ok(written)
}

fn table(images: &[Listed], now: Timestamp) -> String {
    let mut rows = vec![["IMAGE", "ID", "SIZE", "AGE", "FROM"].map(str::to_owned)];
    for Listed { references, record } in images {
        let names = if references.is_empty() { vec!["<none>".to_owned()] } else { references.clone() };
        for name in names {
            let name = Reference::parse(&name)
                .map(|parsed| format!("{}:{}", parsed.familiar_name(), parsed.tag_or_latest()))
                .unwrap_or(name);
            rows.push([
                name,
                short(record.id.digits()).to_owned(),
                megabytes(record.bytes),
                age(record.created, now),
                from(&record.origin),
            ]);
        }
    }
    terminal::columns(&rows)
}

fn json(images: &[Listed]) -> Result<String, Failure> {
    let rows: Vec<_> = images
        .iter()
        .map(|one| serde_json::json!({"references": one.references, "image": one.record}))
        .collect();
    Ok(format!("{}\n", serde_json::to_string_pretty(&rows).what("no JSON")?))
}

fn from(origin: &Origin) -> String {
    match origin {
        Origin::Recipe { suite: Some(suite), debian: Some(debian), .. } => {
            format!("Debian {suite}, {debian}")
        }
        Origin::Recipe { .. } => "this program".to_owned(),
        Origin::Archive { path, .. } => path.display().to_string(),
    }
}

fn short(digits: &str) -> &str {
    digits.get(..12).unwrap_or(digits)
}

fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

/// In the largest unit, as kubectl shows ages.
fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_of_this_program_is_one_static_file_that_nobody_runs() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let dynamic = std::env::current_exe().unwrap();
        let refused = pack(dynamic, &file("none.tar"), "ballast:1.0").map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("needs libraries") && refused.contains("`make image`"), "{refused}");
        assert!(!file("none.tar").exists());

        let mut places = ["/usr/bin/busybox", "/bin/busybox"].into_iter().map(PathBuf::from);
        let program = places.find(|path| path.exists()).expect("this needs busybox-static");
        for name in ["one.tar", "two.tar"] {
            pack(program.clone(), &file(name), "ballast:1.0").unwrap();
        }
        let read = |name: &str| std::fs::read(file(name)).unwrap();
        assert!(read("one.tar") == read("two.tar"), "the same program is the same image");

        let store = Store::open(&file("store"), Options::default()).unwrap();
        store.import(&file("one.tar"), None, &drydock_images::silently).unwrap();
        let image = store.resolve_image("ballast:1.0", Pull::Never, &drydock_images::silently).unwrap();
        let config = &image.config;
        assert_eq!((config.entrypoint.join(" "), config.command.join(" ")), (PROGRAM.into(), "run".into()));
        let numbers: Vec<u32> = config.user.split(':').map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers, [65_534, 65_534]);
        let inside = image.tree.join(PROGRAM.trim_start_matches('/'));
        assert!(drydock_images::is_static(&inside).unwrap());
        assert_eq!(std::fs::metadata(&inside).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(std::fs::read(&inside).unwrap(), std::fs::read(&program).unwrap());
    }

    #[test]
    fn sizes_and_ages_are_for_people() {
        assert_eq!(megabytes(26_340_112), "26.3 MB");
        assert_eq!(megabytes(999), "0.0 MB");
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (seconds, expected) in [(0, "0s"), (119, "119s"), (600, "10m"), (7_200, "2h"), (864_000, "10d")] {
            let then = Timestamp::from_second(1_000_000 - seconds).unwrap();
            assert_eq!(age(then, now), expected);
        }
        let later = Timestamp::from_second(1_000_050).unwrap();
        assert_eq!(age(later, now), "0s");
    }
}
