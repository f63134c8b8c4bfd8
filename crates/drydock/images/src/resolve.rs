//! From a name in a pod to a tree on disk.
//!
//! 1. A digest means the image that has it, and nothing else.
//! 2. A name and tag that were imported, or chosen before, mean that image.
//! 3. Otherwise the recipe of that name chooses a version by the rule of [`crate::version`], and the tree is
//!    made. What was chosen is remembered: the same tag means the same image until it is asked for with
//!    [`Pull::Always`] and the choice is older than the package index may be.

use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

use crate::apt::FRESH_FOR;
use crate::config::Document;
use crate::layout::{ImageId, Origin, Pointer, Record, at};
use crate::packages::PackagesError;
use crate::progress::Report;
use crate::recipe::{Recipe, Source, Versioned, by_major};
use crate::reference::Reference;
use crate::store::{Error, Pull, Resolved, Store};
use crate::tree::{self, TreeError};
use crate::version::{Candidate, Version, Wish, choose};
use crate::{digest, export, linkage};

/// A choice that was made without looking everywhere is made again when it is older than this.
const PROVISIONAL_FOR: SignedDuration = SignedDuration::from_hours(1);

/// What the suites have, and which could not be looked at.
type Found = (Vec<Candidate>, Vec<(String, PackagesError)>);

/// What a recipe decided for a tag.
struct Decision {
    candidate: Candidate,
    note: Option<String>,
    /// Whether a suite that could not be looked at might have something nearer.
    provisional: bool,
}

impl Store {
    /// The image that a pod's `image` field means. Errors speak of it as it is written there.
    ///
    /// # Errors
    /// As for [`Store::resolve`], and when it is no image name.
    pub fn resolve_image(&self, image: &str, pull: Pull, report: Report<'_>) -> Result<Resolved, Error> {
        self.resolve(&Reference::parse(image)?, pull, report).map_err(|error| match error {
            Error::NotPresent(_) => Error::NotPresent(image.to_owned()),
            error => error,
        })
    }

    /// The image that `reference` means, made where that is needed and wanted.
    ///
    /// # Errors
    /// When there is none; [`Error::reason`] and [`Error::message`] are what a container's status says then.
    pub fn resolve(&self, reference: &Reference, pull: Pull, report: Report<'_>) -> Result<Resolved, Error> {
        if let Some(digest) = reference.digest() {
            let found = self.inner.layout.records()?.into_iter().find(|record| record.is(digest));
            let record = found.ok_or_else(|| self.absent(reference, pull))?;
            return Ok(self.resolved(record, None, true));
        }
        let recipe = self.inner.options.recipes.iter().find(|recipe| recipe.answers_to(&reference.name()));
        let fingerprint = recipe.map(fingerprint);
        if let Some((record, pointer)) = self.kept(reference, fingerprint.as_deref())?
            && self.stands(&pointer, pull)
        {
            return self.judged(reference, record, pointer.note, true);
        }
        let (Some(recipe), Some(fingerprint), true) = (recipe, fingerprint, pull != Pull::Never) else {
            return Err(self.absent(reference, pull));
        };
        self.make(reference, recipe, &fingerprint, pull, report)
    }

    fn make(
        &self,
        reference: &Reference,
        recipe: &Recipe,
        fingerprint: &str,
        pull: Pull,
        report: Report<'_>,
    ) -> Result<Resolved, Error> {
        let _lock = self.inner.layout.lock_recipe(&recipe.name, report)?;
        let kept = self.kept(reference, Some(fingerprint))?;
        if let Some((record, pointer)) = &kept
            && self.stands(pointer, pull)
        {
            return self.judged(reference, record.clone(), pointer.note.clone(), false);
        }
        match self.make_anew(reference, recipe, fingerprint, pull, report) {
            Ok(resolved) => Ok(resolved),
            Err(error @ Error::NotExact { .. }) => Err(error),
            Err(error) => match kept {
                Some((record, pointer)) => {
                    tracing::warn!(image = %reference, error = error.message(), "what was made before is taken");
                    self.judged(reference, record, pointer.note, true)
                }
                None => Err(error),
            },
        }
    }

    fn make_anew(
        &self,
        reference: &Reference,
        recipe: &Recipe,
        fingerprint: &str,
        pull: Pull,
        report: Report<'_>,
    ) -> Result<Resolved, Error> {
        let Decision { candidate, note, provisional } = self.decide(reference, recipe, report)?;
        if let Some(note) = note.as_ref().filter(|_| self.inner.options.strict) {
            return Err(Error::NotExact { image: reference.to_string(), note: note.clone() });
        }
        let pointer = |id: &ImageId| {
            let since = (self.inner.options.now)();
            let (id, fingerprint, note) = (id.clone(), Some(fingerprint.to_owned()), note.clone());
            [(reference.tagged(), Pointer { id, since, fingerprint, note, provisional })]
        };
        let made = self.inner.layout.records()?.into_iter().rev().find(|record| {
            made_from(record, recipe, fingerprint, &candidate)
                && (pull != Pull::Always || self.is_younger(record.created, FRESH_FOR))
        });
        if let Some(record) = made {
            self.inner.layout.refer(&pointer(&record.id))?;
            return Ok(self.resolved(record, note, true));
        }
        let failed = |error: TreeError| Error::Make { image: reference.to_string(), error };
        let packages = if needs_packages(recipe).map_err(failed)? {
            let wanted = recipe.packages_of(&candidate.version);
            let fetched = self.inner.packages.fetch(&candidate.suite, &wanted, &recipe.without, report);
            fetched.map_err(|error| Error::packages(reference, error))?
        } else {
            Vec::new()
        };
        let making = self.inner.layout.begin()?;
        let tree = making.tree();
        tree::make(&tree, recipe, &packages, report).map_err(failed)?;
        let config = recipe.config();
        let document = Document::new(&config, vec![at(&tree, export::diff_id(&tree))?]);
        let document = at(&tree, serde_json::to_vec(&document).map_err(std::io::Error::from))?;
        let usage = at(&tree, export::usage(&tree))?;
        let by_package = !matches!(recipe.version, Versioned::As(_));
        let record = Record {
            id: ImageId::of(&document),
            name: recipe.name.clone(),
            origin: Origin::Recipe {
                suite: (!packages.is_empty()).then(|| candidate.suite.clone()),
                version: candidate.version.to_string(),
                debian: by_package.then(|| candidate.debian.clone()),
                fingerprint: fingerprint.to_owned(),
            },
            packages: packages.into_iter().map(|fetched| fetched.package).collect(),
            created: (self.inner.options.now)(),
            bytes: usage.bytes,
            entries: usage.entries,
            config,
        };
        self.inner.layout.finish(making, &record, &pointer(&record.id))?;
        Ok(self.resolved(record, note, false))
    }

    /// Which version, and what to say about it. The suites are looked at until one satisfies the tag.
    fn decide(&self, reference: &Reference, recipe: &Recipe, report: Report<'_>) -> Result<Decision, Error> {
        let wish = Wish::of_tag(reference.tag_or_latest());
        let (candidates, failures) = match &recipe.version {
            Versioned::As(version) => (fixed(recipe, version), Vec::new()),
            Versioned::ByPackage(_) | Versioned::ByMajor { .. } => self.candidates(recipe, &wish, report),
        };
        let Some(choice) = choose(&wish, &candidates, &recipe.variants) else {
            return Err(match failures.into_iter().next() {
                Some((_, error)) => Error::packages(reference, error),
                None => Error::Unknown { image: reference.to_string(), known: self.known()? },
            });
        };
        let unseen: String = failures
            .iter()
            .map(|(suite, error)| {
                tracing::warn!(image = %reference, suite, %error, "a suite could not be looked at");
                format!("; Debian {suite} could not be looked at")
            })
            .collect();
        let Candidate { suite, version, .. } = choice.candidate;
        let taken = match recipe.version {
            Versioned::ByPackage(_) | Versioned::ByMajor { .. } => format!("Debian {suite}'s {version}"),
            Versioned::As(_) => format!("version {version}"),
        };
        let note = choice.difference.map(|missing| {
            format!(
                "Image {:?} can't be had: no {missing}; the nearest is {taken}{unseen}",
                reference.tagged()
            )
        });
        Ok(Decision { candidate: choice.candidate.clone(), note, provisional: !failures.is_empty() })
    }

    fn candidates(&self, recipe: &Recipe, wish: &Wish, report: Report<'_>) -> Found {
        let first =
            recipe.suites.iter().find(|suite| wish.variants.contains(suite)).or(recipe.suites.first());
        let found = Mutex::new((Vec::new(), Vec::new()));
        let look = |suite: &String| {
            let answer = self.version_in(suite, recipe, report);
            let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match answer {
                Ok(Some(debian)) => found.0.extend(Version::of_debian(&debian).map(|version| Candidate {
                    suite: suite.clone(),
                    version,
                    debian,
                })),
                Ok(None) => {}
                Err(error) => found.1.push((suite.clone(), error)),
            }
        };
        first.into_iter().for_each(look);
        let satisfied = |found: &Mutex<Found>| {
            let found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            choose(wish, &found.0, &recipe.variants).is_some_and(|choice| choice.difference.is_none())
        };
        if !satisfied(&found) {
            std::thread::scope(|scope| {
                for suite in recipe.suites.iter().filter(|suite| Some(*suite) != first) {
                    scope.spawn(move || look(suite));
                }
            });
        }
        let (mut candidates, failures) =
            found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        candidates.sort_by_key(|candidate| recipe.suites.iter().position(|suite| *suite == candidate.suite));
        (candidates, failures)
    }

    /// What Debian calls the version of the image that a suite's packages make.
    fn version_in(
        &self,
        suite: &str,
        recipe: &Recipe,
        report: Report<'_>,
    ) -> Result<Option<String>, PackagesError> {
        let version = |package: &str| self.inner.packages.version(suite, package, report);
        match &recipe.version {
            Versioned::ByPackage(package) => version(package),
            Versioned::ByMajor { told_by, prefix } => {
                let told = version(told_by)?.as_deref().and_then(Version::of_debian);
                told.map_or(Ok(None), |told| version(&by_major(prefix, &told)))
            }
            Versioned::As(_) => Ok(None),
        }
    }

    /// What a name and tag were found to mean, as long as the image is there and its recipe is the same.
    fn kept(
        &self,
        reference: &Reference,
        fingerprint: Option<&str>,
    ) -> Result<Option<(Record, Pointer)>, Error> {
        let Some(pointer) = self.inner.layout.references()?.remove(&reference.tagged()) else {
            return Ok(None);
        };
        if pointer.fingerprint.is_some() && pointer.fingerprint.as_deref() != fingerprint {
            return Ok(None);
        }
        Ok(self.inner.layout.record(&pointer.id)?.map(|record| (record, pointer)))
    }

    /// Whether what was chosen before is to be taken without looking again.
    fn stands(&self, pointer: &Pointer, pull: Pull) -> bool {
        let age = match (pointer.fingerprint.is_some(), pointer.provisional, pull) {
            (false, _, _) | (true, _, Pull::Never) | (true, false, Pull::IfNotPresent) => return true,
            (true, true, _) => PROVISIONAL_FOR,
            (true, false, Pull::Always) => FRESH_FOR,
        };
        self.is_younger(pointer.since, age)
    }

    fn is_younger(&self, then: Timestamp, age: SignedDuration) -> bool {
        let now = (self.inner.options.now)();
        then <= now && now.duration_since(then) < age
    }

    fn judged(
        &self,
        reference: &Reference,
        record: Record,
        note: Option<String>,
        present: bool,
    ) -> Result<Resolved, Error> {
        match note {
            Some(note) if self.inner.options.strict => {
                Err(Error::NotExact { image: reference.to_string(), note })
            }
            note => Ok(self.resolved(record, note, present)),
        }
    }

    fn resolved(&self, record: Record, note: Option<String>, present: bool) -> Resolved {
        Resolved {
            image_id: record.image_id(),
            tree: self.inner.layout.tree(&record.id),
            id: record.id,
            config: record.config,
            note,
            bytes: record.bytes,
            present,
        }
    }

    fn absent(&self, reference: &Reference, pull: Pull) -> Error {
        if pull == Pull::Never {
            return Error::NotPresent(reference.to_string());
        }
        match self.known() {
            Ok(known) => Error::Unknown { image: reference.to_string(), known },
            Err(error) => error,
        }
    }

    /// What can be asked for: the recipes, and what was imported.
    fn known(&self) -> Result<String, Error> {
        let recipes = self.inner.options.recipes.iter().map(|recipe| {
            Reference::parse(&recipe.name).map_or_else(|_| recipe.name.clone(), |name| name.familiar_name())
        });
        let references = self.inner.layout.references()?;
        let imported = references
            .iter()
            .filter(|(_, pointer)| pointer.fingerprint.is_none())
            .filter_map(|(name, _)| Reference::parse(name).ok())
            .map(|name| format!("{}:{}", name.familiar_name(), name.tag_or_latest()));
        Ok(recipes.chain(imported).collect::<Vec<_>>().join(", "))
    }
}

impl ImageId {
    fn of(document: &[u8]) -> ImageId {
        ImageId::of_digest(digest::of(document))
    }
}

fn fixed(recipe: &Recipe, version: &str) -> Vec<Candidate> {
    let suite = recipe.suites.first().cloned().unwrap_or_default();
    Version::parse(version)
        .map(|parsed| Candidate { suite, version: parsed, debian: version.to_owned() })
        .into_iter()
        .collect()
}

fn made_from(record: &Record, recipe: &Recipe, fingerprint: &str, candidate: &Candidate) -> bool {
    match &record.origin {
        Origin::Recipe { suite, version, debian, fingerprint: made_by } => {
            let same_source = match debian {
                Some(debian) => debian == &candidate.debian && suite.as_ref() == Some(&candidate.suite),
                None => *version == candidate.version.to_string(),
            };
            record.name == recipe.name && made_by == fingerprint && same_source
        }
        Origin::Archive { .. } => false,
    }
}

/// A recipe around a program of this machine needs packages only where that program is linked to something.
fn needs_packages(recipe: &Recipe) -> Result<bool, TreeError> {
    if !matches!(recipe.version, Versioned::As(_)) {
        return Ok(true);
    }
    for file in &recipe.files {
        if let Source::Local(path) = &file.source {
            let needs = std::fs::File::open(path)
                .and_then(linkage::needs)
                .map_err(|error| TreeError::Make { path: path.clone(), error })?;
            if needs.loader.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(recipe.files.is_empty())
}

/// Changes when the recipe does, or a file of this machine that it takes. A file is told by when and where it
/// was written, not by reading it: this is asked at every start of a pod.
fn fingerprint(recipe: &Recipe) -> String {
    let mut text = serde_json::to_string(recipe).unwrap_or_default();
    for file in &recipe.files {
        if let Source::Local(path) = &file.source
            && let Ok(found) = std::fs::metadata(path)
        {
            let stamp = (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec());
            text.push_str(&format!("{stamp:?}"));
        }
    }
    digest::of(text.as_bytes())
}
