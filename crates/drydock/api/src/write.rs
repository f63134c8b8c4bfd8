//! The one way objects are written, whatever the verb.
//!
//! **Guarantees.** An object is stored only as a whole: prepared, admitted, validated, with its
//! managed fields and system metadata in order. A write that changes nothing stores nothing. A write
//! that takes the last finalizer off a deleted object removes it. What follows from a stored object
//! follows also when the client is gone by then.
//!
//! **Caveats.** A write that names no `resourceVersion` is made again on the newer object when
//! somebody else was faster; one that names one is refused.

use std::{io, sync::Arc};

use drydock_merge::managed;
use drydock_schema::FieldError;
use drydock_store::{Change, CommitError, Expect, Revision, Stored};
use serde_json::Value;

use crate::{
    admission::{self, Admission, Held},
    call::{Call, Outcome, untouched},
    failure::{Failure, GroupResource, OPTIMISTIC_LOCK},
    object::{self, meta, meta_mut},
};

/// How often a made-up name is tried.
const NAME_ATTEMPTS: usize = 8;

/// How often a write that names no revision is made again when somebody else was faster.
const UPDATE_ATTEMPTS: usize = 64;

/// What made-up names are made of: no vowels, so no words.
const NAME_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A made-up name is at most as long as a label.
const NAME_BASE: usize = 63 - NAME_SUFFIX;
const NAME_SUFFIX: usize = 5;

impl Call<'_> {
    /// Checks and fills in what identifies a new object, and takes off what is the server's.
    pub fn claim(&self, object: &mut Value) -> Result<(), Failure> {
        let namespace = self.namespace().to_owned();
        let metadata = meta_mut(object);
        for field in
            ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
        {
            metadata.remove(field);
        }
        check_namespace(object, &namespace)?;
        Ok(())
    }

    /// Stores a new object. `managed` says that its managed fields are in order already.
    pub async fn create(&self, mut object: Value, managed: bool) -> Result<Outcome, Failure> {
        self.claim(&mut object)?;
        if !meta(&object, "resourceVersion").is_empty() {
            return Err(Failure::Unexpected(
                "resourceVersion should not be set on objects to be created".into(),
            ));
        }
        meta_mut(&mut object).remove("resourceVersion");
        if !managed {
            object = self.manage(None, object, None);
        }
        let admission = Admission::new(self, None);
        admission.mutate(&mut object).await?;
        let generate = meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty();
        if !generate {
            return self.create_named(object, &admission, false).await;
        }
        let prefix: String = meta(&object, "generateName").chars().take(NAME_BASE).collect();
        let mut result = Err(Failure::Internal("no name was tried".into()));
        for _ in 0..NAME_ATTEMPTS {
            let mut attempt = object.clone();
            meta_mut(&mut attempt).insert("name".into(), format!("{prefix}{}", suffix()).into());
            result = self.create_named(attempt, &admission, true).await;
            if !matches!(result, Err(Failure::AlreadyExists { .. })) {
                break;
            }
        }
        result
    }

    async fn create_named(
        &self,
        mut object: Value,
        admission: &Admission<'_, '_>,
        generated: bool,
    ) -> Result<Outcome, Failure> {
        let metadata = meta_mut(&mut object);
        metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
        metadata.insert("creationTimestamp".into(), object::time(self.now).into());
        self.kind.prepare_create(&mut object);
        // What admission added has defaults too.
        self.kind.default(&mut object);
        self.valid(&object, self.kind.validate(&object))?;
        self.warn(self.kind.warnings(&object, None));
        let held = admission.allocate(&mut object)?;
        admission.validate(&object)?;
        if self.dry_run() {
            let key = object::key(&self.kind, Some(self.namespace()), meta(&object, "name"));
            if let Some(existing) = self.api.store().get(&key) {
                return Err(self.exists(&existing, generated));
            }
            return Ok(Outcome::Shown(object));
        }
        let key = object::key(&self.kind, Some(self.namespace()), meta(&object, "name"));
        let draft = object::draft(&self.kind, object)?;
        match self.api.commit(&self.kind, key, Expect::Absent, Change::Put(draft), held).await {
            Ok(stored) => Ok(Outcome::Stored(stored)),
            Err(CommitError::Exists(existing)) => Err(self.exists(&existing, generated)),
            Err(error) => Err(commit_failure(&error)),
        }
    }

    fn exists(&self, existing: &Stored, generated: bool) -> Failure {
        let deleting = object::read_stored(existing).is_ok_and(|object| object::is_terminating(&object));
        Failure::AlreadyExists {
            resource: object::resource_of(&self.kind),
            name: existing.key.name.to_string(),
            generated,
            prefix: if deleting { "object is being deleted: " } else { "" },
        }
    }

    /// Refuses an object in which something is wrong.
    pub fn valid(&self, object: &Value, errors: Vec<FieldError>) -> Result<(), Failure> {
        if errors.is_empty() {
            return Ok(());
        }
        let name = meta(object, "name").to_owned();
        Err(Failure::Invalid { kind: object::kind_of(&self.kind), name, errors })
    }

    /// The object with its managed fields as they are after this write.
    pub fn manage(&self, live: Option<&Value>, new: Value, subresource: Option<&str>) -> Value {
        let schema = self.kind.schema();
        managed::update(managed::Update {
            schema: &schema,
            live,
            new,
            manager: &self.manager(),
            api_version: &self.kind.api_version(),
            subresource,
            now: self.now,
            ignore: &untouched(&self.kind, &schema, subresource),
        })
    }

    /// Changes the object in the path. `propose` makes the new object out of the present one, with
    /// its managed fields in order; it is asked again when somebody else was faster.
    pub async fn update<F>(&self, subresource: Option<&str>, propose: F) -> Result<Outcome, Failure>
    where
        F: Fn(&Value) -> Result<Value, Failure>,
    {
        for _ in 0..UPDATE_ATTEMPTS {
            let stored = self.stored()?;
            let live = object::read(&self.kind, &stored)?;
            let proposed = propose(&live)?;
            match self.replace(&stored, &live, proposed, subresource).await {
                Err(Attempt::Lost) => {}
                Err(Attempt::Failed(failure)) => return Err(failure),
                Ok(outcome) => return Ok(outcome),
            }
        }
        Err(self.conflict(OPTIMISTIC_LOCK))
    }

    /// The object is not what the writer thought.
    pub fn conflict(&self, why: impl Into<String>) -> Failure {
        Failure::Conflict(object::resource_of(&self.kind), self.name().to_owned(), why.into())
    }

    async fn replace(
        &self,
        stored: &Arc<Stored>,
        live: &Value,
        mut new: Value,
        subresource: Option<&str>,
    ) -> Result<Outcome, Attempt> {
        self.check_version(live, &mut new)?;
        check_namespace(&mut new, self.namespace())?;
        let admission = Admission::new(self, Some(live));
        if subresource.is_none() {
            admission.mutate(&mut new).await?;
        }
        self.kind.prepare_update(&mut new, live, subresource);
        self.valid(&new, twice_for_metadata(self.kind.validate_update(&new, live, subresource)))?;
        self.warn(self.kind.warnings(&new, Some(live)));
        let mut held = None;
        if subresource.is_none() {
            held = admission.allocate(&mut new)?;
            admission.validate(&new)?;
        }
        managed::keep_times(live, &mut new);
        let gone = admission::finished(&self.kind, live, &new);
        if !gone && new == *live {
            return Ok(Outcome::Stored(stored.clone()));
        }
        if self.dry_run() {
            return Ok(Outcome::Shown(new));
        }
        if gone {
            let shown = new.clone();
            self.remove(stored, new).await?;
            return Ok(Outcome::Shown(shown));
        }
        Ok(Outcome::Stored(self.put(stored.revision, new, held).await?))
    }

    /// Refuses to replace another object than the one that the body means.
    pub fn check_uid(&self, live: &Value, new: &Value) -> Result<(), Failure> {
        let (given, own) = (meta(new, "uid"), meta(live, "uid"));
        if given.is_empty() || given == own {
            return Ok(());
        }
        Err(self.conflict(format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {own}",
            self.registry_key(),
        )))
    }

    /// Refuses an update of another version than the present one.
    fn check_version(&self, live: &Value, new: &mut Value) -> Result<(), Failure> {
        let given = meta(new, "resourceVersion");
        if given.is_empty() || given == "0" {
            if !self.kind.allow_unconditional_update() {
                return Err(Failure::Invalid {
                    kind: object::resource_of(&self.kind),
                    name: self.name().to_owned(),
                    errors: vec![FieldError::invalid(
                        "metadata.resourceVersion",
                        0,
                        "must be specified for an update",
                    )],
                });
            }
            let current = live["metadata"]["resourceVersion"].clone();
            meta_mut(new).insert("resourceVersion".into(), current);
        } else if given != meta(live, "resourceVersion") {
            if given.parse::<u64>().is_err() {
                return Err(Failure::Unexpected(format!(
                    "strconv.ParseUint: parsing {given:?}: invalid syntax"
                )));
            }
            return Err(self.conflict(OPTIMISTIC_LOCK));
        }
        Ok(())
    }

    /// The key as the real server's storage writes it, for its messages.
    pub fn registry_key(&self) -> String {
        let resource = GroupResource::new(&*self.kind.group, &*self.kind.plural);
        let mut parts = vec![resource.resource.as_str()];
        if self.kind.is_custom() {
            parts.insert(0, &resource.group);
        }
        if self.kind.namespaced {
            parts.push(self.namespace());
        }
        parts.push(self.name());
        parts.join("/")
    }

    /// Stores an object that was at `revision`, with what is held for it.
    pub async fn put(
        &self,
        revision: Revision,
        object: Value,
        held: Option<Held>,
    ) -> Result<Arc<Stored>, Attempt> {
        let key = object::key(&self.kind, Some(self.namespace()), meta(&object, "name"));
        let draft = object::draft(&self.kind, object)?;
        match self.api.commit(&self.kind, key, Expect::At(revision), Change::Put(draft), held).await {
            Ok(stored) => Ok(stored),
            Err(CommitError::Conflict(_) | CommitError::Missing) => Err(Attempt::Lost),
            Err(error) => Err(Attempt::Failed(commit_failure(&error))),
        }
    }

    /// Removes an object; `last` is what watches are told it was.
    pub async fn remove(&self, stored: &Stored, last: Value) -> Result<Arc<Stored>, Attempt> {
        let draft = object::draft(&self.kind, last)?;
        let (expect, change) = (Expect::At(stored.revision), Change::Delete(draft));
        match self.api.commit(&self.kind, stored.key.clone(), expect, change, None).await {
            Ok(stored) => Ok(stored),
            Err(CommitError::Conflict(_) | CommitError::Missing) => Err(Attempt::Lost),
            Err(error) => Err(Attempt::Failed(commit_failure(&error))),
        }
    }
}

/// What is wrong with metadata is found twice on the real server, by what all kinds share and by the
/// kind itself, and listed twice among the causes.
fn twice_for_metadata(errors: Vec<FieldError>) -> Vec<FieldError> {
    let shared = errors.iter().filter(|error| error.path.starts_with("metadata")).cloned();
    shared.collect::<Vec<_>>().into_iter().chain(errors).collect()
}

/// Why an attempt to write came to nothing.
pub(crate) enum Attempt {
    /// Somebody else was faster.
    Lost,
    /// It can't be.
    Failed(Failure),
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The store's refusal, in the API's words.
pub(crate) fn commit_failure(error: &CommitError) -> Failure {
    match error {
        CommitError::Closed => Failure::Unavailable("the server is shutting down".into()),
        CommitError::Io(why) if is_full(why) => Failure::Full(words(why)),
        CommitError::Io(why) | CommitError::Broken(why) => {
            Failure::Internal(format!("{error}: {}", words(why)))
        }
        other => Failure::Internal(other.to_string()),
    }
}

/// What the system said, without the number that it gives its errors.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// Whether it is for want of room, of the disk's, the user's or the file's.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// The object's namespace is the path's: filled in, or refused.
fn check_namespace(object: &mut Value, namespace: &str) -> Result<(), Failure> {
    let given = meta(object, "namespace");
    if given == namespace {
        return Ok(());
    }
    if !given.is_empty() {
        return Err(Failure::BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request".into(),
        ));
    }
    meta_mut(object).insert("namespace".into(), namespace.into());
    Ok(())
}

/// Five characters that nobody can guess.
fn suffix() -> String {
    let bytes = *uuid::Uuid::new_v4().as_bytes();
    bytes[..NAME_SUFFIX]
        .iter()
        .map(|byte| char::from(NAME_ALPHABET[usize::from(*byte) % NAME_ALPHABET.len()]))
        .collect()
}
