//! Deletion: at once, after a grace period, or when the last finalizer is gone.
//!
//! **Always holds:** an object with finalizers is never removed by a delete; it is marked, and
//! removed by the update that takes the last finalizer off.

use drydock_kinds::Kind;
use drydock_schema::FieldError;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    admission::{self, is},
    body,
    call::{Call, Outcome},
    definitions,
    failure::{Failure, OPTIMISTIC_LOCK},
    list,
    object::{self, meta, meta_mut},
    response::Answer,
    write::Attempt,
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What is said when a Job is deleted and nobody said what is to become of its pods.
const PODS_STAY: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// How often a delete is tried when somebody else was faster.
const ATTEMPTS: usize = 64;

/// What becomes of what the object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// How an object is to be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteOptions {
    grace_period_seconds: Option<i64>,
    propagation: Option<Propagation>,
    /// The client said `orphanDependents: false`: it wants to know when the object is still there.
    waits: bool,
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
    /// It is an eviction, which a Pod says of itself.
    evicts: bool,
}

impl DeleteOptions {
    /// Reads the options from the body, or from the query where there is none.
    pub fn read(call: &Call<'_>) -> Result<Self, Failure> {
        let query = call.options();
        let mut options = json!({
            "gracePeriodSeconds": query.grace_period_seconds,
            "propagationPolicy": query.propagation_policy,
            "orphanDependents": query.orphan_dependents,
            "dryRun": query.dry_run,
        });
        if !call.body.is_empty() {
            let media = body::media_type(call.headers)?;
            options = body::parse(media, &call.body).map_err(Failure::Unexpected)?.object;
        }
        Self::check(&options)
    }

    /// Reads the options from a `DeleteOptions`.
    pub fn check(options: &Value) -> Result<Self, Failure> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let dry_run: Vec<&str> =
            options["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if dry_run.iter().any(|value| *value != "All") {
            let supported = r#"supported values: "All""#;
            return Err(body::unsupported_option("DeleteOptions", "dryRun", dry_run.into(), supported));
        }
        let orphan = options["orphanDependents"].as_bool();
        let policy = text(&options["propagationPolicy"]);
        if orphan.is_some() && policy.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            let error = FieldError::invalid("propagationPolicy", policy, detail);
            return Err(body::invalid_option("DeleteOptions", error));
        }
        let propagation = match policy.as_deref() {
            None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                return Err(body::unsupported_option(
                    "DeleteOptions",
                    "propagationPolicy",
                    other.into(),
                    r#"supported values: "Foreground", "Background", "Orphan", "nil""#,
                ));
            }
        };
        Ok(Self {
            grace_period_seconds: options["gracePeriodSeconds"].as_i64(),
            propagation,
            waits: orphan == Some(false),
            uid: text(&options["preconditions"]["uid"]),
            resource_version: text(&options["preconditions"]["resourceVersion"]),
            dry_run: !dry_run.is_empty(),
            evicts: false,
        })
    }

    /// The same, as an eviction.
    pub fn evicting(self) -> Self {
        Self { evicts: true, ..self }
    }

    /// Of this object as it is, and of no other.
    pub fn of(object: &Value) -> Self {
        let uid = Some(meta(object, "uid").to_owned());
        Self { uid, ..Self::default() }.at(meta(object, "resourceVersion"))
    }

    /// The same, of no other than this version.
    pub fn at(self, version: &str) -> Self {
        Self { resource_version: Some(version.to_owned()), ..self }
    }

    /// Only one version is to be deleted.
    pub fn is_about_a_version(&self) -> bool {
        self.resource_version.is_some()
    }

    /// Nothing is to be deleted.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

/// What became of a delete.
pub(crate) struct Deleted {
    /// The object: as it was last, or as it waits.
    outcome: Outcome,
    /// It is gone.
    gone: bool,
    /// Whether the answer shows the object even though it is gone.
    show: bool,
}

impl Call<'_> {
    /// `DELETE` of one object.
    pub async fn delete(&self) -> Result<Answer, Failure> {
        let options = DeleteOptions::read(self)?;
        self.warn_of_what_stays(&options);
        let deleted = self.delete_object(&options).await?;
        let code = if !deleted.gone && options.waits { StatusCode::ACCEPTED } else { StatusCode::OK };
        if !deleted.gone || deleted.show {
            return self.show(code, &deleted.outcome);
        }
        let object = deleted.outcome.object(&self.kind)?;
        let resource = object::resource_of(&self.kind);
        let mut details =
            json!({"name": self.name(), "kind": resource.resource, "uid": meta(&object, "uid")});
        if !resource.group.is_empty() {
            details["group"] = resource.group.into();
        }
        let status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
        });
        Ok(self.plain(code, &status))
    }

    /// `DELETE` of many objects; answers with what there was.
    pub async fn delete_collection(&self) -> Result<Answer, Failure> {
        let options = DeleteOptions::read(self)?;
        self.warn_of_what_stays(&options);
        let (items, metadata) =
            list::select(self.api.store(), &self.kind, self.path.object_namespace(), self.options())?;
        for item in &items {
            let path = crate::request::ResourcePath {
                name: Some(item.key.name.to_string()),
                namespace: Some(item.key.namespace.to_string()),
                ..self.path.clone()
            };
            match self.at(&path).delete_object(&options).await {
                Ok(_) | Err(Failure::NotFound(..)) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.view()?.list(&items, &metadata)
    }

    fn warn_of_what_stays(&self, options: &DeleteOptions) {
        if options.propagation.is_none() && leaves_dependents(&self.kind) {
            self.warn([PODS_STAY.to_owned()]);
        }
    }

    /// Deletes the object in the path.
    pub async fn delete_object(&self, options: &DeleteOptions) -> Result<Deleted, Failure> {
        if is(&self.kind, "", "namespaces") {
            admission::check_deletion(self.name())?;
        }
        for _ in 0..ATTEMPTS {
            match self.try_delete(options).await {
                Ok(deleted) => return Ok(deleted),
                Err(Attempt::Lost) => {}
                Err(Attempt::Failed(failure)) => return Err(failure),
            }
        }
        Err(self.conflict(OPTIMISTIC_LOCK))
    }

    async fn try_delete(&self, options: &DeleteOptions) -> Result<Deleted, Attempt> {
        let stored = self.stored()?;
        let live = object::read(&self.kind, &stored)?;
        self.check_preconditions(options, &live)?;
        let mut object = live.clone();
        if options.evicts {
            say_evicted(&mut object, self.now);
        }
        let show = self.kind.returns_deleted_object();
        match mark(&self.kind, &mut object, options, self.now) {
            Mark::Waits if object == live => {
                Ok(Deleted { outcome: Outcome::Stored(stored), gone: false, show })
            }
            Mark::Waits if self.dry_run() || options.dry_run => {
                Ok(Deleted { outcome: Outcome::Shown(object), gone: false, show })
            }
            Mark::Waits => {
                let stored = self.put(stored.revision, object, None).await?;
                Ok(Deleted { outcome: Outcome::Stored(stored), gone: false, show })
            }
            Mark::Gone if self.dry_run() || options.dry_run => {
                Ok(Deleted { outcome: Outcome::Shown(object), gone: true, show })
            }
            Mark::Gone => {
                let stored = self.remove(&stored, object).await?;
                Ok(Deleted { outcome: Outcome::Stored(stored), gone: true, show })
            }
        }
    }

    fn check_preconditions(&self, options: &DeleteOptions, live: &Value) -> Result<(), Failure> {
        let checks = [
            ("UID", "UID", &options.uid, meta(live, "uid"), "deleted and then recreated"),
            (
                "ResourceVersion",
                "ResourceVersion",
                &options.resource_version,
                meta(live, "resourceVersion"),
                "modified",
            ),
        ];
        for (what, record, wanted, found, happened) in checks {
            if let Some(wanted) = wanted
                && wanted != found
            {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {record} in record ({found}). The object might have been {happened}"
                );
                return Err(Failure::Conflict(object::kind_of(&self.kind), self.name().to_owned(), why));
            }
        }
        Ok(())
    }
}

/// Says in a Pod that it was evicted, which the policies of Jobs go by. It was since it was first said to be disrupted.
fn say_evicted(pod: &mut Value, now: Timestamp) {
    const TYPE: &str = "DisruptionTarget";
    let mut held = pod["status"]["conditions"].as_array().into_iter().flatten();
    let held = held.find(|one| one["type"] == TYPE && one["status"] == "True");
    let since = held.map_or_else(|| object::time(now).into(), |held| held["lastTransitionTime"].clone());
    let condition = json!({
        "type": TYPE,
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastProbeTime": null,
        "lastTransitionTime": since,
    });
    object::set_condition(pod, condition);
}

/// What a delete makes of an object.
#[derive(Debug, PartialEq, Eq)]
enum Mark {
    /// It is marked, now or from before, and waits.
    Waits,
    /// It can go.
    Gone,
}

/// Marks an object as deleted.
fn mark(kind: &Kind, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Mark {
    if is(kind, "", "namespaces") {
        return mark_namespace(object, options, now);
    }
    if is(kind, definitions::GROUP, definitions::PLURAL) && !object::is_terminating(object) {
        definitions::mark_terminating(object, now);
    }
    let graceful = match shorten(kind, object, options, now) {
        Grace::Pending => return Mark::Waits,
        Grace::Seconds(seconds) => Some(seconds),
        Grace::None => None,
    };
    let finalizers = collected(object, options.propagation.or_else(|| unasked(kind, object)));
    object::set_finalizers(object, &finalizers);
    match graceful {
        None if finalizers.is_empty() => Mark::Gone,
        None => {
            mark_now(object, now);
            Mark::Waits
        }
        Some(0) if finalizers.is_empty() => Mark::Gone,
        Some(_) => Mark::Waits,
    }
}

/// Whether there is a grace period.
enum Grace {
    None,
    Pending,
    Seconds(i64),
}

/// Begins or shortens the grace period of an object whose kind has one.
fn shorten(kind: &Kind, object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Grace {
    if !is(kind, "", "pods") {
        return Grace::None;
    }
    let wanted = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let Some(deleted_at) = object::parse_time(meta(object, "deletionTimestamp")) else {
        let seconds = kind.grace(object, wanted).unwrap_or(0);
        set_deletion(object, later(now, seconds), seconds);
        count_generation(object);
        return Grace::Seconds(seconds);
    };
    let current = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    if current == 0 {
        return Grace::None;
    }
    match wanted {
        Some(seconds) if seconds < current => {
            let until = later(begun(deleted_at, current, now), seconds);
            let over = until < now;
            let seconds = if over && seconds != 0 { 1 } else { seconds };
            set_deletion(object, if over { now } else { until }, seconds);
            Grace::Seconds(seconds)
        }
        _ => Grace::Pending,
    }
}

/// So many seconds after a time, or the last time that there is.
fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// When a grace period of so many seconds began that ends then. Of one that ends with all time nobody knows: now.
fn begun(ends: Timestamp, seconds: i64, now: Timestamp) -> Timestamp {
    let known = ends.as_second() < Timestamp::MAX.as_second();
    let begun = ends.checked_sub(SignedDuration::from_secs(seconds)).ok();
    begun.filter(|_| known).unwrap_or(now)
}

fn set_deletion(object: &mut Value, at: Timestamp, seconds: i64) {
    let metadata = meta_mut(object);
    metadata.insert("deletionTimestamp".into(), object::time(at).into());
    metadata.insert("deletionGracePeriodSeconds".into(), seconds.into());
}

fn count_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_i64().filter(|number| *number > 0) {
        meta_mut(object).insert("generation".into(), (generation + 1).into());
    }
}

/// Marks an object that has no grace period but waits for its finalizers.
fn mark_now(object: &mut Value, now: Timestamp) {
    let before = object::parse_time(meta(object, "deletionTimestamp"));
    if before.is_none() {
        count_generation(object);
    }
    let at = before.filter(|at| *at <= now).unwrap_or(now);
    set_deletion(object, at, 0);
}

/// Whether objects of this kind leave what they own behind where nobody says otherwise. Jobs do, for clients that
/// are older than garbage collection.
fn leaves_dependents(kind: &Kind) -> bool {
    is(kind, "batch", "jobs")
}

/// What becomes of dependents where a delete says nothing about them. A finalizer that already says it stands above
/// what the kind does.
fn unasked(kind: &Kind, object: &Value) -> Option<Propagation> {
    let said = object::finalizers(object).iter().any(|name| *name == ORPHAN || *name == FOREGROUND);
    (leaves_dependents(kind) && !said).then_some(Propagation::Orphan)
}

/// The finalizers that the garbage collector is to take off: as the options say, else as they are.
fn collected(object: &Value, propagation: Option<Propagation>) -> Vec<String> {
    let old = object::finalizers(object);
    let Some(propagation) = propagation else { return old.into_iter().map(str::to_owned).collect() };
    let mut new: Vec<String> =
        old.into_iter().filter(|name| *name != ORPHAN && *name != FOREGROUND).map(str::to_owned).collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => new.push(FOREGROUND.to_owned()),
        Propagation::Orphan => new.push(ORPHAN.to_owned()),
    }
    new
}

/// A namespace waits until its content is gone and its own finalizers are off.
fn mark_namespace(object: &mut Value, options: &DeleteOptions, now: Timestamp) -> Mark {
    let held = |object: &Value| {
        object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
            || !object::finalizers(object).is_empty()
    };
    if object::is_terminating(object) {
        return if held(object) { Mark::Waits } else { Mark::Gone };
    }
    let finalizers = collected(object, options.propagation.filter(|p| *p != Propagation::Background));
    object::set_finalizers(object, &finalizers);
    meta_mut(object).insert("deletionTimestamp".into(), object::time(now).into());
    count_generation(object);
    object["status"]["phase"] = "Terminating".into();
    if held(object) { Mark::Waits } else { Mark::Gone }
}
