//! What must hold wherever everything has come to rest.

use std::{collections::BTreeSet, sync::Arc};

use ballast_operator::{Answers, How, KindRef, Object, Operator, lint};
use ballast_runtime::About;
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;

use crate::{Check, State};

/// What a check found.
pub(crate) type Found = (Check, String);

/// Everything that was made for a resource belongs to one that is there.
pub(crate) fn orphans<O: Operator>(operator: &O, state: &State) -> Vec<Found> {
    let uids: BTreeSet<&str> = state.objects().iter().filter_map(|object| object.uid()).collect();
    let own = KindRef::of::<O::Resource>();
    let relations = operator.relations();
    // What is only observed may be anybody's.
    let kept = relations.iter().filter(|relation| matches!(relation.how, How::Kept { .. }));
    let labels: Vec<&str> = kept.filter_map(|relation| relation.label()).collect();
    let is_there = |name: &str, near: &Object| {
        state.of_kind(&own).any(|resource| {
            resource.name() == name
                && (resource.namespace().is_none() || resource.namespace() == near.namespace())
        })
    };
    let mut found = Vec::new();
    let mut orphan = |what: String| found.push((Check::Orphans, what));
    for object in state.objects() {
        for owner in object.owner_references() {
            if !uids.contains(owner.uid.as_str()) {
                orphan(format!("{object} belongs to {} {}, which is gone", owner.kind, owner.name));
            }
        }
        let relation =
            relations.iter().find(|relation| relation.kind.is(object.api_version(), object.kind()));
        match relation.map(|relation| &relation.how) {
            Some(How::Owned) if is_managed_by(object, O::FIELD_MANAGER) && object.controller().is_none() => {
                orphan(format!("{object} was made by {} and belongs to nobody", O::FIELD_MANAGER));
            }
            // What holds data outlives its resource unless the resource says otherwise.
            Some(How::Kept { .. }) => continue,
            // It belongs to whoever controls it.
            _ if object.controller().is_some() => continue,
            _ => {}
        }
        for label in &labels {
            if let Some(name) = object.label(label).filter(|name| !is_there(name, object)) {
                orphan(format!("{object} is labelled {label}={name}, and there is no such {own}"));
            }
        }
    }
    found
}

fn is_managed_by(object: &Object, manager: &str) -> bool {
    let entries = object.value().pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().any(|entry| entry["manager"] == manager)
}

/// Nothing is on its way out any more.
pub(crate) fn lingering(state: &State) -> Vec<Found> {
    let going = state.objects().iter().filter(|object| object.is_being_deleted());
    going
        .map(|object| {
            let held = object.value().pointer("/metadata/finalizers").unwrap_or(&Value::Null);
            (Check::Gone, format!("{object} is being deleted and held by {held}"))
        })
        .collect()
}

/// Planning again, as a process that is started now would, changes nothing.
pub(crate) async fn fixpoint<O: Operator, M: Fn() -> O + Send + Sync>(
    make: &M,
    engine: &Arc<dyn crate::Service>,
    state: &State,
    now: Timestamp,
) -> Vec<Found> {
    let mut found = Vec::new();
    for object in state.of_kind(&KindRef::of::<O::Resource>()) {
        let resource = match O::Resource::deserialize(object.value()) {
            Ok(resource) => resource,
            Err(error) => {
                found.push((Check::Run, format!("{object} can't be read: {error}")));
                continue;
            }
        };
        let operator = make();
        let view = state.view(&operator, resource, now);
        let about = About { namespace: view.namespace(), name: view.name(), children: &view.children };
        let mut answers = Answers::none();
        for question in operator.questions(&view) {
            answers.insert(question.id.clone(), engine.ask(about, &question).await);
        }
        let plan = operator.plan(&view, &answers);
        for again in [operator.plan(&view, &answers), make().plan(&view, &answers)] {
            if plan != again {
                found.push((Check::Repeatable, format!("{object}:\n{plan:#}\nand then\n{again:#}")));
                break;
            }
        }
        found.extend(
            lint(&operator, &view, &plan).iter().map(|mistake| (Check::Lint, format!("{object}: {mistake}"))),
        );
        let effects: Vec<String> = plan.effects::<O>(&view).iter().map(ToString::to_string).collect();
        if !effects.is_empty() {
            found.push((Check::Effects, format!("{object}:\n{}", effects.join("\n"))));
        }
    }
    found
}

/// Whether an object holds data of a resource that is there and to stay.
pub(crate) fn holds_living_data<O: Operator>(operator: &O, state: &State, object: &Object) -> bool {
    let own = KindRef::of::<O::Resource>();
    let relations = operator.relations();
    let relation = relations.iter().find(|relation| relation.kind.is(object.api_version(), object.kind()));
    let Some(How::Kept { label }) = relation.map(|relation| &relation.how) else { return false };
    state.of_kind(&own).any(|resource| {
        object.label(label) == Some(resource.name())
            && (resource.namespace().is_none() || resource.namespace() == object.namespace())
            && !resource.is_being_deleted()
    })
}
