//! Carrying a plan out: in order, up to the first failure.
//!
//! **What always holds.** A step that would change nothing is skipped without a request. After a failure nothing is
//! done any more but the status, which people need then most, and the events that tell of it. They are handed over
//! before it is written: who dies in between says them twice, and never not at all. What was written is remembered
//! before the next step begins, so that no later view is older than it. A minted value exists in the request that
//! creates it and nowhere else.

use std::time::Duration;

use ballast_operator::{
    Action, Change, Class, Effect, EventType, Failure, KindRef, Material, Object, Obstacles, Operator, Rival,
    Settled, Target, Verdict, View, obstacles, rivals,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::Resource as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    engine::{About, Engine},
    events::{Note, Sayer},
    failure::Refusal,
    key::Key,
    memory::{Memory, What},
    sources::Random,
    write::{Removed, Writer, Written},
};

/// What came of carrying a plan out.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    /// The step that failed first, as it is called, and how.
    pub(crate) failed: Option<(String, Failure)>,
    /// How long the server asked us to wait.
    pub(crate) retry_after: Option<Duration>,
    /// The steps that did something, as they are called.
    pub(crate) done: Vec<String>,
    /// Whether anything was changed that a plan looks at, other than the status that this plan asked for.
    pub(crate) changed: bool,
}

/// What a plan is carried out with.
pub(crate) struct Hands<'h, O: Operator> {
    pub(crate) operator: &'h O,
    pub(crate) key: &'h Key,
    pub(crate) view: &'h View<O::Resource>,
    pub(crate) memory: &'h Mutex<Memory>,
    pub(crate) writer: &'h Writer,
    pub(crate) engine: &'h dyn Engine,
    pub(crate) sayer: &'h Sayer,
    pub(crate) random: &'h dyn Random,
}

impl<O: Operator> Hands<'_, O> {
    /// Carries out the steps of a settled plan.
    pub(crate) async fn carry_out(&self, plan: &[Settled<'_>]) -> Carried {
        let mut carried = Carried::default();
        for settled in plan {
            let is_status = matches!(settled.step.effect, Effect::Status(_));
            if carried.failed.is_some() && !settled.step.effect.is_report() {
                continue;
            }
            let result = match &settled.verdict {
                Verdict::Nothing | Verdict::Timing => continue,
                Verdict::Refused { why } => Err(Refusal::new(Class::Terminal, why.clone())),
                Verdict::Change(_) | Verdict::Done => self.step(settled).await,
            };
            let headline = settled.step.headline();
            match result {
                Ok(()) => {
                    tracing::info!(step = headline, because = settled.step.because, "done");
                    carried.changed |= !is_status && !matches!(settled.step.effect, Effect::Event { .. });
                    carried.done.push(headline);
                }
                Err(refusal) => {
                    if carried.failed.is_none() {
                        carried.retry_after = refusal.retry_after;
                        carried.failed = Some((headline, refusal.failure));
                    }
                }
            }
        }
        carried
    }

    async fn step(&self, settled: &Settled<'_>) -> Result<(), Refusal> {
        match &settled.step.effect {
            Effect::Apply(object) => self.apply(object, &settled.verdict).await,
            Effect::Mint { secret, key, what } => self.mint(secret, key, what).await,
            Effect::Remove { target, .. } => self.remove(target).await,
            Effect::Act(action) => self.act(action).await,
            Effect::Status(status) => {
                let uid = self.view.resource.meta().uid.clone().unwrap_or_default();
                let own = KindRef::of::<O::Resource>();
                self.write(&own, self.key, self.writer.status(&own, self.key, &uid, status)).await.map(drop)
            }
            Effect::Event { type_, reason, action, note, .. } => {
                self.say(*type_, reason, action, note);
                Ok(())
            }
            Effect::Hold { finalizer } => self.finalizers(|taken| taken.push(finalizer.clone())).await,
            Effect::Release { finalizer } => {
                self.finalizers(|taken| taken.retain(|other| other != finalizer)).await
            }
            // They concern what is seen, not what there is: whoever plans again sees to them.
            Effect::LookAgain(_) | Effect::Relist(_) => Ok(()),
        }
    }

    async fn apply(&self, object: &Object, verdict: &Verdict) -> Result<(), Refusal> {
        let kind = self.kind_of(object)?;
        let key = Key::new(object.namespace(), object.name());
        // Taking is said not before it is done: whoever tries in vain has taken nothing from anyone, and is in no contest.
        match self.write(&kind, &key, self.writer.apply(&kind, &key, object)).await {
            Ok(_) => self.announce_taking(object, verdict),
            Err(refusal) => {
                let Some((live, obstacles)) = self.obstacles(object, &refusal) else { return Err(refusal) };
                self.apply_past(&kind, &key, object, live, &obstacles, refusal).await?;
                self.announce_taking(object, verdict);
                self.taken(object, &obstacles.rivals, |paths, name, managers| {
                    format!(
                        "took {paths} of {name} away, which {managers} had put beside what is wanted there"
                    )
                });
            }
        }
        Ok(())
    }

    /// What others wrote beside our fields, and with which the server refuses them. What holds data belongs to no
    /// resource, and is not looked into.
    fn obstacles(&self, object: &Object, refusal: &Refusal) -> Option<(&Object, Obstacles)> {
        if !refusal.is(422) || !self.view.controls(object) {
            return None;
        }
        let live: &Object = self.view.children.counterpart(object)?;
        let found = obstacles(live.value(), object.value(), O::FIELD_MANAGER, &refusal.fields)?;
        Some((live, found))
    }

    /// Applies an object whose obstacles are made ours first, so that the apply takes them away. Where the server refuses
    /// it all the same they are given back, and `refusal` is what it said first.
    async fn apply_past(
        &self,
        kind: &KindRef,
        key: &Key,
        object: &Object,
        live: &Object,
        obstacles: &Obstacles,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        let owned = async |version: Option<&str>, entries: &Value| {
            let body = json!({
                "metadata": {"resourceVersion": version, "uid": live.uid(), "managedFields": entries}
            });
            self.write(kind, key, self.writer.merge(kind, key, &body)).await
        };
        let claimed = match owned(live.resource_version(), &obstacles.managed_fields).await {
            Ok(claimed) => claimed,
            Err(other) if other.failure.class == Class::Retry => return Err(other),
            Err(_) => return Err(refusal),
        };
        match self.write(kind, key, self.writer.apply(kind, key, object)).await {
            Err(again) if again.is(422) => {
                let before = live.value().pointer("/metadata/managedFields").unwrap_or(&Value::Null);
                // Whoever wrote in between keeps what they wrote.
                let _ = owned(Some(&claimed.metadata.version), before).await;
                Err(refusal)
            }
            applied => applied.map(drop),
        }
    }

    /// Says whose values were replaced, and counts it.
    fn announce_taking(&self, object: &Object, verdict: &Verdict) {
        let Verdict::Change(Change::Fields(_)) = verdict else { return };
        let Some(live) = self.view.children.counterpart(object) else { return };
        // A field of ours that we ourselves want otherwise now is not taken from anyone: rivals are only those whose
        // own entry has the field.
        let rivals = rivals(live.value(), object.value(), O::FIELD_MANAGER);
        self.taken(object, &rivals, |paths, name, managers| {
            format!("put {paths} of {name} back, which {managers} had changed")
        });
    }

    /// Fields were taken from others: it is counted, and said in words made of the fields, the object and the others.
    fn taken(&self, object: &Object, rivals: &[Rival], words: impl FnOnce(&str, &str, &str) -> String) {
        if rivals.is_empty() {
            return;
        }
        let name = object.to_string();
        self.memory.lock().contests.flipped(&name, rivals, Instant::now());
        let mut managers: Vec<&str> = rivals.iter().map(|rival| rival.manager.as_str()).collect();
        managers.dedup();
        let paths: Vec<&str> = rivals.iter().map(|rival| rival.path.as_str()).collect();
        let note = words(&paths.join(", "), &name, &managers.join(" and "));
        self.say(EventType::Warning, "FieldsTakenBack", "Apply", &note);
    }

    fn kind_of(&self, object: &Object) -> Result<KindRef, Refusal> {
        let mut kinds = self.operator.relations().into_iter().map(|relation| relation.kind);
        kinds.find(|kind| kind.is(object.api_version(), object.kind())).ok_or_else(|| {
            Refusal::new(Class::Bug, format!("{object} is of a kind that is not in the operator's relations"))
        })
    }

    /// Adds one value to a Secret, unless it is there. The revision that was read guards against a second one.
    async fn mint(&self, secret: &str, entry: &str, what: &Material) -> Result<(), Refusal> {
        let kind = KindRef::of::<Secret>();
        let key = self.key.beside(secret, true);
        let Some(live) = self.writer.read(&kind, &key).await? else {
            return Err(Refusal::new(Class::Retry, format!("the Secret {key} is not there")));
        };
        if live.value().get("data").is_some_and(|data| data.get(entry).is_some()) {
            return Ok(());
        }
        let value = make(what, self.random)?;
        let body = json!({
            "metadata": {"resourceVersion": live.resource_version(), "uid": live.uid()},
            "data": {entry: BASE64_STANDARD.encode(value)},
        });
        self.write(&kind, &key, self.writer.merge(&kind, &key, &body)).await.map(drop)
    }

    async fn remove(&self, target: &Target) -> Result<(), Refusal> {
        let key = Key::new(target.namespace.as_deref(), &target.name);
        let before = self.memory.lock().expect(&target.kind, &key, What::Unknown);
        let removed = self.writer.remove(target).await;
        let mut memory = self.memory.lock();
        match removed {
            Ok(Removed::Gone) => {
                memory.expect(&target.kind, &key, What::Gone(target.uid.as_str().into()));
                Ok(())
            }
            Ok(Removed::Going(version)) => {
                memory.wrote(&target.kind, &key, &version);
                Ok(())
            }
            Err(refusal) => {
                refused(&mut memory, &target.kind, &key, before, &refusal);
                Err(refusal)
            }
        }
    }

    async fn act(&self, action: &Action) -> Result<(), Refusal> {
        let done = self.engine.act(self.about(), action).await;
        done.map_err(Refusal::from)
    }

    /// What the engine is told of the resource.
    pub(crate) fn about(&self) -> About<'_> {
        About { namespace: self.view.namespace(), name: self.view.name(), children: &self.view.children }
    }

    async fn finalizers(&self, change: impl FnOnce(&mut Vec<String>)) -> Result<(), Refusal> {
        let meta = self.view.resource.meta();
        let mut taken = meta.finalizers.clone().unwrap_or_default();
        change(&mut taken);
        let body = json!({
            "metadata": {"resourceVersion": meta.resource_version, "uid": meta.uid, "finalizers": taken}
        });
        let own = KindRef::of::<O::Resource>();
        self.write(&own, self.key, self.writer.merge(&own, self.key, &body)).await?;
        // The last finalizer of what is being deleted takes the resource with it. The answer has the revision that it
        // had before, which every watch has shown: it must not be taken for one that is still there.
        if taken.is_empty() && meta.deletion_timestamp.is_some() {
            let uid = meta.uid.as_deref().unwrap_or_default();
            self.memory.lock().expect(&own, self.key, What::Gone(uid.into()));
        }
        Ok(())
    }

    /// Writes an object. No view from now on is older than that; also if this round is broken off before the answer
    /// is there.
    async fn write(
        &self,
        kind: &KindRef,
        key: &Key,
        write: impl Future<Output = Result<Written, Refusal>>,
    ) -> Result<Written, Refusal> {
        let before = self.memory.lock().expect(kind, key, What::Unknown);
        let written = write.await;
        let mut memory = self.memory.lock();
        match written {
            Ok(written) => {
                memory.wrote(kind, key, &written.metadata.version);
                Ok(written)
            }
            Err(refusal) => {
                refused(&mut memory, kind, key, before, &refusal);
                Err(refusal)
            }
        }
    }

    fn say(&self, type_: EventType, reason: &str, action: &str, note: &str) {
        self.sayer.say(Note {
            regarding: reference(&self.view.resource),
            type_,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: note.to_owned(),
        });
    }
}

/// After a conflict the object is not what was seen, after a 404 it may be gone, and after some failures nobody knows
/// what it is: it is read before the next decision. Otherwise it is as it was.
fn refused(memory: &mut Memory, kind: &KindRef, key: &Key, before: Option<What>, refusal: &Refusal) {
    if !refusal.uncertain && !refusal.is(409) && !refusal.is(404) {
        memory.expect_again(kind, key, before);
    }
}

fn reference<R: kube::Resource<DynamicType = ()>>(resource: &R) -> ObjectReference {
    ObjectReference { resource_version: None, ..resource.object_ref(&()) }
}

/// Letters and digits that are hard to take for one another are all the same kept: whoever copies a password by
/// hand does so once.
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Makes a secret value.
fn make(what: &Material, random: &dyn Random) -> Result<Vec<u8>, Failure> {
    let fill =
        |bytes: &mut [u8]| random.fill(bytes).map_err(|error| Failure::new(Class::Retry, error.to_string()));
    match what {
        Material::Bytes { length } => {
            let mut bytes = vec![0; usize::from(*length)];
            fill(&mut bytes)?;
            Ok(bytes)
        }
        Material::Password { length } => {
            let mut password = Vec::with_capacity(usize::from(*length));
            let mut bytes = [0; 64];
            while password.len() < usize::from(*length) {
                fill(&mut bytes)?;
                // 248 is four times 62: what is above would make the first letters likelier than the others.
                let fair = bytes.iter().filter(|byte| **byte < 248);
                let letters = fair.map(|byte| LETTERS[usize::from(*byte) % LETTERS.len()]);
                password.extend(letters.take(usize::from(*length) - password.len()));
            }
            Ok(password)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{NoRandomness, SystemRandom};

    #[test]
    fn a_password_has_the_length_and_the_letters_that_were_asked_for() {
        for length in [0, 1, 16, 64, 500] {
            let password = make(&Material::Password { length }, &SystemRandom).unwrap();
            assert_eq!(password.len(), usize::from(length));
            assert!(password.iter().all(u8::is_ascii_alphanumeric));
        }
        let make = || make(&Material::Password { length: 32 }, &SystemRandom).unwrap();
        assert_ne!(make(), make());
    }

    #[test]
    fn without_randomness_nothing_is_minted() {
        struct Never;
        impl Random for Never {
            fn fill(&self, _: &mut [u8]) -> Result<(), NoRandomness> {
                Err(NoRandomness)
            }
        }
        assert!(make(&Material::Bytes { length: 8 }, &Never).is_err());
        assert!(make(&Material::Password { length: 8 }, &Never).is_err());
    }
}
