//! StatefulSets: pods with names and claims that stay, one after another.
//!
//! [`plan`] decides; this file gathers what it needs, carries its steps out and tells.

mod plan;
mod pod;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::json;

use crate::Clock;
use crate::claim::claim;
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, PatchType, Rest, json_bytes};
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::stateful::{ClaimTemplate, Revision, StatefulSet};
use crate::objects::storage::Claim;
use crate::objects::template::Template;
use crate::own;
use crate::revisions::{Current, Revisions};
use plan::{Lack, Step, View, Which, plan};

/// What the controller listens to.
type Informers<'a> = (
    &'a mut Informer<StatefulSet>,
    &'a mut Informer<Pod>,
    &'a mut Informer<Claim>,
    &'a mut Informer<Revision>,
);

/// The controller.
pub struct Controller {
    rest: Rest,
    recorder: Recorder,
    clock: Clock,
    sets: Arc<Cache<StatefulSet>>,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<Claim>>,
    revisions: Revisions,
    awaited: Awaited<Key>,
}

/// The two revisions a set is at, with their templates.
struct At {
    current: (Arc<str>, Template),
    update: (Arc<str>, Template),
    collisions: i32,
}

impl At {
    fn new(set: &StatefulSet, revisions: &[Arc<Revision>], update: Current) -> Self {
        let current = revisions.iter().find(|one| *one.metadata.name == *set.status.current_revision);
        let current = current.map(|one| (one.metadata.name.clone(), one.template.clone()));
        let update_to = (update.name, set.spec.template.clone());
        let current = current.unwrap_or_else(|| update_to.clone());
        Self { current, update: update_to, collisions: update.collisions.unwrap_or(0) }
    }
}

impl Controller {
    /// The controller, listening to these informers.
    pub fn new(
        rest: Rest,
        recorder: Recorder,
        clock: Clock,
        (sets, pods, claims, revisions): Informers<'_>,
        queue: &Arc<Queue<Key>>,
    ) -> Self {
        own::follow(sets, pods, queue);
        // A claim that has gone may be what a pod waits for.
        let (keys, known) = (queue.clone(), sets.cache.clone());
        claims.on_change(move |change| {
            if let (Some(claim), None) = (change.before, change.after) {
                let with_claims = known.in_namespace(&claim.metadata.namespace, |set| {
                    !set.spec.volume_claim_templates.is_empty()
                });
                with_claims.iter().for_each(|set| keys.add(set.metadata.key()));
            }
        });
        let revisions = Revisions::new(rest.clone(), revisions.cache.clone());
        Self {
            rest,
            recorder,
            clock,
            sets: sets.cache.clone(),
            pods: pods.cache.clone(),
            claims: claims.cache.clone(),
            revisions,
            awaited: Awaited::default(),
        }
    }

    /// Brings one set nearer to what was asked for.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        if self.awaited.holds(key) {
            return Ok(Next::After(LOOK_AGAIN));
        }
        let Some(set) = self.sets.get(key) else {
            self.awaited.forget(key);
            return Ok(Next::OnChange);
        };
        if set.spec.selector.is_empty() {
            return Ok(Next::OnChange);
        }
        let written = |version| self.note(&set, &self.revisions.cache, version);
        let revisions = self.revisions.gather(&*set, written).await?;
        let pods = self.gather(&set).await?;
        let Some(update) = self.revisions.current(&*set, &revisions, written).await? else {
            return Ok(Next::OnChange);
        };
        let at = At::new(&set, &revisions, update);
        let claims = self.claims_of(&set, &pods);
        let view = View {
            set: &set,
            pods: &pods,
            claims: &claims,
            current: &at.current.0,
            update: &at.update.0,
            collisions: at.collisions,
            now: (self.clock)(),
        };
        let plan = plan(&view);
        let mut outcome = Ok(());
        for step in &plan.steps {
            outcome = self.carry_out(&set, &at, step).await;
            if outcome.is_err() {
                break;
            }
        }
        if plan.status != set.status {
            let written =
                self.rest.replace_status(StatefulSet::resource(), &set.metadata, &plan.status).await;
            match written {
                Ok(written) => self.note(&set, &self.sets, written.version()),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome?;
        let mut live: Vec<&str> = pods.values().map(|pod| pod::revision(pod)).collect();
        live.extend([&*at.current.0, &*at.update.0]);
        self.revisions.prune(&*set, &revisions, &live).await?;
        Ok(plan.look_again.map_or(Next::OnChange, Next::After))
    }

    /// The pods of the set by their numbers, after taking and letting go.
    async fn gather(&self, set: &StatefulSet) -> Result<BTreeMap<i32, Arc<Pod>>, Error> {
        let candidates = self.pods.controlled_by(&set.metadata.uid);
        let orphans = self.pods.orphans(&set.metadata.namespace);
        let member = |pod: &Arc<Pod>| {
            pod.metadata.controller().is_some() || pod::ordinal(set, &pod.metadata.name).is_some()
        };
        let all = candidates.into_iter().chain(orphans).filter(member);
        let claim = claim(&set.metadata, &set.spec.selector, all);
        let written = |version| self.note(set, &self.pods, version);
        let own = own::carry_out(&self.rest, set, claim, None, written).await?.all();
        Ok(own.into_iter().filter_map(|pod| Some((pod::ordinal(set, &pod.metadata.name)?, pod))).collect())
    }

    /// The claims of the pods there are and shall be.
    fn claims_of(&self, set: &StatefulSet, pods: &BTreeMap<i32, Arc<Pod>>) -> HashMap<String, Arc<Claim>> {
        let numbers = (set.start()..set.end()).chain(pods.keys().copied());
        let names = numbers.flat_map(|number| {
            let templates = set.spec.volume_claim_templates.iter();
            templates.map(move |template| pod::claim_name(set, template, number))
        });
        let known = |name: String| {
            let key = Key::new(set.metadata.namespace.clone(), name.as_str());
            Some((name, self.claims.get(&key)?))
        };
        names.filter_map(known).collect()
    }

    async fn carry_out(&self, set: &StatefulSet, at: &At, step: &Step<'_>) -> Result<(), Error> {
        match step {
            Step::Claims { number, waits, lacks } => self.make_claims(set, *number, *waits, lacks).await,
            Step::Create(number, which) => self.create(set, at, *number, *which).await,
            Step::Delete(pod) => {
                let (key, uid) = (pod.metadata.key(), &pod.metadata.uid);
                let deleted = match self.rest.delete_at_version(Pod::resource(), &key, uid).await {
                    Ok(version) => {
                        self.note(set, &self.pods, version);
                        Ok(())
                    }
                    // It is gone, which is what was wanted.
                    Err(error) if error.not_found() || error.conflict() => return Ok(()),
                    Err(error) => Err(error),
                };
                self.told(set, "delete", &pod.metadata.name, deleted)
            }
            Step::Owners(claim, owners) => {
                let metadata =
                    json!({ "resourceVersion": claim.metadata.resource_version, "ownerReferences": owners });
                let (key, patch) = (claim.metadata.key(), json!({ "metadata": metadata }));
                // A claim's update is what the role allows, not its patch.
                let written = self.replace_owners(&key, &patch).await?;
                self.note(set, &self.claims, written);
                Ok(())
            }
            Step::Foreign(claim) => {
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim",
                    claim.metadata.name
                );
                self.recorder.record(set, Severity::Warning, "ConflictingController", message);
                Ok(())
            }
            Step::Amend(pod, number) => {
                let (key, patch) = (pod.metadata.key(), pod::amendment(set, pod, *number));
                let amended = match self.rest.patch(Pod::resource(), &key, PatchType::Strategic, &patch).await
                {
                    Ok(written) => {
                        self.note(set, &self.pods, written.version());
                        Ok(())
                    }
                    Err(error) => Err(error),
                };
                self.told(set, "update", &pod.metadata.name, amended)
            }
            Step::Amended(pod) => self.told(set, "update", &pod.metadata.name, Ok(())),
        }
    }

    /// Makes the claims that a pod lacks, as many as can be made. What is in the way of a pod that is there already is
    /// no failure to create that one.
    async fn make_claims(
        &self,
        set: &StatefulSet,
        number: i32,
        waits: bool,
        lacks: &[Lack<'_>],
    ) -> Result<(), Error> {
        let (mut outcome, mut failures) = (Ok(()), Vec::new());
        for lack in lacks {
            match lack {
                Lack::Going(claim) => failures.push(format!("pvc {claim} is being deleted")),
                Lack::Missing(template) => match self.make_claim(set, template, number).await {
                    Ok(()) => {}
                    Err(error) if error.already_exists() || error.namespace_terminating() => {
                        outcome = Err(error);
                    }
                    Err(error) => {
                        let claim = pod::claim_name(set, template, number);
                        failures.push(format!("failed to create PVC {claim}: {error}"));
                    }
                },
            }
        }
        let failure = match failures.as_slice() {
            [] => return outcome,
            [only] => only.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        let failed = Err(Error::Undecided(failure));
        if waits { failed } else { self.told(set, "create", &pod::pod_name(set, number), failed) }
    }

    /// Makes one claim, and tells.
    async fn make_claim(
        &self,
        set: &StatefulSet,
        template: &ClaimTemplate,
        number: i32,
    ) -> Result<(), Error> {
        let (claim, pod) = (pod::claim_name(set, template, number), pod::pod_name(set, number));
        let body = json_bytes(&pod::claim_body(set, template, number))?;
        match self.rest.create(Claim::resource(), &set.metadata.namespace, body).await {
            Ok(written) => {
                self.note(set, &self.claims, written.version());
                let message =
                    format!("create Claim {claim} Pod {pod} in StatefulSet {} success", set.metadata.name);
                self.recorder.record(set, Severity::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) if error.already_exists() || error.namespace_terminating() => Err(error),
            Err(error) => {
                let message = format!(
                    "create Claim {claim} for Pod {pod} in StatefulSet {} failed error: {error}",
                    set.metadata.name
                );
                self.recorder.record(set, Severity::Warning, "FailedCreate", message);
                Err(error)
            }
        }
    }

    /// Replaces the owners of a claim, if it is still at the version of the patch.
    async fn replace_owners(&self, key: &Key, patch: &serde_json::Value) -> Result<u64, Error> {
        let mut claim: serde_json::Value = self.rest.get(Claim::resource(), key, None).await?;
        for field in ["resourceVersion", "ownerReferences"] {
            claim["metadata"][field] = patch["metadata"][field].clone();
        }
        let written = self.rest.replace(Claim::resource(), key, None, json_bytes(&claim)?).await?;
        Ok(written.version())
    }

    async fn create(&self, set: &StatefulSet, at: &At, number: i32, which: Which) -> Result<(), Error> {
        let (revision, template) = match which {
            Which::Current => &at.current,
            Which::Update => &at.update,
        };
        let body = json_bytes(&pod::pod_body(set, template, revision, number))?;
        let name = pod::pod_name(set, number);
        match self.rest.create(Pod::resource(), &set.metadata.namespace, body).await {
            Ok(written) => {
                self.note(set, &self.pods, written.version());
                self.told(set, "create", &name, Ok(()))
            }
            Err(error) if error.already_exists() || error.namespace_terminating() => Err(error),
            Err(error) => self.told(set, "create", &name, Err(error)),
        }
    }

    /// Tells what became of a pod, and passes it on.
    fn told(
        &self,
        set: &StatefulSet,
        verb: &'static str,
        pod: &str,
        outcome: Result<(), Error>,
    ) -> Result<(), Error> {
        let about = format!("{verb} Pod {pod} in StatefulSet {}", set.metadata.name);
        let (well, badly) = match verb {
            "create" => ("SuccessfulCreate", "FailedCreate"),
            "delete" => ("SuccessfulDelete", "FailedDelete"),
            _ => ("SuccessfulUpdate", "FailedUpdate"),
        };
        match &outcome {
            Ok(()) => self.recorder.record(set, Severity::Normal, well, format!("{about} successful")),
            Err(error) => {
                self.recorder.record(set, Severity::Warning, badly, format!("{about} failed error: {error}"));
            }
        }
        outcome
    }

    fn note<T>(&self, set: &StatefulSet, cache: &Arc<Cache<T>>, version: u64)
    where
        Cache<T>: Progress + 'static,
    {
        let cache: Arc<dyn Progress> = cache.clone();
        self.awaited.note(&set.metadata.key(), &cache, version);
    }
}
