//! StatefulSets: pods with names and claims that stay, one after another.
//!
//! [`plan`] decides; this file gathers what it needs, carries its steps out and tells.

mod history;
mod plan;
mod pod;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::json;

use crate::Clock;
use crate::claim::{self, claim};
use crate::machinery::awaited::{Awaited, LOOK_AGAIN};
use crate::machinery::cache::{Cache, Kind, Progress};
use crate::machinery::informer::Informer;
use crate::machinery::queue::{Next, Queue};
use crate::machinery::recorder::{Recorder, Severity};
use crate::machinery::rest::{Error, PatchType, Rest, json_bytes};
use crate::objects::meta::OwnerReference;
use crate::objects::pod::Pod;
use crate::objects::resource::Key;
use crate::objects::stateful::{Revision, StatefulSet};
use crate::objects::storage::Claim;
use crate::objects::template::Template;
use crate::own;
use history::Choice;
use plan::{Step, View, Which, plan};

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
    revisions: Arc<Cache<Revision>>,
    awaited: Awaited<Key>,
}

/// The two revisions a set is at, with their templates.
struct At {
    current: (Arc<str>, Template),
    update: (Arc<str>, Template),
    collisions: i32,
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
        Self {
            rest,
            recorder,
            clock,
            sets: sets.cache.clone(),
            pods: pods.cache.clone(),
            claims: claims.cache.clone(),
            revisions: revisions.cache.clone(),
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
        let revisions = self.gather_revisions(&set).await?;
        let pods = self.gather(&set).await?;
        let mut sorted: Vec<&Revision> = revisions.iter().map(|revision| &**revision).collect();
        history::sort(&mut sorted);
        let Some(at) = self.revise(&set, &sorted).await? else { return Ok(Next::OnChange) };
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
        for revision in history::beyond_limit(&set, &sorted, &live) {
            let (at, uid) = (revision.metadata.key(), &revision.metadata.uid);
            match self.rest.delete(Revision::resource(), &at, uid, None, None).await {
                Err(error) if !error.not_found() && !error.conflict() => return Err(error),
                _ => {}
            }
        }
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

    /// The revisions of the set, those that nobody manages taken over.
    async fn gather_revisions(&self, set: &StatefulSet) -> Result<Vec<Arc<Revision>>, Error> {
        let mut own = self.revisions.controlled_by(&set.metadata.uid);
        let mut orphans = self.revisions.orphans(&set.metadata.namespace);
        orphans.retain(|revision| set.spec.selector.matches(&revision.metadata.labels));
        if !orphans.is_empty() && !set.metadata.deleting() {
            own::may_take(&self.rest, set).await?;
            for revision in orphans {
                let owner = OwnerReference::to_controller(StatefulSet::resource(), &set.metadata);
                let (at, patch) = (revision.metadata.key(), claim::adoption(owner, &revision.metadata.uid));
                let written =
                    self.rest.patch(Revision::resource(), &at, PatchType::Strategic, &patch).await?;
                self.note(set, &self.revisions, written.version());
                own.push(revision);
            }
        }
        own.retain(|revision| set.spec.selector.matches(&revision.metadata.labels));
        Ok(own)
    }

    /// Has a revision of the template among those of the set. Nothing when the namespace is going.
    async fn revise(&self, set: &StatefulSet, sorted: &[&Revision]) -> Result<Option<At>, Error> {
        let mut collisions = set.status.collision_count.unwrap_or(0);
        let update = match history::choose(set, sorted) {
            Choice::Latest(revision) => revision.metadata.name.clone(),
            Choice::Again(revision, number) => {
                let patch = json!({ "metadata": { "resourceVersion": revision.metadata.resource_version }, "revision": number });
                let at = revision.metadata.key();
                let written = self.rest.patch(Revision::resource(), &at, PatchType::Merge, &patch).await?;
                self.note(set, &self.revisions, written.version());
                written.name
            }
            Choice::New(number) => match self.remember(set, number, &mut collisions).await? {
                Some(name) => name,
                None => return Ok(None),
            },
        };
        let update = (update, set.spec.template.clone());
        let current = sorted.iter().find(|revision| *revision.metadata.name == *set.status.current_revision);
        let current =
            current.map_or_else(|| update.clone(), |one| (one.metadata.name.clone(), one.template.clone()));
        Ok(Some(At { current, update, collisions }))
    }

    /// Makes a revision of the template; its name. Each name that is taken by something else is counted.
    async fn remember(
        &self,
        set: &StatefulSet,
        number: i64,
        collisions: &mut i32,
    ) -> Result<Option<Arc<str>>, Error> {
        let data = history::data(set);
        let label = history::hash(&data, *collisions);
        loop {
            let name = history::name(&set.metadata.name, &history::hash(&data, *collisions));
            let mut labels = set.spec.template.labels().clone();
            labels.set(history::HASH, &label);
            let body = json!({
                "apiVersion": "apps/v1",
                "kind": "ControllerRevision",
                "metadata": {
                    "name": name,
                    "namespace": &*set.metadata.namespace,
                    "labels": labels,
                    "annotations": set.metadata.annotations,
                    "ownerReferences": [OwnerReference::to_controller(StatefulSet::resource(), &set.metadata)],
                },
                "data": data,
                "revision": number,
            });
            match self.rest.create(Revision::resource(), &set.metadata.namespace, json_bytes(&body)?).await {
                Ok(written) => {
                    self.note(set, &self.revisions, written.version());
                    return Ok(Some(written.name));
                }
                Err(error) if error.namespace_terminating() => return Ok(None),
                Err(error) if error.already_exists() => {
                    let at = Key::new(set.metadata.namespace.clone(), name);
                    let taken: Revision = self.rest.get(Revision::resource(), &at, None).await?;
                    if taken.template == set.spec.template {
                        return Ok(Some(taken.metadata.name));
                    }
                    *collisions += 1;
                }
                Err(error) => return Err(error),
            }
        }
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
            Step::Claim(template, number) => {
                let (claim, pod) = (pod::claim_name(set, template, *number), pod::pod_name(set, *number));
                let body = json_bytes(&pod::claim_body(set, template, *number))?;
                match self.rest.create(Claim::resource(), &set.metadata.namespace, body).await {
                    Ok(written) => {
                        self.note(set, &self.claims, written.version());
                        let message = format!(
                            "create Claim {claim} Pod {pod} in StatefulSet {} success",
                            set.metadata.name
                        );
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
                        let error = Error::Undecided(format!("failed to create PVC {claim}: {error}"));
                        self.told(set, "create", &pod, Err(error))
                    }
                }
            }
            Step::ClaimGoing(number, claim) => {
                let error = Error::Undecided(format!("pvc {claim} is being deleted"));
                self.told(set, "create", &pod::pod_name(set, *number), Err(error))
            }
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
